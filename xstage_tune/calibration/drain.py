"""R, the aggregate drain rate (equation 1), from zero-gap runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.calibration.bootstrap import REPLICATES, generator, interval95
from xstage_tune.calibration.issue import IssueModel
from xstage_tune.calibration.reduce import Floats, PeriodicFigures
from xstage_tune.model import burst_gap

#: A run is drain-dominated only if its producers, unhindered, would offer this much more than drained.
OFFERED_MARGIN = 1.2
#: ... and only if it reaches this fraction of the rate of the runs with many producers: below, something
#: on the producers' side (an SM's own port) is the limit.
SATURATION_FRACTION = 0.95
#: Of a point's launches.
FREE_QUANTILE = 0.75
#: Cut from each side of the pooled run rates.
TRIM = 0.2


@dataclass(frozen=True, slots=True)
class DrainPoint:
    """One (K, B): the upper quartile of the rates of its launches.

    Other traffic on the path lowers a launch's rate and lasts longer than a window, so of a few launches
    apart in time most may be hit. The highest rate is not taken: now and then one is too high, when
    a host that had fallen behind catches up.
    """

    producers: int
    burst_bytes: int
    bytes_per_s: float
    runs: tuple[PeriodicFigures, ...]


@dataclass(frozen=True, slots=True)
class DrainFit:
    """R with its interval, and the points that it came from."""

    bytes_per_s: float
    ci95: tuple[float, float]
    replicates: Floats  # [REPLICATES]
    points: tuple[DrainPoint, ...]

    @property
    def runs(self) -> tuple[PeriodicFigures, ...]:
        """All launches of all points."""
        return tuple(run for point in self.points for run in point.runs)

    def worst(self) -> DrainPoint:
        """The point whose rate differs most from R."""
        return max(self.points, key=lambda point: abs(point.bytes_per_s / self.bytes_per_s - 1))


def drain_dominated(runs: Sequence[PeriodicFigures], issue: IssueModel) -> NDArray[np.bool_]:
    """Which zero-gap runs the drain limits, ``[runs]``.

    Two conditions, fixed before the data are seen: what the producers would offer with no
    backpressure, ``V / (T0 + G)``, exceeds the measured rate by ``OFFERED_MARGIN``; and the rate is at
    least ``SATURATION_FRACTION`` of the median rate of the upper half of producer counts. The rate is that of
    the run's point.
    """
    if not runs:
        return np.zeros(0, dtype=np.bool_)
    points = {(point.producers, point.burst_bytes): point.bytes_per_s for point in _points(runs)}
    rates = np.array([points[run.point.producers, run.point.burst_bytes] for run in runs])
    offered = np.array([_offered_bytes_per_s(run, issue) for run in runs])
    pushed = offered >= OFFERED_MARGIN * rates
    if not pushed.any():
        return pushed
    producers = np.array([run.point.producers for run in runs])
    many = pushed & (producers >= producers[pushed].max() / 2)
    saturated: NDArray[np.bool_] = pushed & (rates >= SATURATION_FRACTION * np.median(rates[many]))
    return saturated


def fit_drain(runs: Sequence[PeriodicFigures], seed: int) -> DrainFit:
    """Pool drain-dominated runs: the trimmed mean over points of each one's rate.

    The interval resamples points, and within each point the time blocks of its launches.
    """
    points = _points(runs)
    rng = generator(seed, "drain")
    rates = np.array([point.bytes_per_s * _resampled_noise(point.runs, rng) for point in points])
    drawn = rng.integers(len(points), size=(REPLICATES, len(points)))
    replicates = _trimmed_means(rates[drawn, np.arange(REPLICATES)[:, None]])
    return DrainFit(
        bytes_per_s=float(_trimmed_means(np.array([point.bytes_per_s for point in points]))),
        ci95=interval95(replicates),
        replicates=replicates,
        points=points,
    )


def _trimmed_means(values: Floats) -> Floats:
    """``[...]`` mean of each last axis without ``TRIM`` of it at either end.

    As ``scipy.stats.trim_mean``, whose package takes as long to load as much of a calibration.
    """
    count = values.shape[-1]
    cut = int(TRIM * count)
    inner = np.partition(values, (cut, count - cut - 1), axis=-1)[..., cut : count - cut]
    means: Floats = np.mean(inner, axis=-1)
    return means


def _points(runs: Sequence[PeriodicFigures]) -> tuple[DrainPoint, ...]:
    by_size: dict[tuple[int, int], list[PeriodicFigures]] = {}
    for run in runs:
        by_size.setdefault((run.point.producers, run.point.burst_bytes), []).append(run)
    return tuple(
        DrainPoint(
            producers=producers,
            burst_bytes=burst_bytes,
            bytes_per_s=float(np.quantile([run.bytes_per_s for run in same], FREE_QUANTILE)),
            runs=tuple(same),
        )
        for (producers, burst_bytes), same in by_size.items()
    )


def _offered_bytes_per_s(run: PeriodicFigures, issue: IssueModel) -> float:
    point = run.point
    free_ns = issue.free_issue_ns(point.flavour, point.producers, point.burst_bytes)
    offered = burst_gap.injection_bytes_per_s(
        gap_ns=run.gap_ns, free_issue_ns=free_ns, volume_bytes=point.volume_bytes
    )
    return float(offered)


def _resampled_noise(runs: Sequence[PeriodicFigures], rng: np.random.Generator) -> Floats:
    """Replicates of the mean rate of the runs, over that rate, ``[REPLICATES]``."""
    noise = np.zeros(REPLICATES)
    for run in runs:
        blocks = run.block_bytes_per_s / run.block_bytes_per_s.mean()
        noise += blocks[rng.integers(len(blocks), size=(REPLICATES, len(blocks)))].mean(axis=1)
    return noise / len(runs)
