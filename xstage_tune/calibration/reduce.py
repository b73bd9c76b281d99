"""From the spans of one run to its figures, with the traps of measuring a shared path designed out.

* *Common window.* Service is uneven, so rates are bytes over a window in which every producer was
  active: after the last producer's first burst, before the first producer's last one. A producer that
  stops early, or whose spans were dropped, ends the window for all; it never inflates the rate.
* *Filling phase.* Until Q is full, bytes are accepted faster than they drain. The first tenth of the
  common window is always discarded; the marginal standard error rule (White's MSER: the truncation
  that minimises the standard error of what is left) discards up to half.
* *Start to start.* A producer's bytes at time t are interpolated between the starts of its bursts, so
  they are a monotone curve whose slope over whole periods is exactly B / period.
* *Burst-weighted means.* T_iss and G are means over all bursts of the window. Then
  ``T_iss + G = K*B / rate`` holds as an identity (equation 2); a mean of per-producer means would
  exceed it under uneven service, since a mean of reciprocals exceeds the reciprocal of the mean.
* *Isolated bursts.* T_iss is the mean over producers, as for periodic ones. Equation 7 speaks of a burst
  whose producers all push until it ends. Under uneven service they finish one by one, and the last few
  have only their own ports' part of the capacity: ``V - R*T`` of the slowest producer is Q of the few
  that are left (on an H200 with K = 132 it falls from 3 to 1 MB as V grows), while the mean near the knee
  gives the volume that saturated runs accept beyond R*t when they start on an idle path. The slowest
  is kept beside it: it tells where the first producer stalls.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.spans import SpanKind, SpanTable
from xstage_tune.launches.bursts import BurstPoint, BurstRun

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Time blocks of a common window: the unit of the fill detection and of resampling.
BLOCKS = 20
FILL_FRACTION = 0.1
#: A shorter discard is preferred while its squared standard error is within this factor of the least.
FILL_TOLERANCE = 1.5
#: Below this many bursts of the slowest producer a rate is quantised by more than the fit can stand.
MIN_BURSTS = 4
#: Isolated bursts before this one warm translation caches and are discarded.
WARM_BURSTS = 1
MIN_ISOLATED_BURSTS = 3


@dataclass(frozen=True, slots=True)
class RunHealth:
    """What a run says about its own trustworthiness and origin."""

    checked_bytes: int
    mismatched_bytes: int
    dropped: int
    throttle_reasons: tuple[str, ...]
    sm_clock_mhz: float  # true rate of the SM clock, from the clock pairs
    started_at: str
    kernel_sha256: str


@dataclass(frozen=True, slots=True)
class PeriodicFigures:
    """One periodic run over its common window."""

    point: BurstPoint
    health: RunHealth
    window_ns: float
    bytes_per_s: float
    block_bytes_per_s: Floats  # [blocks left after the filling phase]
    lane_bytes_per_s: Floats  # [K]
    sm_ids: Ints  # [K]
    gap_ns: float  # realised, mean over bursts
    issue_ns: float  # mean over bursts
    burst_issue_ns: Floats  # median over producers, by burst number; only numbers that all recorded
    bursts: int  # whole bursts of the slowest producer

    @property
    def period_ns(self) -> float:
        """V over the aggregate rate of the common window."""
        return self.point.volume_bytes / self.bytes_per_s * 1e9


@dataclass(frozen=True, slots=True)
class IsolatedFigures:
    """One isolated run."""

    point: BurstPoint
    health: RunHealth
    burst_ns: Floats  # [bursts], mean over producers of the issue span, each on its own clock
    slowest_ns: float  # median over bursts of the longest issue span

    @property
    def issue_ns(self) -> float:
        """T_iss: median over bursts of the mean over producers."""
        return float(np.median(self.burst_ns))

    @property
    def spread_ns(self) -> float:
        """Standard deviation over bursts, from the median absolute deviation."""
        return float(1.4826 * np.median(np.abs(self.burst_ns - self.issue_ns)))


@dataclass(frozen=True, slots=True)
class UnusableRun:
    """A run whose spans cannot carry the figures, and why."""

    point: BurstPoint
    health: RunHealth
    reason: str


RunFigures = PeriodicFigures | IsolatedFigures | UnusableRun


def reduce_run(run: BurstRun) -> RunFigures:
    """Reduce one run to its figures."""
    table = run.table
    health = _health(run)
    if len(table.lanes) != run.launch.producers:
        return UnusableRun(
            run.launch, health, f"{len(table.lanes)} of {run.launch.producers} producers reported"
        )
    if not np.isfinite(health.sm_clock_mhz):
        return UnusableRun(run.launch, health, "a producer's clock did not advance")
    if run.launch.mode == "isolated":
        return _reduce_isolated(run.launch, table, health)
    return _reduce_periodic(run.launch, table, health)


def periodic(figures: Iterable[RunFigures]) -> list[PeriodicFigures]:
    """The periodic runs among ``figures``."""
    return [figure for figure in figures if isinstance(figure, PeriodicFigures)]


def isolated(figures: Iterable[RunFigures]) -> list[IsolatedFigures]:
    """The isolated runs among ``figures``."""
    return [figure for figure in figures if isinstance(figure, IsolatedFigures)]


def _health(run: BurstRun) -> RunHealth:
    states = [state for state in (run.info.before, run.info.after) if state is not None]
    reasons = {reason for state in states for reason in state.throttle_reasons}
    return RunHealth(
        checked_bytes=run.verification.checked_bytes,
        mismatched_bytes=run.verification.mismatched_bytes,
        dropped=run.table.dropped(),
        throttle_reasons=tuple(sorted(reasons)),
        sm_clock_mhz=_clock_mhz(run.table),
        started_at=run.info.started_at,
        kernel_sha256=run.info.kernel_sha256,
    )


def _clock_mhz(table: SpanTable) -> float:
    """Median over lanes; NaN when a lane's clock pair does not advance."""
    lanes = table.lanes
    stopped = (lanes["tick_end"] <= lanes["tick_begin"]) | (lanes["timer_end_ns"] <= lanes["timer_begin_ns"])
    if len(lanes) == 0 or stopped.any():
        return float("nan")
    return float(np.median(1e3 / table.ns_per_tick()))


@dataclass(frozen=True, slots=True)
class _Issues:
    """Issue spans of a run on the common time axis, ``[n]``, ordered by lane, then by begin."""

    lane: Ints
    index: Ints
    begin_ns: Floats
    duration_ns: Floats
    bounds: Ints  # [K + 1], lane i being bounds[i]:bounds[i + 1]

    @classmethod
    def of(cls, table: SpanTable) -> _Issues:
        keep = table.spans["kind"] == SpanKind.ISSUE
        lane = table.spans["lane"][keep].astype(np.int64)
        return cls(
            lane=lane,
            index=table.spans["index"][keep].astype(np.int64),
            begin_ns=table.begin_ns()[keep],
            duration_ns=table.duration_ns()[keep],
            bounds=np.searchsorted(lane, np.arange(len(table.lanes) + 1)).astype(np.int64),
        )


def _reduce_periodic(point: BurstPoint, table: SpanTable, health: RunHealth) -> RunFigures:
    issues = _Issues.of(table)
    if (np.diff(issues.bounds) < 2).any():
        return UnusableRun(point, health, f"a producer recorded fewer than 2 bursts{_because(health)}")
    begin_ns = float(issues.begin_ns[issues.bounds[:-1]].max())
    end_ns = float(issues.begin_ns[issues.bounds[1:] - 1].min())
    if end_ns <= begin_ns:
        return UnusableRun(point, health, f"no time at which all producers were active{_because(health)}")

    edges = np.linspace(begin_ns + FILL_FRACTION * (end_ns - begin_ns), end_ns, BLOCKS + 1)
    issued = _bursts_at(edges, issues)
    block_rates = np.diff(issued.sum(axis=0)) * point.burst_bytes / np.diff(edges) * 1e9
    skip = _fill_blocks(block_rates)
    lane_bursts = issued[:, -1] - issued[:, skip]
    if lane_bursts.min() < MIN_BURSTS:
        return UnusableRun(
            point,
            health,
            f"the slowest producer issued {lane_bursts.min():.1f} bursts in the common window, "
            f"{MIN_BURSTS} are needed{_because(health)}",
        )
    window_ns = end_ns - float(edges[skip])
    lane_rates = lane_bursts * point.burst_bytes / window_ns * 1e9
    rate = float(lane_rates.sum())

    inside = (issues.begin_ns >= edges[skip]) & (issues.begin_ns < end_ns)
    durations = issues.duration_ns[inside]
    return PeriodicFigures(
        point=point,
        health=health,
        window_ns=window_ns,
        bytes_per_s=rate,
        block_bytes_per_s=block_rates[skip:],
        lane_bytes_per_s=lane_rates,
        sm_ids=table.lanes["sm_id"].astype(np.int64),
        gap_ns=_mean_gap_ns(issues, inside),
        issue_ns=float(durations.mean()),
        burst_issue_ns=_burst_medians(issues.index[inside], durations, point.producers),
        bursts=int(lane_bursts.min()),
    )


def _because(health: RunHealth) -> str:
    return f" ({health.dropped} spans were dropped)" if health.dropped else ""


def _bursts_at(edges_ns: Floats, issues: _Issues) -> Floats:
    """Bursts begun by each producer up to each time, ``[K, times]``, interpolated start to start."""
    spans = zip(issues.bounds[:-1], issues.bounds[1:], strict=True)
    return np.array([np.interp(edges_ns, issues.begin_ns[a:b], issues.index[a:b]) for a, b in spans])


def _fill_blocks(rates: Floats) -> int:
    """Leading blocks to discard: the marginal standard error rule, at most half of them."""
    candidates = range(len(rates) // 2 + 1)
    squared_errors = np.array([rates[skip:].var() / (len(rates) - skip) for skip in candidates])
    return int(np.argmax(squared_errors <= FILL_TOLERANCE * squared_errors.min()))


def _mean_gap_ns(issues: _Issues, inside: NDArray[np.bool_]) -> float:
    """Mean time from the end of a burst to the start of the producer's next one."""
    first = np.flatnonzero(inside[:-1] & (np.diff(issues.lane) == 0) & (np.diff(issues.index) == 1))
    gaps = issues.begin_ns[first + 1] - issues.begin_ns[first] - issues.duration_ns[first]
    return float(max(gaps.mean(), 0.0))


def _burst_medians(index: Ints, durations_ns: Floats, producers: int) -> Floats:
    """Median over producers of each burst number that every producer recorded."""
    complete = np.bincount(index) == producers
    kept = complete[index]
    order = np.argsort(index[kept], kind="stable")
    medians: Floats = np.median(durations_ns[kept][order].reshape(-1, producers), axis=1)
    return medians


def _reduce_isolated(point: BurstPoint, table: SpanTable, health: RunHealth) -> RunFigures:
    issues = _Issues.of(table)
    counts = np.bincount(issues.index, minlength=WARM_BURSTS)
    complete = np.flatnonzero(counts == point.producers)
    complete = complete[complete >= WARM_BURSTS]
    if len(complete) < MIN_ISOLATED_BURSTS:
        return UnusableRun(
            point,
            health,
            f"{len(complete)} bursts were recorded by all producers, {MIN_ISOLATED_BURSTS} are needed"
            f"{_because(health)}",
        )
    longest = np.zeros(len(counts))
    np.maximum.at(longest, issues.index, issues.duration_ns)
    sums = np.bincount(issues.index, weights=issues.duration_ns)
    return IsolatedFigures(
        point=point,
        health=health,
        burst_ns=sums[complete] / point.producers,
        slowest_ns=float(np.median(longest[complete])),
    )
