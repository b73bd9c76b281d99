"""What a budget buys: the sweeps of one calibration, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass

from xstage_tune.base.limits import BudgetName

KIB = 1 << 10
MIB = 1 << 20

#: Whole numbers are producers; fractions are of the device's SMs.
Producers = tuple[int | float, ...]


@dataclass(frozen=True, slots=True)
class Budget:
    """Sizes of the sweeps.

    Costs to keep in mind when changing one: about 20 ms a launch and 60 ms per 256 MB written, for the
    owner's check; a span a burst and producer, about 1.5 bytes each in a recording.
    """

    # Zero-gap runs (R). A window carries many times Q: ``window_bytes``, but at most ``window_spans``
    # spans, and at least ``window_bursts`` bursts of each producer, since the slowest may get a third.
    producers: Producers
    drain_bytes: tuple[int, ...]
    window_bytes: int
    window_spans: int
    window_bursts: int
    drain_launches: int  # spread over the sweep: other traffic on the path lasts longer than a window
    # Plateaus (T0).
    issue_bytes: tuple[int, ...]
    plateau_bursts: int
    plateau_launches: int  # T0 of large bursts is 4 to 8% longer in some launches
    # Isolated bursts (Q): aggregate volumes, then factors of the knee's volume.
    coarse_mib: tuple[float, ...]
    dense: tuple[float, ...]
    isolated_bursts: int
    isolated_launches: int
    few_producers: int  # with as few or fewer Q differs by a tenth from launch to launch,
    few_producers_launches: int  # so they get more, which cost little: a launch records few spans
    # Gap sweeps (validation), as factors of G*; the first (K, B) also runs on the local path.
    sweeps: tuple[tuple[int | float, int], ...]
    gap_factors: tuple[float, ...]
    local_gap_factors: tuple[float, ...]
    sweep_bursts: int
    sweep_bytes: int
    local_bursts: int
    # Saturated runs (arbitration).
    arbitration_bytes: int
    arbitration_repeats: int
    arbitration_repeat_bytes: int  # window of a repeat: shares scatter with the bursts that they count
    arbitration_window_bytes: int
    #: (fraction of the SMs that are active, runs): many SMs tell who shares a port, few tell which
    #: ports share a branch.
    arbitration_subsets: tuple[tuple[float, int], ...]
    # What a flavour other than the primary one gets.
    secondary_producers: Producers
    secondary_drain_bytes: tuple[int, ...]
    secondary_drain_launches: int
    secondary_sweeps: tuple[tuple[int | float, int], ...]


QUICK = Budget(
    producers=(32, 0.5, 1.0),
    drain_bytes=(4 * KIB, 8 * KIB, 32 * KIB),
    window_bytes=64 * MIB,
    window_spans=16_400,
    window_bursts=24,
    drain_launches=3,
    issue_bytes=(2 * KIB, 8 * KIB, 16 * KIB, 32 * KIB),
    plateau_bursts=12,
    plateau_launches=4,
    coarse_mib=(0.5, 2.0, 6.0, 16.0),
    dense=(0.7, 0.85, 0.95, 1.05, 1.15, 1.3, 1.6),
    isolated_bursts=12,
    isolated_launches=2,
    few_producers=16,
    few_producers_launches=4,
    sweeps=((1.0, 8 * KIB), (32, 16 * KIB)),
    gap_factors=(0.3, 0.7, 0.9, 1.0, 1.15, 1.6),
    local_gap_factors=(0.3, 0.9, 1.6),
    sweep_bursts=60,
    sweep_bytes=80 * MIB,
    local_bursts=24,
    arbitration_bytes=16 * KIB,
    arbitration_repeats=3,
    arbitration_repeat_bytes=256 * MIB,
    arbitration_window_bytes=64 * MIB,
    arbitration_subsets=((0.67, 10), (0.36, 5), (0.085, 7)),
    secondary_producers=(32, 1.0),
    secondary_drain_bytes=(8 * KIB,),
    secondary_drain_launches=3,
    secondary_sweeps=((1.0, 8 * KIB),),
)

FULL = Budget(
    producers=(8, 16, 32, 0.5, 0.75, 1.0),
    drain_bytes=(2 * KIB, 4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB),
    window_bytes=38 * MIB,
    window_spans=19_500,
    window_bursts=48,
    drain_launches=5,
    issue_bytes=(2 * KIB, 4 * KIB, 8 * KIB, 16 * KIB, 24 * KIB, 32 * KIB, 48 * KIB),
    plateau_bursts=12,
    plateau_launches=7,
    coarse_mib=(0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
    dense=(0.6, 0.7, 0.8, 0.86, 0.92, 0.96, 1.0, 1.04, 1.08, 1.14, 1.2, 1.3, 1.45, 1.7, 2.0),
    isolated_bursts=8,
    isolated_launches=3,
    few_producers=16,
    few_producers_launches=8,
    sweeps=((1.0, 8 * KIB), (1.0, 16 * KIB), (0.5, 16 * KIB), (32, 16 * KIB)),
    gap_factors=(0.15, 0.4, 0.6, 0.75, 0.85, 0.92, 1.0, 1.08, 1.15, 1.3, 1.6, 2.0),
    local_gap_factors=(0.15, 0.4, 0.75, 1.0, 1.3, 2.0),
    sweep_bursts=60,
    sweep_bytes=64 * MIB,
    local_bursts=24,
    arbitration_bytes=16 * KIB,
    arbitration_repeats=3,
    arbitration_repeat_bytes=512 * MIB,
    arbitration_window_bytes=48 * MIB,
    arbitration_subsets=((0.67, 16), (0.36, 8), (0.085, 12)),
    secondary_producers=(16, 32, 0.5, 1.0),
    secondary_drain_bytes=(4 * KIB, 8 * KIB, 32 * KIB),
    secondary_drain_launches=3,
    secondary_sweeps=((1.0, 8 * KIB),),
)

BUDGETS: dict[BudgetName, Budget] = {"quick": QUICK, "full": FULL}
