"""``build``: compile the kernels of a workload's space, on any machine."""

from __future__ import annotations

from typing import Annotated

import typer

from xstage_tune.base.errors import ExitCode
from xstage_tune.commands._completion import workload_names
from xstage_tune.commands._options import FormatOption, OutputFormat, PlatformOption, SetOption
from xstage_tune.commands._runs import notify


def build(
    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            "-w",
            metavar="NAME|FILE.toml",
            autocompletion=workload_names,
            help="Workload whose kernels to compile.",
        ),
    ],
    platform: PlatformOption = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Compilers side by side.", show_default="one less than cores"),
    ] = None,
    overrides: SetOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Compile every kernel that a search of a workload may time; needs no GPU, and the cache may travel.

    A search compiles what it comes to by itself. Done before, no time of the GPU's machine is spent on it:
    copy the folder that is printed, or set XSTAGE_CACHE_DIR. The compiler must be the same version there.
    """
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.devices.platform_choice import choose_platform
    from xstage_tune.families.workload_files import load_workload
    from xstage_tune.report.progress import SweepProgress
    from xstage_tune.report.search_tables import build_report
    from xstage_tune.report.tables import result_console
    from xstage_tune.search.build import build_space_kernels
    from xstage_tune.search.space import build_space

    layer = load_workload(workload, overrides or ())
    space = build_space(layer, choose_platform(platform, notify))
    with SweepProgress("compiling") as progress:
        result = build_space_kernels(layer, space.configs, progress, processes=processes)
    if output is OutputFormat.JSON:
        emit_json(result.keys())
    else:
        result_console().print(build_report(result))
    if result.faults:
        raise typer.Exit(ExitCode.FINDING)
