"""``report``: a run or a study as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xstage_tune.commands._options import StoreOption
from xstage_tune.commands._targets import (
    ForceOption,
    RunOption,
    StudyOption,
    StudyPlatformOption,
    UnfinishedOption,
    check_source,
    check_target,
)

if TYPE_CHECKING:
    from xstage_tune.store.facade import Store


def report(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.html", help="Page to write.")],
    run: RunOption = None,
    study: StudyOption = None,
    platform: StudyPlatformOption = None,
    unfinished: UnfinishedOption = False,
    force: ForceOption = False,
    store: StoreOption = None,
) -> None:
    """Write what a calibration, an emulation or a profile measured, or a study found, as one HTML page.

    A calibration: its four panels and every number. An emulation: each schedule beside its predictions, its
    spans. A profile: the fused attention beside the serial ones and its predictions, its spans. A study: the
    design test, the search against its bound, the answer beside its baselines, timelines, span distributions.
    Nothing is fetched to read it.
    """
    from xstage_tune.base.files import write_text
    from xstage_tune.report.progress import SweepProgress
    from xstage_tune.store.facade import Store

    check_source(run, study, platform, unfinished=unfinished)
    check_target(output, ".html", force=force)
    with Store.open(store, create=False) as opened, SweepProgress("drawing"):
        if run is not None:
            text = _run_page(opened, run)
        else:
            assert study is not None
            text = _study_page(opened, study, platform, unfinished)
    write_text(output, text, force=force)
    print(output)


def _run_page(store: Store, run_id: str) -> str:
    from xstage_tune.report.emulation_page import render_emulation
    from xstage_tune.report.profile_page import render_profile
    from xstage_tune.report.run_report import render_run
    from xstage_tune.report.stored_calibration import rebuild_calibration
    from xstage_tune.report.stored_emulation import rebuild_emulation
    from xstage_tune.report.stored_profile import rebuild_profile
    from xstage_tune.report.stored_runs import find_reportable

    run = find_reportable(store, run_id)
    launches = store.launches(run.id)
    if run.kind == "emulate":
        return render_emulation(run, rebuild_emulation(store, run), launches)
    if run.kind == "profile":
        return render_profile(run, rebuild_profile(store, run), launches)
    return render_run(run, rebuild_calibration(store, run), launches)


def _study_page(store: Store, study_id: str, platform: str | None, unfinished: bool) -> str:
    from xstage_tune.report.study_case import load_study
    from xstage_tune.report.study_report import render_study

    return render_study(load_study(store, study_id, platform, unfinished=unfinished))
