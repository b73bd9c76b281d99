"""The typer app: one line a command."""

from __future__ import annotations

from typing import Annotated

import typer

from xstage_tune.base.progress import be_quiet
from xstage_tune.base.version import __version__
from xstage_tune.commands import (
    audit,
    build,
    calibrate,
    doctor,
    emulate,
    export,
    import_spans,
    init_space,
    platforms,
    profile,
    report,
    search,
    store,
    trace,
    verify,
    workloads,
)
from xstage_tune.commands._help import GroupOfOwnFiles, add_help

app = typer.Typer(
    name="xstage-tune",
    cls=GroupOfOwnFiles,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=True,
)
app.command("audit")(audit.audit)
app.command("calibrate")(calibrate.calibrate)
app.command("doctor")(doctor.doctor)
app.command("emulate")(emulate.emulate)
app.command("profile")(profile.profile)
app.command("build")(build.build)
app.command("init-space")(init_space.init_space)
app.command("search")(search.search)
app.command("export")(export.export)
app.command("verify")(verify.verify)
app.command("import")(import_spans.import_spans)
app.command("report")(report.report)
app.command("trace")(trace.trace)
app.add_typer(platforms.app, name="platforms")
app.add_typer(store.app, name="store")
app.add_typer(workloads.app, name="workloads")
add_help(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"xstage-tune {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            envvar="XSTAGE_QUIET",
            callback=be_quiet,
            help="No progress and no advice on stderr, only warnings and errors.",
        ),
    ] = False,
) -> None:
    """Measure how a GPU's remote stores drain, and tune fused kernels by it."""
