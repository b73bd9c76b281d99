"""The command line: one typer app, one line a command."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import Annotated, NoReturn

import typer

from xstage_tune import __version__
from xstage_tune.commands import (
    audit,
    calibrate,
    doctor,
    emulate,
    export,
    platforms,
    profile,
    report,
    search,
    store,
    trace,
    workloads,
)
from xstage_tune.errors import DeviceError, ExitCode, XStageError

app = typer.Typer(
    name="xstage-tune",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.command("audit")(audit.audit)
app.command("calibrate")(calibrate.calibrate)
app.command("doctor")(doctor.doctor)
app.command("emulate")(emulate.emulate)
app.command("profile")(profile.profile)
app.command("search")(search.search)
app.command("export")(export.export)
app.command("report")(report.report)
app.command("trace")(trace.trace)
app.add_typer(platforms.app, name="platforms")
app.add_typer(store.app, name="store")
app.add_typer(workloads.app, name="workloads")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"xstage-tune {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Measure how a GPU's remote stores drain, and tune fused kernels by it."""


def entry() -> NoReturn:
    """The program: a reader that closes its pipe ends it, as it ends any other."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if sys.stdout is None:  # closed by the shell: there is nowhere to put a result
        report_error(DeviceError("standard output is closed", "redirect it to a file, or to /dev/null"))
        sys.exit(ExitCode.ENVIRONMENT)
    for stream in (sys.stdout, sys.stderr):  # a file's name need not be text
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    main()


def main() -> NoReturn:
    """Run the command line; every failure becomes one line on stderr and an exit code."""
    try:
        code = _run()
        sys.stdout.flush()
    except XStageError as error:
        report_error(error)
        code = error.exit_code
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        report_error(
            DeviceError(f"the system refused{where}: {error.strerror}", "free the disk, or see its owner")
        )
        code = ExitCode.ENVIRONMENT
    except Exception as error:
        if os.environ.get("XSTAGE_DEBUG"):
            raise
        kind = type(error).__name__
        report_error(
            XStageError(f"internal error: {kind}: {error}", "XSTAGE_DEBUG=1 shows where; please report it")
        )
        code = ExitCode.INTERNAL
    sys.exit(code)


def _run() -> int:
    """Exit code of the command; typer ends every command by ``SystemExit``."""
    try:
        app()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    if code == ExitCode.INTERRUPTED:
        print("xstage-tune: interrupted", file=sys.stderr)
    return code


def report_error(error: XStageError) -> None:
    """Print an error as users see it: what and where, then what to do."""
    print(f"xstage-tune: error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"  try: {error.hint}", file=sys.stderr)
