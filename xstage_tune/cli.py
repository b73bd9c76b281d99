"""The command line: one typer app, one line a command."""

from __future__ import annotations

import sys

import typer

from xstage_tune.commands import (
    audit,
    calibrate,
    doctor,
    export,
    platforms,
    report,
    search,
    store,
    trace,
    workloads,
)
from xstage_tune.errors import ExitCode, XStageError

app = typer.Typer(
    name="xstage-tune",
    help="Measure how a GPU's remote stores drain, and tune fused kernels by it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.command("audit")(audit.audit)
app.command("calibrate")(calibrate.calibrate)
app.command("doctor")(doctor.doctor)
app.command("search")(search.search)
app.command("export")(export.export)
app.command("report")(report.report)
app.command("trace")(trace.trace)
app.add_typer(platforms.app, name="platforms")
app.add_typer(store.app, name="store")
app.add_typer(workloads.app, name="workloads")


def main() -> None:
    """Run the command line; every failure becomes one line on stderr and an exit code."""
    try:
        app()
    except XStageError as error:
        report_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("xstage-tune: interrupted", file=sys.stderr)
        sys.exit(ExitCode.INTERRUPTED)


def report_error(error: XStageError) -> None:
    """Print an error as users see it: what and where, then what to do."""
    print(f"xstage-tune: error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"  try: {error.hint}", file=sys.stderr)
