"""A calibration rebuilt from the launches that the store kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import TypeAdapter

from xstage_tune.base.errors import FindingError, UsageError
from xstage_tune.base.number_format import rate
from xstage_tune.calibration.procedure import fit
from xstage_tune.calibration.request import CalibrationRequest
from xstage_tune.calibration.result import CalibrationResult, Finding
from xstage_tune.launches.bursts import BURSTS, COPY_RATES, BurstRun
from xstage_tune.launches.device import DeviceDescription, Outcome
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.store.facade import Store
from xstage_tune.store.launches import StoredLaunch
from xstage_tune.store.models import Run

_DESCRIPTION = TypeAdapter(DeviceDescription)


def rebuild_calibration(store: Store, run: Run) -> CalibrationResult:
    """Fit the stored launches again, for the curves that only they hold.

    The profile and the findings are those that the run concluded; a finding says so where this version would
    conclude another R. A run that ended before its conclusion shows what its launches allow.

    Raises:
        UsageError: the run kept no launches, or no rate of the copy engine.
        FindingError: its launches allow no fit.
        StoreError: spans are damaged, or the database failed.
    """
    launches = store.launches(run.id)
    if not launches:
        raise UsageError(f"run {run.id} has no spans: it is {run.status}", "calibrate again")
    concluded = {row.kind: row.payload for row in store.fits(run.id)}
    if COPY_RATES.name not in concluded:
        raise UsageError(
            f"run {run.id} has no rate of the copy engine: it is {run.status}", "calibrate again"
        )
    try:
        fitted = fit(
            _bursts(launches),
            COPY_RATES.figures.validate_python(concluded[COPY_RATES.name]),
            _DESCRIPTION.validate_python(run.environment.device),
            CalibrationRequest.read(run.parameters, f"run {run.id}"),
        )
    except FindingError as error:
        raise FindingError(
            f"run {run.id} is {run.status} and its {len(launches)} launches allow no fit: {error.message}",
            "calibrate again",
        ) from None
    if "calibration" not in concluded:
        return replace(fitted, findings=(_unfinished(run, len(launches)), *fitted.findings))
    platform = PlatformProfile.model_validate(concluded["calibration"]["platform"])
    findings = tuple(Finding(**finding) for finding in concluded["calibration"]["findings"])
    return replace(fitted, platform=platform, findings=(*findings, *_changed(platform, fitted.platform)))


def _bursts(launches: list[StoredLaunch]) -> Iterator[BurstRun]:
    """One at a time: the spans of a whole run are large."""
    for launch in launches:
        point = launch.point_as(BURSTS)
        yield Outcome(point, None, launch.info, launch.verification, launch.table())


def _unfinished(run: Run, launches: int) -> Finding:
    reason = f": {run.error}" if run.error else ""
    message = f"the run is {run.status}{reason}; this is the fit of its {launches} launches"
    return Finding("run-unfinished", "warn", message, "calibrate again")


def _changed(concluded: PlatformProfile, fitted: PlatformProfile) -> Iterator[Finding]:
    then, now = concluded.drain.bytes_per_s, fitted.drain.bytes_per_s
    if then != now:
        yield Finding(
            "fit-changed",
            "warn",
            f"the run concluded R = {rate(then)}, this version fits R = {rate(now)} to its launches; "
            "the curves are of this fit",
            "calibrate again, or replay the run's recording",
        )
