"""``export``: a study's tuned config as a file for a kernel, a server or another tuner."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xstage_tune.commands._completion import study_ids
from xstage_tune.commands._next_steps import after_export
from xstage_tune.commands._options import StoreOption
from xstage_tune.commands._targets import ForceOption, StudyPlatformOption
from xstage_tune.export.names import ExportFormat


def export(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write.")],
    to: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            help="json, toml: for xstage_tune.lookup; header: C++ constexprs; kernel-tuner, t4: all trials.",
        ),
    ] = ExportFormat.JSON,
    study: Annotated[
        str, typer.Option("--study", metavar="ID|latest", autocompletion=study_ids, help="Study to export.")
    ] = "latest",
    platform: StudyPlatformOption = None,
    force: ForceOption = False,
    store: StoreOption = None,
) -> None:
    """Write the config that a search found, with what it reached and what it rests on."""
    from xstage_tune.export.study import export_study
    from xstage_tune.report.format import duration
    from xstage_tune.report.tables import result_console
    from xstage_tune.store.facade import Store

    with Store.open(store, create=False) as opened:
        tuned = export_study(opened, study, to, output, platform=platform, force=force)
    objective = tuned.objective
    result_console().print(
        f"{output}: {tuned.workload.name} on {tuned.platform.name}, {objective.quantity} "
        f"{duration(objective.ns)} {objective.basis} on {objective.device}, "
        f"default {duration(objective.default_ns)}, bound {duration(objective.bound_ns)}"
    )
    after_export(tuned, to, output)
