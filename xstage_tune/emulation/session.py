"""An emulation whose every launch is kept: device, store and recording around the procedure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from xstage_tune.configs.loader import config_keys
from xstage_tune.devices.skeleton_figures import LaunchFigures
from xstage_tune.devices.skeleton_recording import SkeletonRecordingWriter
from xstage_tune.devices.skeletons import SkeletonDevice, SkeletonRun
from xstage_tune.emulation.cases import cases_of
from xstage_tune.emulation.procedure import emulate
from xstage_tune.emulation.request import EmulationRequest
from xstage_tune.emulation.result import EmulationResult, conclude, was_throttled
from xstage_tune.errors import RunInterrupted
from xstage_tune.store.facade import Store
from xstage_tune.store.launches import skeleton_point
from xstage_tune.store.runs import RunWriter

KIND = "emulate"
#: Of a run's parameters: what ran the skeletons. The rest are the request's keys.
DEVICE_KEY = "device"


class Progress(Protocol):
    """Shows how far the launches are."""

    def planned(self, total: int) -> None:
        """Say how many there are."""
        ...

    def advance(self, label: str) -> None:
        """Count one as done."""
        ...


def run_emulation(
    device: SkeletonDevice,
    request: EmulationRequest,
    store: Store,
    *,
    argv: Sequence[str],
    progress: Progress,
    record: Path | None = None,
    force: bool = False,
) -> EmulationResult:
    """Emulate, keeping every launch in the store before anything is concluded from it.

    Args:
        record: file to record the run to, for replay.
        force: whether ``record`` may replace a file.

    Raises:
        RunInterrupted: the user stopped it; what was measured is in the store.
        DeviceError, FindingError, UsageError, StoreError: as the parts raise them; likewise.
    """
    description = device.describe()
    configs = {case.label: config_keys(case.config) for case in cases_of(request)}
    keeper: _Keeper | None = None
    try:
        with ExitStack() as stack:
            recording = None
            if record is not None:
                recording = stack.enter_context(
                    SkeletonRecordingWriter(record, description, device.identity, request.keys(), force=force)
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
            keeper = _Keeper(run, configs, recording, progress)
            device.label_launches(run.id)
            launches = emulate(device, request, keeper)
    except KeyboardInterrupt:
        raise RunInterrupted(_interrupted(keeper, store), "run the same command again") from None
    return conclude(
        request,
        launches,
        run_id=run.id,
        device=device.identity,
        device_name=description.name,
        throttled_launches=keeper.throttled,
    )


class _Keeper:
    """Keeps each launch as soon as it is measured."""

    def __init__(
        self,
        run: RunWriter,
        configs: Mapping[str, dict[str, Any]],
        recording: SkeletonRecordingWriter | None,
        progress: Progress,
    ) -> None:
        self._run, self._configs = run, configs
        self.run_id = run.id
        self._recording = recording
        self._progress = progress
        self.launches = 0
        self.throttled = 0

    def planned(self, total_launches: int) -> None:
        """See ``EmulationObserver``."""
        self._progress.planned(total_launches)

    def measured(self, repeat: int, run: SkeletonRun, figures: LaunchFigures) -> None:
        """See ``EmulationObserver``."""
        label = run.skeleton.label
        point = skeleton_point(run, self._configs[label], repeat)
        self._run.add_skeleton(self.launches, run, point, asdict(figures))
        self.launches += 1
        self.throttled += was_throttled(run.launch)
        if self._recording is not None:
            self._recording.add(run, figures)
        self._progress.advance(label)


def _interrupted(keeper: _Keeper | None, store: Store) -> str:
    if keeper is None:
        return "interrupted before the first launch"
    return (
        f"interrupted: {keeper.launches} launches are kept in run {keeper.run_id} of store {store.location}"
    )
