"""``verify``: does a deployed config still hold on this machine?"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from xstage_tune.base.errors import ExitCode
from xstage_tune.commands._options import FormatOption, OutputFormat


def verify(
    export: Annotated[Path, typer.Argument(metavar="EXPORT", help="A tuned config: .json or .toml.")],
    device: Annotated[
        str,
        typer.Option(help="auto (the first GPU), cuda[:N], or replay[:NAME|FILE.xstune], a space on record."),
    ] = "auto",
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Measure an exported config and the default on this machine: same, better, worse, or not comparable.

    Both outputs are checked, then they run in turn at the same clocks. The exit code is 1 where it is worse:
    it does not run, is slower than the default, or gains 2% less over it than when it was exported.
    """
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.devices.opener import open_measured_kernels
    from xstage_tune.devices.spec import VERIFY
    from xstage_tune.export.verify import read_measurable
    from xstage_tune.export.verify import verify as measure
    from xstage_tune.report.search_tables import verification_report
    from xstage_tune.report.tables import result_console

    tuned = read_measurable(export)
    with closing(open_measured_kernels(VERIFY.parse(device), tuned.workload)) as kernels:
        found = measure(tuned, kernels)
    if output is OutputFormat.JSON:
        emit_json(found.keys())
    else:
        result_console().print(verification_report(found))
    if found.verdict == "worse":
        raise typer.Exit(ExitCode.FINDING)
