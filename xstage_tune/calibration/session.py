"""A calibration whose every launch is kept: device, store and recording around the procedure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from xstage_tune.base.progress import Progress
from xstage_tune.base.redaction import redacted_arguments
from xstage_tune.calibration.procedure import calibrate
from xstage_tune.calibration.request import CalibrationRequest
from xstage_tune.calibration.result import CalibrationResult
from xstage_tune.launches.device import Device
from xstage_tune.store.facade import Store
from xstage_tune.store.kept_run import kept_launches
from xstage_tune.store.process import current_process


@dataclass(frozen=True, slots=True)
class StoredCalibration:
    """A calibration and the run of the store that holds its launches and its fit."""

    run_id: str
    result: CalibrationResult


def run_calibration(
    device: Device,
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
    kept_run = kept_launches(
        device, request, store, "calibrate", argv=argv, progress=progress, record=record, force=force
    )
    with kept_run as kept:
        calibrated = calibrate(kept, request, progress)
        host = current_process().host if device.describe().kind == "cuda" else ""
        result = _with_provenance(calibrated, kept.run_id, argv, host)
        kept.add_fit("calibration", _fit_payload(result))
    return StoredCalibration(kept.run_id, result)


def _with_provenance(
    result: CalibrationResult, run_id: str, argv: Sequence[str], host: str
) -> CalibrationResult:
    """The result with its profile telling which command, run and measuring host it is from."""
    update = {"run_id": run_id, "argv": redacted_arguments(argv), "host": host}
    provenance = result.platform.provenance.model_copy(update=update)
    platform = result.platform.model_copy(update={"provenance": provenance})
    return replace(result, platform=platform)


def _fit_payload(result: CalibrationResult) -> dict[str, Any]:
    return {
        "platform": result.platform.model_dump(mode="json"),
        "findings": [asdict(finding) for finding in result.findings],
    }
