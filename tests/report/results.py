"""Made-up calibration results, exact by the model's equations up to a fixed ripple."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.calibration.result import CalibrationResult, DrainPoints, Finding, GapCurve, IsolatedCurve
from xstage_tune.model import burst_gap
from xstage_tune.platforms.schema import (
    Arbitration,
    ArbitrationGroup,
    CapacityLaw,
    CapacityPoint,
    Corner,
    Drain,
    Gpu,
    IssuePoint,
    LocalControl,
    PlatformProfile,
    Provenance,
    Validation,
)

DRAIN_BYTES_PER_S = 52.61e9
KIB = 1024
PRODUCERS = (8, 16, 32, 64, 132)
BURSTS = (2 * KIB, 8 * KIB, 32 * KIB)
ALL_FLAVOURS: tuple[StoreFlavour, ...] = ("st.v4", "tma")


def free_issue_ns(burst_bytes: float, flavour: StoreFlavour) -> float:
    """T0: 80 ns at 2 KiB and about 0.53 us at 32 KiB; slower for tma."""
    slower = 1.5 if flavour == "tma" else 1.0
    return (50.0 + 0.0147 * burst_bytes) * slower


def capacity_bytes(producers: int, flavour: StoreFlavour) -> float:
    return (3.1e5 if flavour == "st.v4" else 2.4e5) * producers**0.52


def ripple(count: int, amplitude: float = 0.02) -> np.ndarray:
    """Factors near one that repeat from run to run, in place of noise."""
    return 1.0 + amplitude * np.sin(2.3 * np.arange(count))


def gap_curve(flavour: StoreFlavour, producers: int, burst_bytes: int, *, control: bool = True) -> GapCurve:
    path = {"volume_bytes": producers * burst_bytes, "drain_bytes_per_s": DRAIN_BYTES_PER_S}
    free_ns = free_issue_ns(burst_bytes, flavour)
    gap_ns = np.linspace(0.0, 1.8, 19) * burst_gap.drain_ns(**path)
    issue_ns = burst_gap.issue_ns(gap_ns=gap_ns, free_issue_ns=free_ns, **path)
    period_ns = burst_gap.steady_period_ns(gap_ns=gap_ns, free_issue_ns=free_ns, **path)
    local = gap_ns[::3] if control else np.empty(0)
    return GapCurve(
        flavour=flavour,
        producers=producers,
        burst_bytes=burst_bytes,
        gap_ns=gap_ns,
        issue_ns=issue_ns * ripple(gap_ns.size, 0.03),
        period_ns=period_ns * ripple(gap_ns.size, 0.01),
        predicted_issue_ns=issue_ns,
        predicted_period_ns=period_ns,
        local_gap_ns=local,
        local_issue_ns=0.8 * free_ns * ripple(local.size),
    )


def isolated_curve(flavour: StoreFlavour, producers: int) -> IsolatedCurve:
    volume = np.geomspace(2 * KIB, 64 * KIB, 21) * producers
    predicted = burst_gap.isolated_issue_ns(
        free_issue_ns=np.array([free_issue_ns(each / producers, flavour) for each in volume]),
        volume_bytes=volume,
        drain_bytes_per_s=DRAIN_BYTES_PER_S,
        capacity_bytes=capacity_bytes(producers, flavour),
    )
    held_out = np.arange(volume.size) % 4 == 2
    return IsolatedCurve(flavour, producers, volume, predicted * ripple(volume.size), predicted, held_out)


def drain_points(flavour: StoreFlavour, producers: Sequence[int] = PRODUCERS) -> DrainPoints:
    count, burst = (axis.ravel() for axis in np.meshgrid(producers, BURSTS))
    volume = (count * burst).astype(np.float64)
    free_ns = np.array([free_issue_ns(each, flavour) for each in burst])
    drained_ns = volume / DRAIN_BYTES_PER_S * 1e9
    period_ns = np.maximum(free_ns, drained_ns) * ripple(volume.size, 0.001)
    rate = volume / period_ns * 1e9
    return DrainPoints(flavour, count, burst, volume, period_ns, rate, drained_ns > 1.5 * free_ns)


def platform(flavours: Sequence[StoreFlavour] = ALL_FLAVOURS) -> PlatformProfile:
    """A profile like an H200's over PCIe, with every optional part."""
    return PlatformProfile(
        name="h200-host",
        description="H200 storing to pinned host memory over PCIe Gen5 x16",
        path="host",
        gpu=Gpu(
            name="NVIDIA H200",
            architecture="sm_90a",
            sm_count=132,
            sm_clock_mhz=1980,
            l2_bytes=60 * KIB * KIB,
        ),
        drain=Drain(
            bytes_per_s=DRAIN_BYTES_PER_S,
            ci95=(52.58e9, 52.64e9),
            copy_engine_bytes_per_s=55.1e9,
            source="bytes over a common window, 15 points",
        ),
        issue=tuple(
            IssuePoint(
                flavour=flavour,
                producers=count,
                burst_bytes=burst,
                ns=ns,
                ci95=(ns * 0.99, ns * 1.01),
                source="large-gap plateau",
            )
            for flavour in flavours
            for count in (32, 132)
            for burst in BURSTS
            for ns in [free_issue_ns(burst, flavour)]
        ),
        capacity=tuple(
            CapacityPoint(
                flavour=flavour,
                producers=count,
                bytes=size,
                ci95=(size * 0.97, size * 1.02),
                knee_reached=count > 8,
                source="isolated knee",
            )
            for flavour in flavours
            for count in PRODUCERS
            for size in [capacity_bytes(count, flavour)]
        ),
        capacity_law=tuple(
            CapacityLaw(
                flavour=flavour,
                law="power",
                scale_bytes=capacity_bytes(1, flavour),
                exponent=0.52,
                rms_relative_error=0.0213,
            )
            for flavour in flavours
        ),
        arbitration=Arbitration(
            groups=(
                ArbitrationGroup(sm_ids=tuple(range(0, 48, 2)), share=0.25),
                ArbitrationGroup(sm_ids=(*range(1, 48, 2), *range(48, 60)), share=0.25),
                ArbitrationGroup(sm_ids=tuple(range(60, 96)), share=0.25),
                ArbitrationGroup(sm_ids=tuple(range(96, 132)), share=0.25),
            ),
            repeat_correlation=0.9931,
            max_relative_error=0.0172,
            source="per-SM bytes at K = 132",
        ),
        corner=Corner(width_fraction=0.0231, plain_median_pct=4.12, soft_median_pct=2.07),
        validation=Validation(
            period_median_pct=0.71,
            period_p95_pct=3.62,
            issue_median_pct=2.83,
            issue_p95_pct=9.14,
            isolated_median_pct=1.94,
            isolated_p95_pct=6.05,
            points=57,
        ),
        local_control=LocalControl(producers=132, burst_bytes=8 * KIB, issue_ns=136.4, gap_spread=0.0183),
        provenance=Provenance(
            created_at="2026-01-02T03:04:05Z",
            tool_version="0.1.0",
            argv=("calibrate", "--seed", "1"),
            host="node7",
            gpu_uuid="GPU-1234",
            driver="580.1",
            cuda="13.0",
            kernel_sha256="ab" * 32,
            seed=1,
            run_id="20260102-030405-1a2b",
        ),
    )


FINDINGS = (
    Finding(
        "clock-throttled",
        "warn",
        "SM clock fell to 1,410 MHz in 2 of 57 points (SW power cap)",
        "raise the power cap, or lock the clock: nvidia-smi -lgc 1980",
    ),
    Finding(
        "drain-above-copy-engine",
        "refuse",
        "R = 58.20 GB/s is above the copy engine's 55.10 GB/s by 5.6%",
        "measure again with a longer window: --budget full",
    ),
)


def calibration(
    flavours: Sequence[StoreFlavour] = ALL_FLAVOURS,
    *,
    control: bool = True,
    findings: tuple[Finding, ...] = (),
) -> CalibrationResult:
    """A whole result over ``flavours``."""
    sweeps = ((132, 8 * KIB), (132, 2 * KIB), (64, 8 * KIB), (16, 8 * KIB))
    return CalibrationResult(
        platform=platform(flavours),
        gap_curves=tuple(
            gap_curve(flavour, count, burst, control=control)
            for flavour in flavours
            for count, burst in sweeps
        ),
        isolated_curves=tuple(isolated_curve(flavour, count) for flavour in flavours for count in PRODUCERS),
        drain_points=tuple(drain_points(flavour) for flavour in flavours),
        findings=findings,
    )
