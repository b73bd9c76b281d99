"""A profile run rebuilt from the launches that the store kept."""

from __future__ import annotations

from xstage_tune.base.errors import UsageError
from xstage_tune.experiments.timing.prediction import predict
from xstage_tune.experiments.timing.procedure import LaunchResult
from xstage_tune.experiments.timing.request import ProfileRequest
from xstage_tune.experiments.timing.result import ProfileResult, conclude
from xstage_tune.families.attention_a2a.timing import ATTENTIONS
from xstage_tune.store.facade import Store
from xstage_tune.store.kept_run import DEVICE_KEY
from xstage_tune.store.launches import StoredLaunch
from xstage_tune.store.models import Run


def rebuild_profile(store: Store, run: Run) -> ProfileResult:
    """The result of a run of ``profile``, of the launches that it came to; predictions are made anew.

    Raises:
        UsageError: the run kept no launches, or is of a version that this one does not read.
        StoreError: the database failed.
    """
    launches = store.launches(run.id)
    if not launches:
        raise UsageError(f"run {run.id} has no launches: it is {run.status}", "profile again")
    request = ProfileRequest.read(run.parameters, f"run {run.id}")
    return conclude(
        request,
        [_result(launch) for launch in launches],
        {value: predict(request, value) for value in request.values()},
        run_id=run.id,
        device=run.parameters[DEVICE_KEY],
        device_name=run.environment.gpu_name,
        throttled_launches=sum(launch.info.throttled for launch in launches),
    )


def _result(launch: StoredLaunch) -> LaunchResult:
    point = launch.point_as(ATTENTIONS)
    return LaunchResult(point.label, point.implementation, launch.figures_as(ATTENTIONS), launch.verification)
