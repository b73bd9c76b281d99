"""An emulation whose every launch is kept: device, store and recording around the procedure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from xstage_tune.base.progress import Progress, phase
from xstage_tune.experiments.emulation.cases import cases_of
from xstage_tune.experiments.emulation.procedure import emulate
from xstage_tune.experiments.emulation.request import EmulationRequest
from xstage_tune.experiments.emulation.result import EmulationResult, conclude
from xstage_tune.families.config_files import config_keys
from xstage_tune.launches.archive import ArchiveWriter
from xstage_tune.launches.launch_recording import LaunchManifest
from xstage_tune.launches.skeleton_figures import LaunchFigures
from xstage_tune.launches.skeleton_recording import EMULATION, RecordedLaunch, record_launch
from xstage_tune.launches.skeletons import SkeletonDevice, SkeletonRun
from xstage_tune.store.facade import Store
from xstage_tune.store.kept_run import kept_launches
from xstage_tune.store.launches import skeleton_point
from xstage_tune.store.runs import RunWriter


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
    configs = {case.label: config_keys(case.config) for case in cases_of(request)}
    device_name = device.describe().name
    kept = kept_launches(device, request, store, EMULATION, argv=argv, record=record, force=force)
    with kept as (run, recording):
        keeper = _Keeper(run, configs, recording, progress)
        launches = emulate(device, request, keeper)
    with phase("predicting"):
        return conclude(
            request,
            launches,
            run_id=run.id,
            device=device.identity,
            device_name=device_name,
            throttled_launches=keeper.throttled,
        )


class _Keeper:
    """Keeps each launch as soon as it is measured."""

    def __init__(
        self,
        run: RunWriter,
        configs: Mapping[str, dict[str, Any]],
        recording: ArchiveWriter[LaunchManifest[RecordedLaunch]] | None,
        progress: Progress,
    ) -> None:
        self._run, self._configs = run, configs
        self._recording, self._progress = recording, progress
        self.throttled = 0

    def planned(self, total_launches: int) -> None:
        """See ``EmulationObserver``."""
        self._progress.planned(total_launches)

    def measured(self, repeat: int, run: SkeletonRun, figures: LaunchFigures) -> None:
        """See ``EmulationObserver``."""
        label = run.skeleton.label
        point = skeleton_point(run, self._configs[label], repeat)
        self._run.add_skeleton(self._run.launches, run, point, asdict(figures))
        self.throttled += run.launch.throttled
        if self._recording is not None:
            record_launch(self._recording, run, figures)
        self._progress.advance(label)
