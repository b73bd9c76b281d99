"""A profile run whose every launch is kept: device, store and recording around the procedure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xstage_tune.base.progress import Progress, phase
from xstage_tune.experiments.profiling.procedure import profile
from xstage_tune.experiments.profiling.request import TimingRequest
from xstage_tune.experiments.profiling.use import profile_use
from xstage_tune.launches.device import Device
from xstage_tune.store.facade import Store
from xstage_tune.store.kept_run import kept_launches


def run_profile(
    device: Device,
    request: TimingRequest,
    store: Store,
    *,
    argv: Sequence[str],
    progress: Progress,
    record: Path | None = None,
    force: bool = False,
) -> Any:
    """Profile, keeping every launch in the store before anything is concluded from it.

    Args:
        record: file to record the run to, for replay.
        force: whether ``record`` may replace a file.

    Returns:
        The result of the family's :class:`~xstage_tune.experiments.profiling.use.ProfileUse`.

    Raises:
        RunInterrupted: the user stopped it; what was measured is in the store.
        DeviceError, FindingError, UsageError, StoreError: as the parts raise them; likewise.
    """
    use = profile_use(request.workload.kind)
    # First, since a platform that lacks something is found in a second and a sweep takes minutes.
    with phase("predicting"):
        predictions = {value: use.predict(request, value) for value in request.values()}
    kept_run = kept_launches(
        device, request, store, "profile", argv=argv, progress=progress, record=record, force=force
    )
    with kept_run as kept:
        results = profile(kept, request, progress)
    return use.conclude(
        request,
        results,
        predictions,
        run_id=kept.run_id,
        device=device.identity,
        device_name=device.describe().name,
        throttled_launches=kept.throttled,
    )
