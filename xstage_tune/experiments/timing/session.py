"""A profile run whose every launch is kept: device, store and recording around the procedure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xstage_tune.base.progress import Progress, phase
from xstage_tune.experiments.timing.prediction import predict
from xstage_tune.experiments.timing.procedure import profile
from xstage_tune.experiments.timing.request import ProfileRequest
from xstage_tune.experiments.timing.result import Outcome, ProfileResult, conclude
from xstage_tune.families.attention_a2a.recording import PROFILE, RecordedLaunch, record_launch
from xstage_tune.families.attention_a2a.timing import ProfileDevice, ProfileLaunch
from xstage_tune.launches.archive import ArchiveWriter
from xstage_tune.launches.launch_recording import LaunchManifest
from xstage_tune.store.facade import Store
from xstage_tune.store.kept_run import kept_launches
from xstage_tune.store.runs import RunWriter


def run_profile(
    device: ProfileDevice,
    request: ProfileRequest,
    store: Store,
    *,
    argv: Sequence[str],
    progress: Progress,
    record: Path | None = None,
    force: bool = False,
) -> ProfileResult:
    """Profile, keeping every launch in the store before anything is concluded from it.

    Args:
        record: file to record the run to, for replay.
        force: whether ``record`` may replace a file.

    Raises:
        RunInterrupted: the user stopped it; what was measured is in the store.
        DeviceError, FindingError, UsageError, StoreError: as the parts raise them; likewise.
    """
    # First, since a platform that lacks something is found in a second and a sweep takes minutes.
    with phase("predicting"):
        predictions = {value: predict(request, value) for value in request.values()}
    device_name = device.describe().name
    kept = kept_launches(device, request, store, PROFILE, argv=argv, record=record, force=force)
    with kept as (run, recording):
        keeper = _Keeper(run, recording, progress)
        profile(device, request, keeper)
    return conclude(
        request,
        keeper.outcomes,
        predictions,
        run_id=run.id,
        device=device.identity,
        device_name=device_name,
        throttled_launches=keeper.throttled,
    )


class _Keeper:
    """Keeps each launch as soon as it is made."""

    def __init__(
        self,
        run: RunWriter,
        recording: ArchiveWriter[LaunchManifest[RecordedLaunch]] | None,
        progress: Progress,
    ) -> None:
        self._run, self._recording, self._progress = run, recording, progress
        self.outcomes: list[Outcome] = []
        self.throttled = 0

    def planned(self, total_launches: int) -> None:
        """See ``ProfileObserver``."""
        self._progress.planned(total_launches)

    def done(self, launch: ProfileLaunch) -> None:
        """See ``ProfileObserver``."""
        self._run.add_profile(self._run.launches, launch)
        if self._recording is not None:
            record_launch(self._recording, launch)
        label = launch.case.label
        self.outcomes.append(Outcome(label, launch.implementation, launch.figures, launch.verification))
        self.throttled += launch.launch.throttled
        self._progress.advance(f"{launch.implementation}{f', {label}' if label else ''}")
