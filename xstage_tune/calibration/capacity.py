"""Q(K), the outstanding capacity, from the knee of isolated bursts (equation 7) with R fixed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.calibration.bootstrap import REPLICATES, generator, interval95, resampled_quantiles
from xstage_tune.calibration.drain import DrainFit
from xstage_tune.calibration.issue import CurveKey, IssueModel
from xstage_tune.calibration.reduce import Floats, IsolatedFigures
from xstage_tune.model import burst_gap

#: A burst is stalled when its issue time exceeds T0 by this factor ...
STALL_FACTOR = 1.5
#: ... and at least this fraction of its volume drains in the time beyond T0.
STALL_FRACTION = 0.1
#: Stalled points needed before a knee counts as reached.
MIN_STALLED = 2
#: Relative error granted to each isolated time, beside its own spread. It keeps the fit near the knee,
#: where the fixed slope 1/R matters least.
MODEL_ERROR = 0.02
#: Fraction of the volume to which equation 7 is trusted: its corner is soft, and next to it a time of almost
#: nothing would otherwise outweigh all others.
VOLUME_ERROR = 0.007
#: The fit sees volumes up to this many times Q: beyond, producers finish long before the last one, and
#: the mean over them lies below equation 7.
FIT_REACH = 1.5
#: The region of the fit follows from Q, and Q from the region: settled after a few steps.
REGION_STEPS = 4
#: The first guess of Q is the median over this many smallest volumes that stall.
GUESS_POINTS = 2
#: Every third volume is held out of the fit, if at least this many were measured.
MIN_FOR_HOLD_OUT = 6

_GRID = 1025
_BOOTSTRAP_GRID = 301
_BOOTSTRAP_REACH = 0.3


@dataclass(frozen=True, slots=True)
class IsolatedSeries:
    """The isolated runs of one (flavour, K), by rising volume. Arrays are ``[runs]``."""

    flavour: StoreFlavour
    producers: int
    runs: tuple[IsolatedFigures, ...]
    volume_bytes: Floats
    issue_ns: Floats
    held_out: NDArray[np.bool_]

    @property
    def key(self) -> CurveKey:
        """The (flavour, K) of the series."""
        return self.flavour, self.producers

    def free_issue_ns(self, issue: IssueModel) -> Floats:
        """T0 of each run's burst."""
        sizes = self.volume_bytes / self.producers
        return np.array([issue.free_issue_ns(self.flavour, self.producers, size) for size in sizes])


@dataclass(frozen=True, slots=True)
class CapacityFit:
    """Q of one (flavour, K)."""

    flavour: StoreFlavour
    producers: int
    bytes: float
    ci95: tuple[float, float] | None
    knee_reached: bool  # False: ``bytes`` is only a lower bound
    #: Largest peak (equation 6) at which not even the slowest producer stalled.
    onset_bytes: float
    points: int  # volumes that the fit saw


def isolated_series(runs: Iterable[IsolatedFigures]) -> list[IsolatedSeries]:
    """Group isolated runs, and hold out every third volume of each group but never its ends."""
    by_key: dict[CurveKey, list[IsolatedFigures]] = {}
    for run in sorted(runs, key=lambda r: (r.point.flavour, r.point.producers, r.point.volume_bytes)):
        by_key.setdefault((run.point.flavour, run.point.producers), []).append(run)
    return [_series(*key, members) for key, members in by_key.items()]


def _series(flavour: StoreFlavour, producers: int, runs: Sequence[IsolatedFigures]) -> IsolatedSeries:
    volume = np.array([run.point.volume_bytes for run in runs], dtype=np.float64)
    distinct, rank = np.unique(volume, return_inverse=True)
    held_out = (rank % 3 == 1) & (rank < len(distinct) - 1) & (len(distinct) >= MIN_FOR_HOLD_OUT)
    return IsolatedSeries(
        flavour=flavour,
        producers=producers,
        runs=tuple(runs),
        volume_bytes=volume,
        issue_ns=np.array([run.issue_ns for run in runs]),
        held_out=held_out,
    )


def stalled(series: IsolatedSeries, issue: IssueModel, drain_bytes_per_s: float) -> NDArray[np.bool_]:
    """Which runs of the series show backpressure beyond doubt, ``[runs]``."""
    free_ns = series.free_issue_ns(issue)
    drained = (series.issue_ns - free_ns) * drain_bytes_per_s * 1e-9
    beyond: NDArray[np.bool_] = (series.issue_ns > STALL_FACTOR * free_ns) & (
        drained > STALL_FRACTION * series.volume_bytes
    )
    return beyond


def _onset_bytes(series: IsolatedSeries, free_ns: Floats, drain_bytes_per_s: float) -> float:
    """The largest peak (equation 6) at which the slowest producer does not stall."""
    slowest = np.array([run.slowest_ns for run in series.runs])
    peaks = burst_gap.peak_outstanding_bytes(
        free_issue_ns=free_ns, volume_bytes=series.volume_bytes, drain_bytes_per_s=drain_bytes_per_s
    )
    return float(peaks[slowest <= STALL_FACTOR * free_ns].max(initial=1.0))


def guess_capacity(series: IsolatedSeries, issue: IssueModel, drain_bytes_per_s: float) -> float | None:
    """Q from the stalled runs nearest the knee, the median of ``V - R*T``; None when none stalled.

    Needs no good T0: it serves to plan around the knee and to tell which plateaus stall on capacity.
    """
    return _implied_bytes(series, stalled(series, issue, drain_bytes_per_s), drain_bytes_per_s)


def _implied_bytes(
    series: IsolatedSeries, waits: NDArray[np.bool_], drain_bytes_per_s: float
) -> float | None:
    """Median of ``V - R*T`` over the smallest volumes that wait."""
    first = np.flatnonzero(waits)[:GUESS_POINTS]
    if not first.size:
        return None
    implied = series.volume_bytes[first] - drain_bytes_per_s * series.issue_ns[first] * 1e-9
    return float(max(np.median(implied), 0.0))


def fit_capacity(series: IsolatedSeries, issue: IssueModel, drain: DrainFit, seed: int) -> CapacityFit:
    """Fit equation 7 with R fixed to the volumes around the knee that are not held out.

    Soft-L1 loss on errors relative to what :func:`_error_ns` grants, minimised over a grid
    that is then refined, since the law's corner gives a gradient nothing to follow. The interval
    resamples volumes, the bursts of each, and R.
    """
    all_free_ns = series.free_issue_ns(issue)
    onset = _onset_bytes(series, all_free_ns, drain.bytes_per_s)
    waits = stalled(series, issue, drain.bytes_per_s) & ~series.held_out
    guess = _implied_bytes(series, waits, drain.bytes_per_s)
    seen = _near_knee(series.volume_bytes, waits, guess) & ~series.held_out
    volume, free_ns = series.volume_bytes[seen], all_free_ns[seen]
    mask = waits[seen]
    if mask.sum() < MIN_STALLED:
        return _lower_bound(series, volume[~mask], free_ns[~mask], drain.bytes_per_s, onset)

    for _ in range(REGION_STEPS):
        runs = [run for run, keep in zip(series.runs, seen, strict=True) if keep]
        volume, free_ns = series.volume_bytes[seen], all_free_ns[seen]
        capacity = _fitted(runs, volume, free_ns, drain.bytes_per_s)
        seen = _near_knee(series.volume_bytes, waits, capacity) & ~series.held_out

    return CapacityFit(
        flavour=series.flavour,
        producers=series.producers,
        bytes=max(capacity, 1.0),
        ci95=interval95(_replicates(capacity, runs, volume, free_ns, drain, seed)),
        knee_reached=True,
        onset_bytes=onset,
        points=len(runs),
    )


def _fitted(
    runs: Sequence[IsolatedFigures], volume_bytes: Floats, free_ns: Floats, drain_bytes_per_s: float
) -> float:
    """The Q of least loss, on a grid that is then refined."""
    measured = np.array([run.issue_ns for run in runs])
    error_ns = _error_ns(runs, drain_bytes_per_s)
    coarse = np.linspace(0.0, volume_bytes.max(), _GRID)
    best = _best(coarse, volume_bytes, free_ns, measured, error_ns, drain_bytes_per_s)
    step = coarse[1]
    fine = np.linspace(max(best - step, 0.0), best + step, _GRID)
    return _best(fine, volume_bytes, free_ns, measured, error_ns, drain_bytes_per_s)


def _replicates(
    capacity: float,
    runs: Sequence[IsolatedFigures],
    volume_bytes: Floats,
    free_ns: Floats,
    drain: DrainFit,
    seed: int,
) -> Floats:
    """Q refitted to resampled volumes, bursts and R, ``[REPLICATES]``."""
    rng = generator(seed, "capacity", runs[0].point.flavour, runs[0].point.producers)
    times = np.array([resampled_quantiles(run.burst_ns, 0.5, rng) for run in runs])
    error_ns = _error_ns(runs, drain.bytes_per_s)
    around = capacity * np.linspace(1 - _BOOTSTRAP_REACH, 1 + _BOOTSTRAP_REACH, _BOOTSTRAP_GRID)
    replicates = np.empty(REPLICATES)
    for replicate, rate in enumerate(drain.replicates):
        drawn = rng.integers(len(runs), size=len(runs))
        replicates[replicate] = _best(
            around,
            volume_bytes[drawn],
            free_ns[drawn],
            times[drawn, replicate],
            error_ns[drawn],
            float(rate),
        )
    return replicates


def _near_knee(volume_bytes: Floats, waits: NDArray[np.bool_], guess: float | None) -> NDArray[np.bool_]:
    """Volumes up to ``FIT_REACH`` times Q, or further until ``MIN_STALLED`` of them wait."""
    if guess is None:
        return np.ones_like(waits)
    needed = volume_bytes[waits][:MIN_STALLED].max(initial=0.0)
    near: NDArray[np.bool_] = volume_bytes <= max(FIT_REACH * guess, needed)
    return near


def _lower_bound(
    series: IsolatedSeries,
    free_volume: Floats,
    free_ns: Floats,
    drain_bytes_per_s: float,
    onset_bytes: float,
) -> CapacityFit:
    """The largest peak (equation 6) among the bursts that did not stall."""
    peaks = burst_gap.peak_outstanding_bytes(
        free_issue_ns=free_ns, volume_bytes=free_volume, drain_bytes_per_s=drain_bytes_per_s
    )
    return CapacityFit(
        flavour=series.flavour,
        producers=series.producers,
        bytes=float(peaks.max(initial=1.0)),
        ci95=None,
        knee_reached=False,
        onset_bytes=onset_bytes,
        points=int((~series.held_out).sum()),
    )


def _error_ns(runs: Sequence[IsolatedFigures], drain_bytes_per_s: float) -> Floats:
    """What each isolated time may differ from equation 7 by, ``[runs]``."""
    of_time = [max(run.spread_ns, MODEL_ERROR * run.issue_ns) for run in runs]
    of_volume = [VOLUME_ERROR * run.point.volume_bytes / drain_bytes_per_s * 1e9 for run in runs]
    return np.hypot(of_time, of_volume)


def _best(
    candidates: Floats,
    volume_bytes: Floats,
    free_ns: Floats,
    measured_ns: Floats,
    error_ns: Floats,
    drain_bytes_per_s: float,
) -> float:
    """The candidate Q with the least soft-L1 loss."""
    predicted = burst_gap.isolated_issue_ns(
        free_issue_ns=free_ns,
        volume_bytes=volume_bytes,
        drain_bytes_per_s=drain_bytes_per_s,
        capacity_bytes=candidates[:, None],
    )
    squared = ((measured_ns - predicted) / error_ns) ** 2
    loss = 2 * (np.sqrt(1 + squared) - 1)
    return float(candidates[np.argmin(loss.sum(axis=1))])
