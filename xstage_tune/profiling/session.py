"""A profile run whose every launch is kept: device, store and recording around the procedure."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from xstage_tune.devices.attention_profiles import ProfileDevice, ProfileLaunch
from xstage_tune.devices.attention_recording import ProfileRecordingWriter
from xstage_tune.emulation.result import was_throttled
from xstage_tune.errors import RunInterrupted
from xstage_tune.profiling.prediction import predict
from xstage_tune.profiling.procedure import profile
from xstage_tune.profiling.request import ProfileRequest
from xstage_tune.profiling.result import Outcome, ProfileResult, conclude
from xstage_tune.store.facade import Store
from xstage_tune.store.runs import RunWriter

KIND = "profile"
#: Of a run's parameters: what ran the kernels. The rest are the request's keys.
DEVICE_KEY = "device"


class Progress(Protocol):
    """Shows how far the launches are."""

    def planned(self, total: int) -> None:
        """Say how many there are."""
        ...

    def advance(self, label: str) -> None:
        """Count one as done."""
        ...


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
    predictions = {value: predict(request, value) for value in request.values()}
    description = device.describe()
    keeper: _Keeper | None = None
    try:
        with ExitStack() as stack:
            recording = None
            if record is not None:
                recording = stack.enter_context(
                    ProfileRecordingWriter(record, description, device.identity, request.keys(), force=force)
                )
            run = stack.enter_context(
                store.begin_run(
                    kind=KIND,
                    argv=argv,
                    device=description,
                    seed=request.seed,
                    parameters={**request.keys(), DEVICE_KEY: device.identity},
                    path=request.path,
                )
            )
            keeper = _Keeper(run, recording, progress)
            device.label_launches(run.id)
            profile(device, request, keeper)
    except KeyboardInterrupt:
        raise RunInterrupted(_interrupted(keeper, store), "run the same command again") from None
    return conclude(
        request,
        keeper.outcomes,
        predictions,
        run_id=run.id,
        device=device.identity,
        device_name=description.name,
        throttled_launches=keeper.throttled,
    )


class _Keeper:
    """Keeps each launch as soon as it is made."""

    def __init__(self, run: RunWriter, recording: ProfileRecordingWriter | None, progress: Progress) -> None:
        self._run, self._recording, self._progress = run, recording, progress
        self.run_id = run.id
        self.outcomes: list[Outcome] = []
        self.throttled = 0

    def planned(self, total_launches: int) -> None:
        """See ``ProfileObserver``."""
        self._progress.planned(total_launches)

    def done(self, launch: ProfileLaunch) -> None:
        """See ``ProfileObserver``."""
        self._run.add_profile(len(self.outcomes), launch)
        if self._recording is not None:
            self._recording.add(launch)
        label = launch.case.label
        self.outcomes.append(Outcome(label, launch.implementation, launch.figures, launch.verification))
        self.throttled += was_throttled(launch.launch)
        self._progress.advance(f"{launch.implementation}{f', {label}' if label else ''}")


def _interrupted(keeper: _Keeper | None, store: Store) -> str:
    if keeper is None:
        return "interrupted before the first launch"
    return (
        f"interrupted: {len(keeper.outcomes)} launches are kept in run {keeper.run_id} of store "
        f"{store.location}"
    )
