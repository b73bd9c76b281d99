"""From the figures of runs to M_X = (T0, R, Q), its validation and its findings: pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from xstage_tune.base.errors import FindingError
from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.base.version import __version__
from xstage_tune.calibration.arbitration import ArbitrationFit, fit_arbitration
from xstage_tune.calibration.capacity import (
    CapacityFit,
    IsolatedSeries,
    fit_capacity,
    guess_capacity,
    isolated_series,
)
from xstage_tune.calibration.capacity_law import fit_capacity_law
from xstage_tune.calibration.control import local_control
from xstage_tune.calibration.corner import fit_corner
from xstage_tune.calibration.drain import DrainFit, drain_dominated, fit_drain
from xstage_tune.calibration.issue import (
    CurveKey,
    IssueModel,
    Plateau,
    measure_plateaus,
    plateau_runs,
    without_capacity_stall,
)
from xstage_tune.calibration.quality import (
    arbitration_findings,
    capacity_findings,
    clock_findings,
    control_findings,
    drain_findings,
    run_findings,
    validation_findings,
)
from xstage_tune.calibration.reduce import PeriodicFigures, RunFigures, isolated, periodic, reduce_run
from xstage_tune.calibration.request import CalibrationRequest
from xstage_tune.calibration.result import CalibrationResult, DrainPoints
from xstage_tune.calibration.rounding import rounded
from xstage_tune.calibration.validate import gap_curve, held_out_sweeps, isolated_curve, validate
from xstage_tune.launches.bursts import BurstRun, CopyRate
from xstage_tune.launches.device import DeviceDescription
from xstage_tune.launches.gpu_identity import identity_of
from xstage_tune.platforms.gpus import known_compute
from xstage_tune.platforms.schema import (
    Arbitration,
    ArbitrationGroup,
    ArbitrationPrediction,
    CapacityPoint,
    Drain,
    Gpu,
    IssuePoint,
    PlatformProfile,
    Provenance,
)


@dataclass(frozen=True, slots=True)
class Basis:
    """R and T0, which need nothing else, and the isolated series with a first idea of their Q."""

    drain: DrainFit
    issue: IssueModel
    plateaus: tuple[PeriodicFigures, ...]
    zero_gap: tuple[PeriodicFigures, ...]  # with SMs of the hardware's choice
    saturated: tuple[PeriodicFigures, ...]  # of the primary flavour, on chosen SMs too
    series: tuple[IsolatedSeries, ...]
    capacity_guess: dict[CurveKey, float]


def fit(
    runs: Iterable[BurstRun],
    copy_rate: CopyRate,
    description: DeviceDescription,
    request: CalibrationRequest,
) -> CalibrationResult:
    """Fit stored or replayed runs; the same runs and request give the same result, bit for bit.

    Raises:
        FindingError: the runs hold no plateau or no drain-dominated run, so that there is no R or T0.
    """
    return fit_figures([reduce_run(run) for run in runs], copy_rate, description, request)


def fit_basis(figures: Sequence[RunFigures], request: CalibrationRequest) -> Basis:
    """R and T0 from periodic runs, and Q roughly from isolated ones.

    Roles follow from the points alone: zero gaps measure R, and those on chosen SMs only the
    arbitration; the largest gap of each (flavour, K, B) measures T0; the gaps in between are held out.

    Raises:
        FindingError: there is no plateau, or no run of the primary flavour is drain-dominated.
    """
    remote = [run for run in periodic(figures) if run.point.path == request.path]
    zero_gap = [run for run in remote if run.point.gap_ns == 0]
    highest = max((run.bytes_per_s for run in zero_gap), default=0.0)
    plateaus = plateau_runs(remote, highest)
    measured = measure_plateaus(plateaus, request.seed)
    missing = [f for f in request.flavours if f not in {plateau.flavour for plateau in measured}]
    if missing:
        raise FindingError(
            f"no plateau of T0 was measured on path '{request.path}' for store flavour {', '.join(missing)}",
            "calibrate again; the runs hold no large gap that leaves the path idle",
        )
    rough = IssueModel(measured)
    primary = [run for run in zero_gap if run.point.flavour == request.primary]
    saturated = [run for run, keep in zip(primary, drain_dominated(primary, rough), strict=True) if keep]
    dominated = [run for run in saturated if not run.point.idle_sms]
    if not dominated:
        raise FindingError(
            f"no drain-dominated run on path '{request.path}': {len(primary)} zero-gap runs never push back",
            "this path accepts stores as fast as the SMs issue them; there is no R to measure",
        )
    drain = fit_drain(dominated, request.seed)
    series = isolated_series(run for run in isolated(figures) if run.point.path == request.path)
    guesses = {one.key: guess_capacity(one, rough, drain.bytes_per_s) for one in series}
    known = {key: guess for key, guess in guesses.items() if guess is not None}
    return Basis(
        drain=drain,
        issue=IssueModel(without_capacity_stall(measured, known, drain.bytes_per_s)),
        plateaus=tuple(plateaus),
        zero_gap=tuple(run for run in zero_gap if not run.point.idle_sms),
        saturated=tuple(saturated),
        series=tuple(series),
        capacity_guess=known,
    )


def fit_figures(
    figures: Sequence[RunFigures],
    copy_rate: CopyRate,
    description: DeviceDescription,
    request: CalibrationRequest,
) -> CalibrationResult:
    """:func:`fit` for runs that are reduced already."""
    basis = fit_basis(figures, request)
    drain, issue = basis.drain, basis.issue
    remote = [run for run in periodic(figures) if run.point.path == request.path]
    local = [run for run in periodic(figures) if run.point.path == "local"]
    capacity = [fit_capacity(series, issue, drain, request.seed) for series in basis.series]
    by_key = {(fitted.flavour, fitted.producers): fitted for fitted in capacity}
    laws = [fit_capacity_law(flavour, capacity) for flavour in request.flavours]
    arbitration = fit_arbitration(basis.saturated)
    sweeps = held_out_sweeps(remote, basis.plateaus, issue)
    gap_curves = tuple(gap_curve(sweep, drain.bytes_per_s, local) for sweep in sweeps)
    isolated_curves = tuple(isolated_curve(one, by_key, issue, drain.bytes_per_s) for one in basis.series)
    reached = {key for key, fitted in by_key.items() if fitted.knee_reached}
    validation = validate(gap_curves, isolated_curves, reached)
    control = local_control(local)

    fitted = PlatformProfile(
        name=profile_name(description, request),
        description=_description(description, request),
        path=request.path,
        gpu=_gpu(description, figures),
        drain=_drain(drain, copy_rate),
        issue=tuple(_issue_point(plateau, issue) for plateau in issue.plateaus),
        capacity=tuple(_capacity_point(fitted) for fitted in capacity),
        capacity_law=tuple(law for law in laws if law is not None),
        arbitration=_arbitration(arbitration),
        corner=fit_corner(sweeps, drain.bytes_per_s),
        validation=validation,
        local_control=control,
        compute=known_compute(identity_of(description)),
        provenance=_provenance(figures, description, request),
    )
    findings = (
        run_findings(figures)
        + clock_findings(basis.plateaus)
        + drain_findings(drain, copy_rate, description, request.path)
        + capacity_findings(capacity)
        + arbitration_findings(arbitration)
        + control_findings(control)
        + validation_findings(validation)
    )
    return CalibrationResult(
        platform=rounded(fitted),
        gap_curves=gap_curves,
        isolated_curves=isolated_curves,
        drain_points=tuple(_drain_points(basis, flavour) for flavour in request.flavours),
        findings=tuple(findings),
    )


def profile_name(description: DeviceDescription, request: CalibrationRequest) -> str:
    """``<gpu>-<path>``, e.g. ``h200-host``: the model without its maker, in lower case.

    What was simulated is named so, and never found for a GPU.
    """
    model = description.name.lower().removeprefix("nvidia").strip()
    slug = re.sub(r"[^a-z0-9]+", "-", model).strip("-") or "gpu"
    return f"{'simulated-' if description.simulated else ''}{slug}-{request.path}"


def _description(description: DeviceDescription, request: CalibrationRequest) -> str:
    of = "simulation of " if description.simulated else ""
    return f"{of}{description.name}, path {request.path}, calibrated with budget {request.budget}"


def _gpu(description: DeviceDescription, figures: Sequence[RunFigures]) -> Gpu:
    clocks = [figure.health.sm_clock_mhz for figure in figures]
    identity = identity_of(description)
    return Gpu(
        name=description.name,
        architecture=description.architecture,
        sm_count=description.sm_count,
        sm_clock_mhz=round(float(np.nanmedian(clocks)), 1),
        l2_bytes=description.l2_bytes,
        form_factor=identity.form_factor,
        memory_bytes=identity.memory_bytes,
        nvlink=identity.nvlink,
        pcie=identity.pcie,
        mig=identity.mig,
        source="the platform that was simulated"
        if description.simulated
        else "driver; the clock from (globaltimer, clock64) pairs of the runs",
    )


def _drain(drain: DrainFit, copy_rate: CopyRate) -> Drain:
    return Drain(
        bytes_per_s=drain.bytes_per_s,
        ci95=drain.ci95,
        copy_engine_bytes_per_s=copy_rate.bytes_per_s,
        source=f"common-window rate of {len(drain.runs)} drain-dominated launches with zero gap, "
        f"over {len(drain.points)} (K, B)",
    )


def _issue_point(plateau: Plateau, issue: IssueModel) -> IssuePoint:
    source = f"plateau at a gap of {plateau.gap_ns / 1e3:.1f} us, {plateau.bursts} bursts"
    if plateau.borrowed_from is not None:
        source += f", scaled from K={plateau.borrowed_from} since this K stalls on capacity at any gap"
    return IssuePoint(
        flavour=plateau.flavour,
        producers=plateau.producers,
        burst_bytes=plateau.burst_bytes,
        ns=issue.measured(plateau),
        ci95=plateau.ci95,
        source=source,
    )


def _capacity_point(fitted: CapacityFit) -> CapacityPoint:
    return CapacityPoint(
        flavour=fitted.flavour,
        producers=fitted.producers,
        bytes=fitted.bytes,
        ci95=fitted.ci95,
        knee_reached=fitted.knee_reached,
        onset_bytes=fitted.onset_bytes,
        source=f"equation 7 on isolated bursts of {fitted.points} volumes, R fixed"
        if fitted.knee_reached
        else f"no knee in isolated bursts of {fitted.points} volumes: a lower bound",
    )


def _arbitration(fitted: ArbitrationFit) -> Arbitration:
    pattern = "systematic" if fitted.systematic else "not systematic: one group"
    total = sum(group.share for group in fitted.groups)
    return Arbitration(
        groups=tuple(
            ArbitrationGroup(sm_ids=group.sm_ids, share=group.share / total, branch=group.branch)
            for group in fitted.groups
        ),
        predictions=tuple(
            ArbitrationPrediction(
                producers=prediction.producers,
                median_relative_error=prediction.median_error,
                max_relative_error=prediction.max_error,
            )
            for prediction in fitted.predictions
        ),
        repeat_correlation=fitted.repeat_correlation,
        max_relative_error=fitted.fitted_error,
        source=f"shares of {fitted.repeats} saturated runs with K={fitted.producers}, {pattern}",
    )


def _provenance(
    figures: Sequence[RunFigures], description: DeviceDescription, request: CalibrationRequest
) -> Provenance:
    kernels = sorted({figure.health.kernel_sha256 for figure in figures})
    return Provenance(
        created_at=min(figure.health.started_at for figure in figures),
        tool_version=__version__,
        gpu_uuid=description.uuid,
        driver=description.driver,
        cuda=description.cuda,
        kernel_sha256=",".join(kernels),
        seed=request.seed,
    )


def _drain_points(basis: Basis, flavour: StoreFlavour) -> DrainPoints:
    runs = sorted(
        (run for run in basis.zero_gap if run.point.flavour == flavour),
        key=lambda run: (run.point.producers, run.point.burst_bytes, run.point.repeat),
    )
    return DrainPoints(
        flavour=flavour,
        producers=np.array([run.point.producers for run in runs], dtype=np.int64),
        burst_bytes=np.array([run.point.burst_bytes for run in runs], dtype=np.int64),
        volume_bytes=np.array([run.point.volume_bytes for run in runs], dtype=np.float64),
        period_ns=np.array([run.period_ns for run in runs]),
        bytes_per_s=np.array([run.bytes_per_s for run in runs]),
        drain_dominated=drain_dominated(runs, basis.issue),
    )
