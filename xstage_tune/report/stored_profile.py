"""A profile run rebuilt from the launches that the store kept."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from xstage_tune.base.errors import UsageError
from xstage_tune.experiments.timing.prediction import predict
from xstage_tune.experiments.timing.request import request_from_keys
from xstage_tune.experiments.timing.result import Outcome, ProfileResult, conclude
from xstage_tune.families.attention_a2a.timing import Figures
from xstage_tune.store.facade import Store
from xstage_tune.store.kept_run import DEVICE_KEY
from xstage_tune.store.launches import ProfilePoint, StoredLaunch
from xstage_tune.store.models import Run

_FIGURES: TypeAdapter[Figures] = TypeAdapter(Figures)


def rebuild_profile(store: Store, run: Run) -> ProfileResult:
    """The result of a run of ``profile``, of the launches that it came to; predictions are made anew.

    Raises:
        UsageError: the run kept no launches, or is of a version that this one does not read.
        StoreError: the database failed.
    """
    launches = store.launches(run.id)
    if not launches:
        raise UsageError(f"run {run.id} has no launches: it is {run.status}", "profile again")
    request = request_from_keys(run.parameters, f"run {run.id}")
    return conclude(
        request,
        [_outcome(launch) for launch in launches],
        {value: predict(request, value) for value in request.values()},
        run_id=run.id,
        device=run.parameters[DEVICE_KEY],
        device_name=run.environment.gpu_name,
        throttled_launches=sum(launch.info.throttled for launch in launches),
    )


def _outcome(launch: StoredLaunch) -> Outcome:
    assert isinstance(launch.point, ProfilePoint)
    try:
        figures = _FIGURES.validate_python(launch.measured)
    except ValidationError:
        raise UsageError(
            f"run {launch.run_id}, launch {launch.sequence}: its figures are of another version",
            "profile again",
        ) from None
    return Outcome(launch.point.label, launch.point.implementation, figures, launch.verification)
