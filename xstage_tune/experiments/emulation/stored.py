"""An emulation rebuilt from the launches that the store kept."""

from __future__ import annotations

from collections import defaultdict

from xstage_tune.base.errors import UsageError
from xstage_tune.experiments.emulation.request import EmulationRequest
from xstage_tune.experiments.emulation.result import EmulationResult, conclude
from xstage_tune.launches.skeleton_figures import LaunchFigures
from xstage_tune.launches.skeletons import SKELETONS
from xstage_tune.store.facade import Store
from xstage_tune.store.kept_run import DEVICE_KEY
from xstage_tune.store.models import Run


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
        measured[launch.point_as(SKELETONS).label].append(launch.figures_as(SKELETONS))
    origin = f"run {run.id}"
    return conclude(
        EmulationRequest.read(run.parameters, origin),
        measured,
        run_id=run.id,
        device=run.parameters[DEVICE_KEY],
        device_name=run.environment.gpu_name,
        throttled_launches=sum(launch.info.throttled for launch in launches),
    )
