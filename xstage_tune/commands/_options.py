"""Options that several commands share, so that they read and behave the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from xstage_tune.base.errors import UsageError
from xstage_tune.commands._completion import platform_names


class OutputFormat(StrEnum):
    """How a result is written to stdout."""

    TABLE = "table"
    JSON = "json"


FormatOption = Annotated[
    OutputFormat,
    typer.Option("--format", help="Result as a table to read, or as JSON alone on stdout."),
]

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FILE|URL",
        envvar="XSTAGE_STORE",
        help="SQLite file or database URL to keep results in.",
        show_default="the user's own store",
    ),
]

PlatformOption = Annotated[
    str | None,
    typer.Option(
        "--platform",
        "-p",
        metavar="NAME|FILE.toml",
        autocompletion=platform_names,
        help="Calibrated platform that the answer rests on.",
        show_default="your own, if exactly one fits this machine's GPU and the path",
    ),
]

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the workload, e.g. tokens=4096 (of a MoE layer: on each rank, its key "
        "tokens_per_rank; of an attention: the whole sequence); may be repeated.",
    ),
]


def the_only(values: list[str] | None, option: str) -> str | None:
    """The value of an option that makes no sense twice, where the last one would win unseen.

    Raises:
        UsageError: it was given more than once.
    """
    if not values:
        return None
    if len(values) > 1:
        raise UsageError(f"{option} is given {len(values)} times", f"one at a time: {option} {values[0]}")
    return values[0]
