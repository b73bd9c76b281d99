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
from xstage_tune.commands._runs import notify, warn
from xstage_tune.commands._targets import ForceOption, StudyPlatformOption, UnfinishedOption
from xstage_tune.export.names import FRAMEWORKS, ExportFormat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xstage_tune.export.framework_study import FrameworkExport
    from xstage_tune.export.record import TunedConfig
    from xstage_tune.store.facade import Store


def export(
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="File to write; with --suite or --template, its folder."
        ),
    ],
    to: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            metavar="NAME",
            help="json, toml: for xstage_tune.lookup; header: C++ constexprs; kernel-tuner, t4: all trials; "
            "vllm-fused-moe, sglang-fused-moe, sglang-deepep: what these read, for a kernel of your own, by "
            "--template.",
        ),
    ] = ExportFormat.JSON,
    template: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="What of a space of your own goes under which key of a serving framework's file.",
        ),
    ] = None,
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
            help="Export all studies of a suite instead, a file each, or with --template an entry each; "
            "latest: the last one finished.",
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
    if (template is not None) != (to in FRAMEWORKS):
        raise UsageError(
            f"--format {to} needs --template" if template is None else f"--template is not for --format {to}",
            f"a template goes with {', '.join(sorted(FRAMEWORKS))}",
        )
    from xstage_tune.store.facade import Store

    with Store.open(store, create=False) as opened:
        if template is not None:
            from xstage_tune.export.framework_study import export_framework

            options = {"study": study, "suite": suite, "platform": platform}
            written = export_framework(
                opened, to, template, output, **options, force=force, unfinished=unfinished
            )
            _say_framework(written)
            return
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
    print(f"{printable(str(output))}: {len(written.exports)} files of suite {written.suite}")
    _say_unfinished(written.exports.values(), written.left_out)


def _say_framework(written: FrameworkExport) -> None:
    first = written.exports[0]
    tokens = ", ".join(str(count) for count in sorted(one.workload.token_count for one in written.exports))
    print(
        f"{printable(str(written.path))}: {first.workload.name} on {first.platform.name}, tokens {tokens}, "
        f"measured by {printable(first.objective.device)}"
    )
    gpu, device = first.platform.gpu, first.objective.device
    if gpu not in device:
        warn(f"the file is for {gpu}, which did not measure it: {printable(device)}")
    notify(f"what it rests on: {written.provenance}")
    _say_unfinished(written.exports, written.left_out)


def _say_unfinished(exports: Iterable[TunedConfig], left_out: tuple[str, ...]) -> None:
    marked = sum(tuned.objective.unfinished is not None for tuned in exports)
    if marked:
        notify(f"{marked} of them are of unfinished studies, and say so")
    if left_out:
        notify(f"left out: {len(left_out)} unfinished studies: {', '.join(left_out)}")
