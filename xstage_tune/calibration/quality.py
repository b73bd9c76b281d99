"""What must be known before the numbers are used, and what forbids using them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from xstage_tune.base.fabric import StorePath
from xstage_tune.calibration.arbitration import ArbitrationFit
from xstage_tune.calibration.capacity import CapacityFit
from xstage_tune.calibration.drain import DrainFit
from xstage_tune.calibration.reduce import PeriodicFigures, RunFigures, UnusableRun
from xstage_tune.calibration.result import Finding
from xstage_tune.launches.bursts import BurstPoint, CopyRate
from xstage_tune.launches.device import DeviceDescription, throttling
from xstage_tune.platforms.schema import LocalControl, Validation, surely_above

MAX_INTERVAL = 0.05  # width of R's interval over R
#: Repeats of one zero-gap point further apart than this were not measured on the same machine state.
MAX_LAUNCH_DEVIATION = 0.02
MAX_DISTURBED = 0.25  # fraction of the launches
MAX_CLOCK_SPREAD = 0.05
MAX_DRAIN_SPREAD = 0.01
MAX_LOCAL_SPREAD = 0.2
MAX_PERIOD_MEDIAN_PCT = 3.0
MAX_PERIOD_P95_PCT = 8.0

_QUIET = "stop other work on the GPU and its host, then calibrate again"


def describe_point(point: BurstPoint) -> str:
    """A point in the words of the findings."""
    size = f"K={point.producers} B={point.burst_bytes} G={point.gap_ns} ns"
    return f"{point.mode} {point.path} {point.flavour} {size}"


def verification_failure(point: BurstPoint, mismatched_bytes: int, checked_bytes: int) -> str:
    """The message of a run whose data did not arrive."""
    return (
        f"verification failed on path '{point.path}': {mismatched_bytes} of {checked_bytes} bytes differ "
        f"at the owner after {describe_point(point)}"
    )


VERIFICATION_HINT = "the stores of this path cannot be trusted; xstage-tune doctor checks each path"


def run_findings(figures: Iterable[RunFigures]) -> list[Finding]:
    """Findings about single runs: data lost on the way, throttling, windows that cannot be used."""
    findings: list[Finding] = []
    wrong = [figure for figure in figures if figure.health.mismatched_bytes]
    findings += [
        Finding(
            "verification-failed",
            "refuse",
            verification_failure(f.point, f.health.mismatched_bytes, f.health.checked_bytes),
            VERIFICATION_HINT,
        )
        for f in wrong[:1]
    ]
    findings += _throttling(list(figures))
    findings += _unusable(list(figures))
    return findings


def _unusable(figures: Sequence[RunFigures]) -> list[Finding]:
    """Runs without a window: of a point that has others they are left out, else the point is missing."""
    unusable = [figure for figure in figures if isinstance(figure, UnusableRun)]
    if not unusable:
        return []
    measured = {replace(f.point, repeat=0) for f in figures if not isinstance(f, UnusableRun)}
    missing = [figure for figure in unusable if replace(figure.point, repeat=0) not in measured]
    worst = (missing or unusable)[0]
    return [
        Finding(
            "window-unusable",
            "refuse" if missing else "warn",
            f"{len(unusable)} runs have no usable window, first {describe_point(worst.point)}: "
            f"{worst.reason}",
            "calibrate again; if it repeats, report it with the run's id" if missing else _QUIET,
        )
    ]


def _throttling(figures: Sequence[RunFigures]) -> list[Finding]:
    slowed = [f for f in figures if throttling(f.health.throttle_reasons)]
    if not slowed:
        return []
    reasons = sorted({reason for f in slowed for reason in throttling(f.health.throttle_reasons)})
    return [
        Finding(
            "throttled",
            "refuse",
            f"the GPU throttled in {len(slowed)} of {len(figures)} runs: {', '.join(reasons)}",
            "let it cool down, or raise the power cap, then calibrate again",
        )
    ]


def clock_findings(plateaus: Sequence[PeriodicFigures]) -> list[Finding]:
    """T0 is instruction time: it scales with the clock, which must hold still over the plateaus."""
    clocks = np.array([run.health.sm_clock_mhz for run in plateaus])
    spread = float((clocks.max() - clocks.min()) / np.median(clocks))
    if spread <= MAX_CLOCK_SPREAD:
        return []
    return [
        Finding(
            "clock-unstable",
            "refuse",
            f"the SM clock varied from {clocks.min():.0f} to {clocks.max():.0f} MHz over the runs that "
            f"T0 comes from ({100 * spread:.1f}%, allowed {100 * MAX_CLOCK_SPREAD:.0f}%)",
            "lock the clocks (nvidia-smi -lgc) or " + _QUIET,
        )
    ]


def drain_findings(
    drain: DrainFit, copy_rate: CopyRate, description: DeviceDescription, path: StorePath
) -> list[Finding]:
    """R against its own interval, its runs, and the two rates that it cannot exceed."""
    findings: list[Finding] = []
    low, high = drain.ci95
    width = (high - low) / drain.bytes_per_s
    if width > MAX_INTERVAL:
        findings.append(
            Finding(
                "drain-interval-wide",
                "refuse",
                f"R = {_gb(drain.bytes_per_s)} has a 95% interval of {_gb(low)} to {_gb(high)}, "
                f"{100 * width:.1f}% wide (allowed {100 * MAX_INTERVAL:.0f}%)",
                _QUIET,
            )
        )
    if copy_rate.bytes_per_s is not None:
        findings += _above(drain, copy_rate.bytes_per_s, "copy engine's", "drain-above-copy-engine")
    link = description.link.get(f"{path}_bytes_per_s")
    if isinstance(link, int | float):
        findings += _above(drain, float(link), "link's", "drain-above-link")
    worst = drain.worst()
    deviation = worst.bytes_per_s / drain.bytes_per_s - 1
    if abs(deviation) > MAX_DRAIN_SPREAD:
        findings.append(
            Finding(
                "drain-not-uniform",
                "warn",
                f"K={worst.producers} B={worst.burst_bytes} drains at {_gb(worst.bytes_per_s)}, "
                f"{100 * deviation:+.1f}% of R = {_gb(drain.bytes_per_s)}",
                "predictions at that (K, B) are off by as much",
            )
        )
    return findings + _disturbed(drain)


def _above(drain: DrainFit, limit: float, whose: str, code: str) -> list[Finding]:
    """Refuse an R whose whole interval lies above a rate that stores cannot exceed."""
    if not surely_above(drain.ci95[0], limit):
        return []
    return [
        Finding(
            code,
            "refuse",
            f"R = {_gb(drain.bytes_per_s)} (95% from {_gb(drain.ci95[0])}) exceeds the {whose} rate of "
            f"{_gb(limit)}",
            "the window counted stores that had not drained: calibrate again with --budget full",
        )
    ]


def _disturbed(drain: DrainFit) -> list[Finding]:
    """Launches that drained slower or faster than others of the same point: traffic of others on the path."""
    deviations = [
        abs(run.bytes_per_s / point.bytes_per_s - 1) for point in drain.points for run in point.runs
    ]
    hit = sum(deviation > MAX_LAUNCH_DEVIATION for deviation in deviations)
    if not hit:
        return []
    return [
        Finding(
            "path-disturbed",
            "refuse" if hit > MAX_DISTURBED * len(deviations) else "warn",
            f"{hit} of {len(deviations)} saturated launches differ from others of the same point by more "
            f"than {100 * MAX_LAUNCH_DEVIATION:.0f}%, at most by {100 * max(deviations):.1f}% "
            f"(allowed in {100 * MAX_DISTURBED:.0f}% of them)",
            _QUIET,
        )
    ]


def capacity_findings(fits: Sequence[CapacityFit]) -> list[Finding]:
    """A knee that was not reached: refused at the largest K of a flavour, noted at the others."""
    findings: list[Finding] = []
    for fit in fits:
        if fit.knee_reached:
            continue
        largest = max(other.producers for other in fits if other.flavour == fit.flavour)
        findings.append(
            Finding(
                "knee-not-reached",
                "refuse" if fit.producers == largest else "warn",
                f"no knee of isolated {fit.flavour} bursts with K={fit.producers}: Q is above "
                f"{fit.bytes / 2**20:.2f} MiB, the most that was outstanding without a stall",
                "calibrate with --budget full, whose bursts are larger" if fit.producers == largest else "",
            )
        )
    return findings


def arbitration_findings(fit: ArbitrationFit) -> list[Finding]:
    """Whether the shares repeat is unknown where they were measured once."""
    if fit.repeats > 1:
        return []
    return [
        Finding(
            "arbitration-unrepeated",
            "warn",
            f"K={fit.producers} was measured once: whether its per-SM shares are systematic is unknown",
            "calibrate with --budget full",
        )
    ]


def control_findings(control: LocalControl | None) -> list[Finding]:
    """The local control must be nearly insensitive to the gap."""
    if control is None or control.gap_spread <= MAX_LOCAL_SPREAD:
        return []
    return [
        Finding(
            "local-control-sensitive",
            "warn",
            f"the local control's issue time varies by {100 * control.gap_spread:.0f}% over the gap at "
            f"K={control.producers} B={control.burst_bytes} (expected below {100 * MAX_LOCAL_SPREAD:.0f}%)",
            "part of the gap's effect is not the remote path's: look at panel (a)",
        )
    ]


def validation_findings(validation: Validation | None) -> list[Finding]:
    """Held-out errors beyond what the law should reach."""
    if validation is None:
        return [Finding("not-validated", "warn", "no held-out point was measured: the errors are unknown")]
    if (
        validation.period_median_pct <= MAX_PERIOD_MEDIAN_PCT
        and validation.period_p95_pct <= MAX_PERIOD_P95_PCT
    ):
        return []
    return [
        Finding(
            "held-out-error",
            "warn",
            f"the period of held-out points is off by {validation.period_median_pct:.1f}% in the median and "
            f"{validation.period_p95_pct:.1f}% at the 95th percentile (expected {MAX_PERIOD_MEDIAN_PCT:.0f}% "
            f"and {MAX_PERIOD_P95_PCT:.0f}%)",
            "the max() law does not hold well here: look at panel (b)",
        )
    ]


def _gb(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:.2f} GB/s"
