"""Options of the commands that take bursts from imported spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from xstage_tune.base.errors import UsageError
from xstage_tune.commands._completion import run_ids
from xstage_tune.commands._runs import notify

if TYPE_CHECKING:
    from xstage_tune.spans.bursts import StoreBursts

FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="RUN|latest",
        autocompletion=run_ids,
        help="In place of a workload: bursts of an imported run.",
    ),
]
BurstOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="With --from: spans that are bursts of remote stores; may be repeated.",
        show_default="the only name there is",
    ),
]


def require_source(source: str | None, burst: list[str] | None) -> None:
    """Refuse names of spans without spans.

    Raises:
        UsageError: there are some.
    """
    if source is None and burst:
        raise UsageError("--burst goes with --from", "--from latest takes the last imported run")


def only_timeline(bursts: tuple[StoreBursts, ...]) -> StoreBursts:
    """The one timeline of a run, of which the user is told what was taken.

    Raises:
        UsageError: it has several.
    """
    from xstage_tune.base.number_format import count, duration

    if len(bursts) > 1:
        raise UsageError(f"the run has {len(bursts)} timelines", "import the one to audit alone")
    one = bursts[0]
    notify(
        f"{one.source}: {count(one.gap_ns.size)} bursts on {one.producers} SMs, median gap "
        f"{duration(one.median_gap_ns)}, median T_RS {duration(one.median_length_ns)}"
    )
    return one
