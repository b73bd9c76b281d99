"""The burst of a schedule on a platform: T0, R, Q with their origins, and what would fit the bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isinf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.estimates.figures import Basis, Figure, derived
from xstage_tune.model import burst_gap
from xstage_tune.platforms import queries
from xstage_tune.platforms.rooms import shared_room_bytes
from xstage_tune.platforms.schema import TEMPLATE_SOURCE, IssuePoint, PlatformProfile

_STORE_BYTES = 16  # the smallest step in which a burst can shrink


@dataclass(frozen=True, slots=True)
class BurstTerms:
    """One aligned burst on one platform, and the equations that need no gap."""

    platform: PlatformProfile
    flavour: StoreFlavour
    producers: int  # K that align
    burst_bytes: Figure  # B, remote bytes of one producer
    volume_bytes: Figure  # V = K*B
    drain_bytes_per_s: Figure  # R
    free_issue_ns: Figure  # T0
    capacity_bytes: Figure  # Q(K)
    drain_ns: Figure  # V/R
    recovery_gap_ns: Figure  # G*, equation 5
    peak_outstanding_bytes: Figure  # q_peak, equation 6
    shared_room_bytes: Figure | None  # part of Q that all share; None where the platform cannot tell
    operand_wait_ns: Figure | None  # how long loads may wait behind one burst; None likewise

    @property
    def isolated_issue_ns(self) -> float:
        """Equation 7: T_iss of a burst that finds the path idle."""
        return float(
            burst_gap.isolated_issue_ns(
                free_issue_ns=self.free_issue_ns.value,
                volume_bytes=self.volume_bytes.value,
                drain_bytes_per_s=self.drain_bytes_per_s.value,
                capacity_bytes=self.capacity_bytes.value,
            )
        )

    def rate_ok(self, gap_ns: float) -> bool:
        """The rate bound of equation 10 at a gap, which G* is the least to hold."""
        return gap_ns >= self.recovery_gap_ns.value

    @property
    def capacity_ok(self) -> bool:
        """The capacity bound of equation 10."""
        return self.peak_outstanding_bytes.value <= self.capacity_bytes.value

    def paced(self, gap: Figure, part: float) -> BurstTerms:
        """The same bursts, which warps of their own spread over ``part`` of the gap.

        That is T0 as the path sees it, and loads wait only behind what R falls short of it. The gap has to
        drain all of a burst: nothing adds to it.
        """
        pace = derived(max(self.free_issue_ns.value, part * gap.value), f"{part:.3g} of G: paced stores", gap)
        peak_bytes = burst_gap.peak_outstanding_bytes(
            free_issue_ns=pace.value,
            volume_bytes=self.volume_bytes.value,
            drain_bytes_per_s=self.drain_bytes_per_s.value,
        )
        peak = derived(float(peak_bytes), "equation 6 with the pace as T0", self.volume_bytes, pace)
        wait = None if self.operand_wait_ns is None else _operand_wait(peak, self.drain_bytes_per_s)
        return replace(
            self,
            free_issue_ns=pace,
            recovery_gap_ns=derived(self.drain_ns.value, "V/R: paced stores", self.drain_ns),
            peak_outstanding_bytes=peak,
            operand_wait_ns=wait,
        )

    def largest_burst_bytes(self, gap_ns: float) -> Figure | None:
        """The largest burst of each producer, at most today's, that passes both bounds; None if none does."""
        sizes = np.arange(_STORE_BYTES, self.burst_bytes.value + _STORE_BYTES, _STORE_BYTES)
        free_issue_ns = queries.issue_ns(self.platform, self.flavour, self.producers, sizes)
        passing = sizes[self._passes(gap_ns, free_issue_ns, self.producers, sizes)]
        return self._limit(float(passing.max()), self.producers, passing.max()) if passing.size else None

    def most_producers(self, gap_ns: float) -> Figure | None:
        """The most aligned producers, at most today's, that pass both bounds; None if not even one does."""
        size = self.burst_bytes.value
        counts = np.arange(1, self.producers + 1)
        free_issue_ns = [queries.issue_ns(self.platform, self.flavour, float(k), size) for k in counts]
        passing = counts[self._passes(gap_ns, free_issue_ns, counts, size)]
        return self._limit(float(passing.max()), int(passing.max()), size) if passing.size else None

    def _passes(
        self, gap_ns: float, free_issue_ns: ArrayLike, producers: ArrayLike, burst_bytes: ArrayLike
    ) -> NDArray[np.bool_]:
        return burst_gap.design_test(
            gap_ns=gap_ns,
            free_issue_ns=free_issue_ns,
            volume_bytes=np.multiply(producers, burst_bytes),
            drain_bytes_per_s=self.drain_bytes_per_s.value,
            capacity_bytes=queries.capacity_bytes(self.platform, self.flavour, producers),
        ).satisfied

    def _limit(self, value: float, producers: int, burst_bytes: float) -> Figure:
        """A limit that rests on T0 and Q at the burst it allows."""
        free = _free_issue(self.platform, self.flavour, producers, burst_bytes)
        capacity = _capacity(self.platform, self.flavour, producers)
        return derived(value, "both bounds of equation 10, solved", free, capacity)


def burst_terms(
    platform: PlatformProfile, flavour: StoreFlavour, producers: int, burst_bytes: Figure
) -> BurstTerms:
    """The terms of ``producers`` aligned bursts.

    Raises:
        UsageError: the platform has no issue times or no capacity for the store flavour.
    """
    drain = _of_profile(platform.drain.bytes_per_s, platform.drain.source)
    free = _free_issue(platform, flavour, producers, burst_bytes.value)
    volume = derived(producers * burst_bytes.value, f"K*B of {producers} aligned producers", burst_bytes)
    burst = {
        "free_issue_ns": free.value,
        "volume_bytes": volume.value,
        "drain_bytes_per_s": drain.value,
    }
    peak = derived(float(burst_gap.peak_outstanding_bytes(**burst)), "equation 6, V - R*T0", volume, free)
    room = _shared_room(platform, flavour)
    return BurstTerms(
        platform=platform,
        flavour=flavour,
        producers=producers,
        burst_bytes=burst_bytes,
        volume_bytes=volume,
        drain_bytes_per_s=drain,
        free_issue_ns=free,
        capacity_bytes=_capacity(platform, flavour, producers),
        drain_ns=derived(
            float(burst_gap.drain_ns(volume_bytes=volume.value, drain_bytes_per_s=drain.value)),
            "equation 1, V/R",
            volume,
        ),
        recovery_gap_ns=derived(
            float(burst_gap.recovery_gap_ns(**burst)), "equation 5, V/R - T0", volume, free
        ),
        peak_outstanding_bytes=peak,
        shared_room_bytes=room,
        operand_wait_ns=None if room is None else _operand_wait(peak, drain),
    )


def saturating_producers(
    platform: PlatformProfile, flavour: StoreFlavour, burst_bytes: float
) -> Figure | None:
    """The fewest producers whose bursts, back to back, ask the path for R; None if not even all SMs do.

    The left side of equation 10's rate bound at a gap of 0: ``K*B / T0(K, B) >= R``. More producers store no
    faster together, each only waits longer.

    Raises:
        UsageError: the platform has no issue times for the store flavour.
    """
    for count in range(1, platform.gpu.sm_count + 1):
        free = _free_issue(platform, flavour, count, burst_bytes)
        asked = burst_gap.injection_bytes_per_s(
            gap_ns=0.0, free_issue_ns=free.value, volume_bytes=count * burst_bytes
        )
        if asked >= platform.drain.bytes_per_s:
            return derived(float(count), "the fewest K with K*B / T0 >= R", free)
    return None


def _shared_room(platform: PlatformProfile, flavour: StoreFlavour) -> Figure | None:
    value = shared_room_bytes(platform, flavour)
    if isinf(value):
        return None
    return Figure(value, Basis.DERIVED, "what Q does not grow by with the producers")


def _operand_wait(peak: Figure, drain: Figure) -> Figure:
    """All that is outstanding drains in front of the SMs' loads."""
    wait_ns = burst_gap.drain_ns(volume_bytes=peak.value, drain_bytes_per_s=drain.value)
    return derived(float(wait_ns), "q_peak / R", peak)


def _of_profile(value: float, source: str) -> Figure:
    """A number that the profile has as it is; one of a template that nobody changed is an example."""
    return Figure(value, Basis.ASSUMED if source == TEMPLATE_SOURCE else Basis.MEASURED, source)


def _free_issue(
    platform: PlatformProfile, flavour: StoreFlavour, producers: int, burst_bytes: float
) -> Figure:
    value = float(queries.issue_ns(platform, flavour, producers, burst_bytes))
    points = [point for point in platform.issue if point.flavour == flavour]
    for point in points:
        if (point.producers, point.burst_bytes) == (producers, burst_bytes):
            return _of_profile(value, point.source)
    counts = [point.producers for point in points]
    sizes = [point.burst_bytes for point in points]
    span = f"{_range(sizes)} B and {_range(counts)} producers"
    if _between(points, producers, burst_bytes):
        return Figure(value, Basis.DERIVED, f"between the points of {span}")
    return Figure(value, Basis.ASSUMED, f"extrapolated beyond the points of {span}")


def _between(points: list[IssuePoint], producers: int, burst_bytes: float) -> bool:
    """Whether the curves of the counts next to ``producers``, on both sides, span the burst."""
    counts = {point.producers for point in points}
    if not min(counts) <= producers <= max(counts):
        return False
    nearest = {max(k for k in counts if k <= producers), min(k for k in counts if k >= producers)}
    curves = ([point.burst_bytes for point in points if point.producers == k] for k in nearest)
    return all(min(sizes) <= burst_bytes <= max(sizes) for sizes in curves)


def _capacity(platform: PlatformProfile, flavour: StoreFlavour, producers: int) -> Figure:
    value = float(queries.capacity_bytes(platform, flavour, producers))
    reached = [point for point in platform.capacity if point.flavour == flavour and point.knee_reached]
    law = next((law for law in platform.capacity_law if law.flavour == flavour), None)
    if law is None:
        for point in reached:
            if point.producers == producers:
                return _of_profile(value, point.source)
    counts = [point.producers for point in reached]
    how = f"{law.law} law" if law else "line"
    if not counts:
        return Figure(value, Basis.DERIVED, f"{how} of the profile")
    if min(counts) <= producers <= max(counts):
        return Figure(value, Basis.DERIVED, f"{how} through the knees of {_range(counts)} producers")
    return Figure(value, Basis.ASSUMED, f"{how} beyond the knees of {_range(counts)} producers")


def _range(values: list[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
