"""A calibration whose every launch is kept: device, store and recording around the procedure."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from xstage_tune.calibration.procedure import calibrate
from xstage_tune.calibration.request import CalibrationRequest
from xstage_tune.calibration.result import CalibrationResult
from xstage_tune.devices.base import BurstDevice, BurstRun, CopyRate
from xstage_tune.devices.recording import RecordedRequest, RecordingWriter
from xstage_tune.errors import RunInterrupted
from xstage_tune.store.facade import Store
from xstage_tune.store.process import current_process
from xstage_tune.store.runs import RunWriter


class Progress(Protocol):
    """Shows how far the sweep is."""

    def planned(self, total: int) -> None:
        """Say how many points there are."""
        ...

    def advance(self, label: str) -> None:
        """Count one point as done."""
        ...


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
    keeper: _Keeper | None = None
    try:
        with ExitStack() as stack:
            recording = None
            if record is not None:
                recording = stack.enter_context(
                    RecordingWriter(record, description, _recorded(request), force=force)
                )
            run = stack.enter_context(
                store.begin_run(
                    kind="calibrate",
                    argv=argv,
                    device=description,
                    seed=request.seed,
                    parameters=asdict(request),
                    path=request.path,
                )
            )
            keeper = _Keeper(run, recording, progress)
            device.label_launches(run.id)
            host = "" if description.kind == "replay" else current_process().host
            result = _with_provenance(calibrate(device, request, keeper), run.id, argv, host)
            run.add_fit("calibration", _fit_payload(result))
    except KeyboardInterrupt:
        raise RunInterrupted(_interrupted(keeper, store), "run the same command again") from None
    return StoredCalibration(run.id, result)


class _Keeper:
    """Keeps each run as soon as it is measured."""

    def __init__(self, run: RunWriter, recording: RecordingWriter | None, progress: Progress) -> None:
        self._run = run
        self.run_id = run.id
        self._recording = recording
        self._progress = progress
        self.launches = 0

    def planned(self, total_points: int) -> None:
        """See ``CalibrationObserver``."""
        self._progress.planned(total_points)

    def copied(self, rate: CopyRate) -> None:
        """Keep the copy engine's rate."""
        self._run.add_fit("copy-rate", asdict(rate))
        if self._recording is not None:
            self._recording.add_copy_rate(rate)

    def measured(self, run: BurstRun) -> None:
        """See ``CalibrationObserver``."""
        self._run.add_launch(self.launches, run)
        self.launches += 1
        if self._recording is not None:
            self._recording.add_run(run)
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


def _interrupted(keeper: _Keeper | None, store: Store) -> str:
    if keeper is None:
        return "interrupted before the first launch"
    return (
        f"interrupted: {keeper.launches} launches are kept in run {keeper.run_id} of store {store.location}"
    )
