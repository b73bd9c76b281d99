"""A calibration whose every launch is kept: device, store and recording around the procedure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from xstage_tune.base.progress import Progress
from xstage_tune.calibration.procedure import calibrate
from xstage_tune.calibration.request import CalibrationRequest
from xstage_tune.calibration.result import CalibrationResult
from xstage_tune.launches.archive import ArchiveWriter, new_archive
from xstage_tune.launches.burst_recording import (
    CALIBRATION,
    Manifest,
    RecordedRequest,
    new_manifest,
    record_run,
)
from xstage_tune.launches.device import BurstDevice, BurstRun, CopyRate
from xstage_tune.store.facade import Store
from xstage_tune.store.kept_run import kept_run
from xstage_tune.store.process import current_process
from xstage_tune.store.runs import RunWriter


@dataclass(frozen=True, slots=True)
class StoredCalibration:
    """A calibration and the run of the store that holds its launches and its fit."""

    run_id: str
    result: CalibrationResult


def run_calibration(
    device: BurstDevice,
    request: CalibrationRequest,
    store: Store,
    *,
    argv: Sequence[str],
    progress: Progress,
    record: Path | None = None,
    force: bool = False,
) -> StoredCalibration:
    """Calibrate, keeping every launch in the store before anything is concluded from it.

    Args:
        record: file to record the run to, for replay.
        force: whether ``record`` may replace a file.

    Raises:
        RunInterrupted: the user stopped the sweep; what was measured is in the store.
        DeviceError, FindingError, UsageError, StoreError: as the parts raise them; likewise.
    """
    description = device.describe()
    manifest = new_manifest(description, _recorded(request))
    recording = new_archive(record, CALIBRATION, manifest, force=force) if record is not None else None
    begun = store.begin_run(
        kind=CALIBRATION.command,
        argv=argv,
        device=description,
        seed=request.seed,
        parameters=asdict(request),
        path=request.path,
    )
    with kept_run(store, begun, recording) as (run, recorded):
        device.label_launches(run.id)
        calibrated = calibrate(device, request, _Keeper(run, recorded, progress))
        host = "" if description.kind == "replay" else current_process().host
        result = _with_provenance(calibrated, run.id, argv, host)
        run.add_fit("calibration", _fit_payload(result))
    return StoredCalibration(run.id, result)


class _Keeper:
    """Keeps each run as soon as it is measured."""

    def __init__(self, run: RunWriter, recording: ArchiveWriter[Manifest] | None, progress: Progress) -> None:
        self._run, self._recording, self._progress = run, recording, progress

    def planned(self, total_points: int) -> None:
        """See ``CalibrationObserver``."""
        self._progress.planned(total_points)

    def copied(self, rate: CopyRate) -> None:
        """Keep the copy engine's rate."""
        self._run.add_fit("copy-rate", asdict(rate))
        if self._recording is not None:
            self._recording.manifest.copy_rates.append(rate)

    def measured(self, run: BurstRun) -> None:
        """See ``CalibrationObserver``."""
        self._run.add_launch(self._run.launches, run)
        if self._recording is not None:
            record_run(self._recording, run)
        point = run.point
        self._progress.advance(f"{point.mode} {point.flavour} K={point.producers} B={point.burst_bytes}")


def _recorded(request: CalibrationRequest) -> RecordedRequest:
    return RecordedRequest(request.path, request.flavours, request.budget, request.seed)


def _with_provenance(
    result: CalibrationResult, run_id: str, argv: Sequence[str], host: str
) -> CalibrationResult:
    """The result with its profile telling which command, run and measuring host it is from."""
    update = {"run_id": run_id, "argv": tuple(argv), "host": host}
    provenance = result.platform.provenance.model_copy(update=update)
    platform = result.platform.model_copy(update={"provenance": provenance})
    return replace(result, platform=platform)


def _fit_payload(result: CalibrationResult) -> dict[str, Any]:
    return {
        "platform": result.platform.model_dump(mode="json"),
        "findings": [asdict(finding) for finding in result.findings],
    }
