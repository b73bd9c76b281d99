"""``export``: a study's tuned config as a file for a kernel, a server or another tuner."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xstage_tune.base.errors import UsageError
from xstage_tune.base.text import printable
from xstage_tune.commands._completion import study_ids
from xstage_tune.commands._next_steps import after_export
from xstage_tune.commands._options import StoreOption
from xstage_tune.commands._runs import notify
from xstage_tune.commands._targets import ForceOption, StudyPlatformOption, UnfinishedOption
from xstage_tune.export.names import ExportFormat

if TYPE_CHECKING:
    from xstage_tune.store.facade import Store


def export(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="File to write; with --suite, its folder."),
    ],
    to: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            help="json, toml: for xstage_tune.lookup; header: C++ constexprs; kernel-tuner, t4: all trials.",
        ),
    ] = ExportFormat.JSON,
    study: Annotated[
        str | None,
        typer.Option(
            "--study",
            metavar="ID|latest",
            autocompletion=study_ids,
            help="Study to export; latest: the last one finished, latest-any: the last one begun.",
            show_default="latest",
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            metavar="ID|latest",
            help="Export all studies of a suite instead, a file each; latest: the last one finished.",
        ),
    ] = None,
    platform: StudyPlatformOption = None,
    unfinished: UnfinishedOption = False,
    force: ForceOption = False,
    store: StoreOption = None,
) -> None:
    """Write the config that a search found, with what it reached and what it rests on."""
    if suite is not None and (study is not None or platform is not None):
        raise UsageError("--suite takes no --study and no --platform", "leave them out")
    from xstage_tune.store.facade import Store

    with Store.open(store, create=False) as opened:
        if suite is not None:
            _export_suite(opened, suite, to, output, force, unfinished)
            return
        _export_study(opened, study or "latest", to, output, platform, force, unfinished)


def _export_study(
    store: Store,
    study: str,
    to: ExportFormat,
    output: Path,
    platform: str | None,
    force: bool,
    unfinished: bool,
) -> None:
    from xstage_tune.base.number_format import duration
    from xstage_tune.export.study import export_study
    from xstage_tune.report.tables import result_console

    tuned = export_study(store, study, to, output, platform=platform, force=force, unfinished=unfinished)
    objective = tuned.objective
    result_console().print(
        f"{printable(str(output))}: {tuned.workload.name} on {tuned.platform.name}, {objective.quantity} "
        f"{duration(objective.ns)} {objective.basis} on {objective.device}, "
        f"default {duration(objective.default_ns)}, bound {duration(objective.bound_ns)}"
    )
    after_export(tuned, to, output)
    if objective.unfinished:
        notify(
            f"study {tuned.provenance.study_id} is unfinished, and the file says so: {objective.unfinished}"
        )


def _export_suite(
    store: Store, suite: str, to: ExportFormat, output: Path, force: bool, unfinished: bool
) -> None:
    from xstage_tune.export.study import export_suite

    written = export_suite(store, suite, to, output, force=force, unfinished=unfinished)
    marked = sum(tuned.objective.unfinished is not None for tuned in written.exports.values())
    print(f"{printable(str(output))}: {len(written.exports)} files of suite {written.suite}")
    if marked:
        notify(f"{marked} of them are of unfinished studies, and say so")
    if written.left_out:
        notify(f"left out: {len(written.left_out)} unfinished studies: {', '.join(written.left_out)}")
