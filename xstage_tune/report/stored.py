"""The one path from a stored run or study to its page."""

from __future__ import annotations

from xstage_tune.base.errors import UsageError
from xstage_tune.calibration.stored import rebuild_calibration
from xstage_tune.experiments.emulation.stored import rebuild_emulation
from xstage_tune.experiments.profiling.stored import rebuild_profile
from xstage_tune.experiments.study import analyse
from xstage_tune.launches.imported import IMPORT
from xstage_tune.report.calibration_page import render_run
from xstage_tune.report.emulation_page import render_emulation
from xstage_tune.report.imported_page import render_imported
from xstage_tune.report.profiles import profile_view
from xstage_tune.report.study_page import render_study
from xstage_tune.search.study_case import load_study
from xstage_tune.store.facade import Store
from xstage_tune.store.process import has_ended

_KINDS = ("calibrate", "emulate", "profile", IMPORT)


def run_page(store: Store, run_id: str) -> str:
    """The page of a run of one of these kinds; ``latest`` is the last one of them that finished.

    Raises:
        UsageError: there is none, it is of another kind, or it kept too little, or nothing yet.
        FindingError: the launches of a calibration allow no fit.
        StoreError: what is stored is damaged, or the database failed.
    """
    run = store.run(run_id, lambda run: run.kind in _KINDS)
    if run.kind not in _KINDS:
        raise UsageError(
            f"run {run.id} is of kind '{run.kind}', not one of {', '.join(_KINDS)}",
            "report its study with --study, or show its spans: xstage-tune trace",
        )
    launches = store.launches(run.id)
    if run.status == "running" and not has_ended(run.process) and not launches:
        raise UsageError(
            f"run {run.id} has measured nothing yet: it is running, in process {run.pid} on {run.host}",
            "wait until it ends",
        )
    if run.kind == "emulate":
        return render_emulation(run, rebuild_emulation(store, run), launches)
    if run.kind == IMPORT:
        return render_imported(run, launches)
    if run.kind == "profile":
        result = rebuild_profile(store, run)
        return profile_view(result).page(run, result, launches)
    return render_run(run, rebuild_calibration(store, run), launches)


def study_page(store: Store, study_id: str, platform: str | None = None, *, unfinished: bool = False) -> str:
    """The page of a study; as :func:`load_study` finds it.

    Raises:
        UsageError: no such study, it has no result, or its platform is not found or not the one searched on.
        StoreError: what is stored is damaged, or the database failed.
    """
    return render_study(analyse(load_study(store, study_id, platform, unfinished=unfinished)))
