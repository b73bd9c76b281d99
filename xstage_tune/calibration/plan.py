"""Which points to measure: three stages, each planned from what the one before showed.

*Probe*: the rough rate of the path, from which all windows and gaps follow. *Survey*: zero-gap runs for R,
plateaus for T0, isolated bursts over a coarse grid of volumes. *Focus*: isolated bursts around each knee, gap
sweeps around each G*, the local control, and saturated runs for the arbitration.

A stage is a pure function of the request, the device and the figures so far, rounded to three digits, so a
replayed recording is asked for exactly the points that it holds. Inside a stage the order is shuffled by
the seed: a drift of the machine then looks like noise, not like an effect of K, B or G.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.calibration.bootstrap import generator
from xstage_tune.calibration.budget import BUDGETS, KIB, MIB, Budget
from xstage_tune.calibration.fit import Basis
from xstage_tune.calibration.issue import CurveKey
from xstage_tune.calibration.reduce import PeriodicFigures
from xstage_tune.calibration.request import CalibrationRequest
from xstage_tune.launches.bursts import BurstPoint
from xstage_tune.model import burst_gap

PROBE_BURST_BYTES = 8 * KIB
PROBE_WINDOW_NS = 2_000_000
MIN_WINDOW_NS = 200_000
#: Idle time added to every gap that must let the path empty, for its latency.
SETTLE_NS = 5_000
#: An isolated burst may start when this many times V/R has passed since the last one.
ISOLATION = 2.0
PLATEAU_GAP = 2.5  # in V/R
#: Bursts of a gap sweep stay below this fraction of Q, so that only the rate can hold them up.
SWEEP_LOAD = 0.6


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans the stages of one request on a device with ``sm_count`` SMs."""

    request: CalibrationRequest
    sm_count: int

    @property
    def budget(self) -> Budget:
        """What the request's budget buys."""
        return BUDGETS[self.request.budget]

    def probe(self) -> tuple[BurstPoint, ...]:
        """Two saturated runs with all SMs; the first also wakes the GPU up."""
        point = self._periodic(self.request.primary, self.sm_count, PROBE_BURST_BYTES, 0, PROBE_WINDOW_NS)
        return point, replace(point, repeat=1)

    def survey(self, rate_bytes_per_s: float) -> tuple[BurstPoint, ...]:
        """Zero-gap runs, plateaus, and isolated bursts over a coarse grid of volumes."""
        points: list[BurstPoint] = []
        for flavour in self.request.flavours:
            producers = self._producers(flavour)
            primary = flavour == self.request.primary
            launches = self.budget.drain_launches if primary else self.budget.secondary_drain_launches
            for k in producers:
                for b in self._drain_sizes(flavour):
                    point = self._zero_gap(flavour, k, b, rate_bytes_per_s)
                    points += [replace(point, repeat=repeat) for repeat in range(launches)]
                for b in self.budget.issue_bytes:
                    points += self._plateau(flavour, k, b, rate_bytes_per_s)
                volumes = [mib * MIB for mib in self.budget.coarse_mib]
                points += self._isolated(flavour, k, volumes, rate_bytes_per_s)
        return self._shuffled("survey", points)

    def focus(self, basis: Basis) -> tuple[BurstPoint, ...]:
        """Isolated bursts around each knee, gap sweeps with their control, saturated runs."""
        rate = basis.drain.bytes_per_s
        points: list[BurstPoint] = []
        measured = {run.point for series in basis.series for run in series.runs}
        for (flavour, k), capacity in basis.capacity_guess.items():
            volumes = [factor * self._knee_bytes(basis, flavour, k, capacity) for factor in self.budget.dense]
            points += [p for p in self._isolated(flavour, k, volumes, rate) if p not in measured]
        for position, (flavour, k, burst_bytes) in enumerate(self._sweeps(basis.capacity_guess)):
            points += self._gap_sweep(basis, flavour, k, burst_bytes, self.request.path)
            if position == 0:
                points += self._gap_sweep(basis, flavour, k, burst_bytes, "local")
        points += self._saturated(rate)
        return self._shuffled("focus", points)

    def _producers(self, flavour: StoreFlavour) -> tuple[int, ...]:
        budget = self.budget
        wanted = budget.producers if flavour == self.request.primary else budget.secondary_producers
        return _producer_counts(wanted, self.sm_count)

    def _drain_sizes(self, flavour: StoreFlavour) -> tuple[int, ...]:
        return (
            self.budget.drain_bytes if flavour == self.request.primary else self.budget.secondary_drain_bytes
        )

    def _periodic(
        self, flavour: StoreFlavour, k: int, burst_bytes: int, gap_ns: float, window_ns: float
    ) -> BurstPoint:
        return BurstPoint(
            mode="periodic",
            path=self.request.path,
            flavour=flavour,
            producers=k,
            burst_bytes=burst_bytes,
            gap_ns=_rounded(gap_ns),
            window_ns=_rounded(max(window_ns, MIN_WINDOW_NS)),
        )

    def _zero_gap(self, flavour: StoreFlavour, k: int, burst_bytes: int, rate: float) -> BurstPoint:
        """Many times Q, and enough bursts for the slowest producer, but a bounded number of spans."""
        ample = min(self.budget.window_bytes, self.budget.window_spans * burst_bytes)
        carried = max(ample, self.budget.window_bursts * k * burst_bytes)
        return self._periodic(flavour, k, burst_bytes, 0, carried / rate * 1e9)

    def _plateau(self, flavour: StoreFlavour, k: int, burst_bytes: int, rate: float) -> list[BurstPoint]:
        gap_ns = PLATEAU_GAP * k * burst_bytes / rate * 1e9 + SETTLE_NS
        point = self._periodic(flavour, k, burst_bytes, gap_ns, self.budget.plateau_bursts * gap_ns)
        return [replace(point, repeat=repeat) for repeat in range(self.budget.plateau_launches)]

    def _isolated(
        self, flavour: StoreFlavour, k: int, volumes: Iterable[float], rate: float
    ) -> list[BurstPoint]:
        sizes = sorted({max(1, round(volume / k / KIB)) * KIB for volume in volumes})
        budget = self.budget
        few = k <= budget.few_producers
        launches = budget.few_producers_launches if few else budget.isolated_launches
        return [
            BurstPoint(
                mode="isolated",
                path=self.request.path,
                flavour=flavour,
                producers=k,
                burst_bytes=size,
                gap_ns=_rounded(ISOLATION * k * size / rate * 1e9 + 4 * SETTLE_NS),
                bursts=budget.isolated_bursts,
                repeat=repeat,
            )
            for size in sizes
            for repeat in range(launches)
        ]

    def _knee_bytes(self, basis: Basis, flavour: StoreFlavour, k: int, capacity: float) -> float:
        """V at the knee, ``Q + R*T0(V)``, by fixed-point iteration from Q."""
        volume = capacity
        for _ in range(8):
            free_ns = basis.issue.free_issue_ns(flavour, k, volume / k)
            volume = capacity + basis.drain.bytes_per_s * free_ns * 1e-9
        return volume

    def _sweeps(self, capacity: Mapping[CurveKey, float]) -> list[tuple[StoreFlavour, int, int]]:
        """The (flavour, K, B) to sweep: the budget's, with B halved until V fits well into Q."""
        chosen: list[tuple[StoreFlavour, int, int]] = []
        for flavour in self.request.flavours:
            primary = flavour == self.request.primary
            wanted = self.budget.sweeps if primary else self.budget.secondary_sweeps
            for count, burst_bytes in wanted:
                (k,) = _producer_counts((count,), self.sm_count)
                size = burst_bytes
                while size > KIB and k * size > SWEEP_LOAD * capacity.get((flavour, k), math.inf):
                    size //= 2
                chosen.append((flavour, k, size))
        return list(dict.fromkeys(chosen))

    def _gap_sweep(
        self, basis: Basis, flavour: StoreFlavour, k: int, burst_bytes: int, path: StorePath
    ) -> list[BurstPoint]:
        """Gaps around G*, all of them below the plateau's gap."""
        rate = basis.drain.bytes_per_s
        volume = k * burst_bytes
        free_ns = basis.issue.free_issue_ns(flavour, k, burst_bytes)
        recovery_ns = float(
            burst_gap.recovery_gap_ns(free_issue_ns=free_ns, volume_bytes=volume, drain_bytes_per_s=rate)
        )
        local = path == "local"
        points = []
        for factor in self.budget.local_gap_factors if local else self.budget.gap_factors:
            gap_ns = factor * recovery_ns
            bursts = max(self.budget.sweep_bursts, self.budget.sweep_bytes / volume)
            # Local bursts never wait, so their period is that of a free issue.
            period_ns = free_ns + gap_ns if local else max(volume / rate * 1e9, free_ns + gap_ns)
            window_ns = (self.budget.local_bursts if local else bursts) * period_ns
            points.append(replace(self._periodic(flavour, k, burst_bytes, gap_ns, window_ns), path=path))
        return points

    def _saturated(self, rate: float) -> list[BurstPoint]:
        """Repeats with all SMs, and random sets of active SMs, for the arbitration."""
        window_bytes = self.budget.arbitration_repeat_bytes
        points = [
            replace(self._saturated_point(self.sm_count, window_bytes, rate), repeat=repeat)
            for repeat in range(1, self.budget.arbitration_repeats + 1)
        ]
        for fraction, runs in self.budget.arbitration_subsets:
            (active,) = _producer_counts((fraction,), self.sm_count)
            if active == self.sm_count:
                continue
            rng = generator(self.request.seed, "active SMs", fraction)
            for _ in range(runs):
                idle = rng.permutation(self.sm_count)[active:]
                idle_sms = tuple(sorted(idle.tolist()))
                point = self._saturated_point(active, self.budget.arbitration_window_bytes, rate)
                points.append(replace(point, idle_sms=idle_sms, repeat=1))
        return points

    def _saturated_point(self, k: int, window_bytes: int, rate: float) -> BurstPoint:
        size = self.budget.arbitration_bytes
        carried = max(window_bytes, 2 * self.budget.window_bursts * k * size)
        return self._periodic(self.request.primary, k, size, 0, carried / rate * 1e9)

    def _shuffled(self, stage: str, points: Sequence[BurstPoint]) -> tuple[BurstPoint, ...]:
        distinct = list(dict.fromkeys(points))
        order = generator(self.request.seed, stage).permutation(len(distinct))
        return tuple(distinct[i] for i in order)


def probed_rate(runs: Sequence[PeriodicFigures]) -> float:
    """The rough rate of the path: the lowest, since a first run may still be filling Q."""
    return min(run.bytes_per_s for run in runs)


def _producer_counts(wanted: Iterable[int | float], sm_count: int) -> tuple[int, ...]:
    """Counts as they are, fractions of the SMs rounded; at least 1, at most all, each once, rising."""
    counts = (k if isinstance(k, int) else round(k * sm_count) for k in wanted)
    return tuple(sorted({int(np.clip(k, 1, sm_count)) for k in counts}))


def _rounded(value_ns: float) -> int:
    """Three significant digits: figures that differ in their last bits plan the same point."""
    return int(float(f"{value_ns:.3g}"))
