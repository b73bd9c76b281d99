"""What the commands share that measure: how a run is made, and how its result is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from xstage_tune.base.text import printable
from xstage_tune.commands._options import OutputFormat

if TYPE_CHECKING:
    from rich.console import RenderableType

    from xstage_tune.base.progress import Progress
    from xstage_tune.experiments.emulation.sweep import Sweep
    from xstage_tune.launches.device import Device
    from xstage_tune.report.figure import Figure
    from xstage_tune.store.facade import Store

Request = TypeVar("Request", contravariant=True)
Answer = TypeVar("Answer", covariant=True)


class Session(Protocol[Request, Answer]):
    """A use case that keeps what it measures, e.g. ``run_emulation``."""

    def __call__(
        self,
        device: Device,
        request: Request,
        store: Store,
        *,
        argv: Sequence[str],
        progress: Progress,
        record: Path | None,
        force: bool,
    ) -> Answer: ...


class SweepRequest(Protocol):
    """A request that may vary one quantity."""

    @property
    def sweep(self) -> Sweep | None: ...


class SweepResult(Protocol):
    """The answer of a run to such a request."""

    @property
    def run_id(self) -> str: ...

    @property
    def request(self) -> SweepRequest: ...

    def keys(self) -> dict[str, Any]: ...


Result = TypeVar("Result", bound=SweepResult)


def notify(message: str) -> None:
    """Say something on stderr that is no error."""
    print(f"xstage-tune: {printable(message)}", file=sys.stderr)


def warn(message: str, hint: str = "") -> None:
    """Say on stderr what a user must know of a result, whatever form that is written in."""
    notify(f"warning: {message}")
    if hint:
        print(f"  try: {printable(hint)}", file=sys.stderr)


def run_session(
    session: Session[Request, Answer],
    activity: str,
    device: Device,
    request: Request,
    store: Store,
    record: Path | None = None,
    force: bool = False,
) -> Answer:
    """Run a session under this process's command line; ``activity`` names it beside its progress."""
    from xstage_tune.base.redaction import command_line
    from xstage_tune.report.progress import SweepProgress

    with SweepProgress(activity) as progress:
        return session(
            device,
            request,
            store,
            argv=command_line(),
            progress=progress,
            record=record,
            force=force,
        )


def show_result(
    result: Result,
    output: OutputFormat,
    report: Callable[[Result], RenderableType],
    sweep_figure: Callable[[Result], Figure],
) -> None:
    """Write a result to stdout: as JSON, or as its tables, the figure of its sweep and its run."""
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.report.tables import result_console
    from xstage_tune.report.terminal_plot import TerminalPlot

    if output is OutputFormat.JSON:
        emit_json(result.keys())
        return
    console = result_console()
    console.print(report(result))
    if result.request.sweep is not None:
        console.print(TerminalPlot(sweep_figure(result)))
    console.print(f"run {result.run_id}", markup=False)
