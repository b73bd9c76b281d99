"""Options that several commands share, so that they read and behave the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from math import isfinite
from typing import Annotated, Any, cast

import typer
from annotated_types import Interval

from xstage_tune.base.errors import UsageError
from xstage_tune.commands._completion import config_choices, platform_names, workload_names


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


def number(limits: Interval, help: str, show_default: str | bool = True) -> Any:
    """An option with the limits of its field in a request."""
    least, most = cast("tuple[float, float]", (limits.ge, limits.le))
    return typer.Option(
        min=least, max=most, help=help, show_default=show_default, callback=_refuse_not_finite
    )


def _refuse_not_finite(value: float | None) -> float | None:
    """What is no number passes every limit."""
    if value is not None and not isfinite(value):
        raise typer.BadParameter(f"{value:g} should be a finite number")
    return value


def workload_option(help: str) -> Any:
    return typer.Option(
        "--workload", "-w", metavar="NAME|FILE.toml", autocompletion=workload_names, help=help
    )


def platform_option(help: str, show_default: str) -> Any:
    return typer.Option(
        "--platform",
        "-p",
        metavar="NAME|FILE.toml",
        autocompletion=platform_names,
        help=help,
        show_default=show_default,
    )


def config_option(help: str) -> Any:
    return typer.Option(metavar="FILE|default|study:ID", autocompletion=config_choices, help=help)


OWN_PLATFORM = "your own, if exactly one fits this machine's GPU and the path"
PlatformOption = Annotated[
    str | None, platform_option("Calibrated platform that the answer rests on.", OWN_PLATFORM)
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
