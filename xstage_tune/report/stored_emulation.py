"""An emulation rebuilt from the launches that the store kept."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields

from xstage_tune.base.errors import UsageError
from xstage_tune.experiments.emulation.request import request_from_keys
from xstage_tune.experiments.emulation.result import EmulationResult, conclude
from xstage_tune.launches.skeleton_figures import LaunchFigures
from xstage_tune.store.facade import Store
from xstage_tune.store.kept_run import DEVICE_KEY
from xstage_tune.store.launches import SkeletonPoint, StoredLaunch
from xstage_tune.store.models import Run

_FIGURES = frozenset(field.name for field in fields(LaunchFigures))


def rebuild_emulation(store: Store, run: Run) -> EmulationResult:
    """The result of a run of ``emulate``, of the launches that it came to; predictions are made anew.

    Raises:
        UsageError: the run kept no launches, or is of a version whose request this one does not read.
        StoreError: the database failed.
    """
    launches = store.launches(run.id)
    if not launches:
        raise UsageError(f"run {run.id} has no launches: it is {run.status}", "emulate again")
    measured: dict[str, list[LaunchFigures]] = defaultdict(list)
    for launch in launches:
        measured[_label(launch)].append(_figures(launch))
    origin = f"run {run.id}"
    return conclude(
        request_from_keys(run.parameters, origin),
        measured,
        run_id=run.id,
        device=run.parameters[DEVICE_KEY],
        device_name=run.environment.gpu_name,
        throttled_launches=sum(launch.info.throttled for launch in launches),
    )


def _label(launch: StoredLaunch) -> str:
    return launch.point.label if isinstance(launch.point, SkeletonPoint) else ""


def _figures(launch: StoredLaunch) -> LaunchFigures:
    stored = launch.measured or {}
    if stored.keys() != _FIGURES:
        raise UsageError(
            f"run {launch.run_id}, launch {launch.sequence}: its figures are of another version",
            "emulate again",
        )
    return LaunchFigures(**stored)
