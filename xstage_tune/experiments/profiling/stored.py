"""A profile run rebuilt from the launches that the store kept."""

from __future__ import annotations

from typing import Any

from xstage_tune.base.errors import UsageError
from xstage_tune.experiments.profiling.use import LaunchResult, read_request
from xstage_tune.launches.device import LaunchKind
from xstage_tune.store.facade import Store
from xstage_tune.store.kept_run import DEVICE_KEY
from xstage_tune.store.launches import StoredLaunch
from xstage_tune.store.models import Run


def rebuild_profile(store: Store, run: Run) -> Any:
    """The result of a run of ``profile``, of the launches that it came to; predictions are made anew.

    Raises:
        UsageError: the run kept no launches, or is of a version that this one does not read.
        StoreError: the database failed.
    """
    launches = store.launches(run.id)
    if not launches:
        raise UsageError(f"run {run.id} has no launches: it is {run.status}", "profile again")
    use, request = read_request(run.parameters, f"run {run.id}")
    return use.conclude(
        request,
        [_result(launch, use.kind) for launch in launches],
        {value: use.predict(request, value) for value in request.values()},
        run_id=run.id,
        device=run.parameters[DEVICE_KEY],
        device_name=run.environment.gpu_name,
        throttled_launches=sum(launch.info.throttled for launch in launches),
    )


def _result(launch: StoredLaunch, kind: LaunchKind[Any, Any, Any]) -> LaunchResult:
    point = launch.point_as(kind)
    return LaunchResult(point.label, point.implementation, launch.figures_as(kind), launch.verification)
