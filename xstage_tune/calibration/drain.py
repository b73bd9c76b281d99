"""R, the aggregate drain rate (equation 1), from zero-gap runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from xstage_tune.calibration.bootstrap import REPLICATES, generator, interval95
from xstage_tune.calibration.issue import IssueModel
from xstage_tune.calibration.reduce import Floats, PeriodicFigures
from xstage_tune.model import burst_gap

#: A run is drain-dominated only if its producers, unhindered, would offer this much more than drained.
OFFERED_MARGIN = 1.2
#: ... and only if it reaches this fraction of the rate of the runs with many producers: below, something
#: on the producers' side (an SM's own port) is the limit.
SATURATION_FRACTION = 0.95
#: Cut from each side of the pooled run rates.
TRIM = 0.2


@dataclass(frozen=True, slots=True)
class DrainFit:
    """R with its interval, and the runs that it came from."""

    bytes_per_s: float
    ci95: tuple[float, float]
    replicates: Floats  # [REPLICATES]
    runs: tuple[PeriodicFigures, ...]

    @property
    def spread(self) -> float:
        """Largest relative deviation of a drain-dominated run from R."""
        rates = np.array([run.bytes_per_s for run in self.runs])
        return float(np.abs(rates / self.bytes_per_s - 1).max())


def drain_dominated(runs: Sequence[PeriodicFigures], issue: IssueModel) -> NDArray[np.bool_]:
    """Which zero-gap runs the drain limits, ``[runs]``.

    Two conditions, fixed before the data are seen: what the producers would offer with no
    backpressure, ``V / (T0 + G)``, exceeds the measured rate by ``OFFERED_MARGIN``; and the rate is at
    least ``SATURATION_FRACTION`` of the median rate of the upper half of producer counts.
    """
    if not runs:
        return np.zeros(0, dtype=np.bool_)
    rates = np.array([run.bytes_per_s for run in runs])
    offered = np.array([_offered_bytes_per_s(run, issue) for run in runs])
    pushed = offered >= OFFERED_MARGIN * rates
    if not pushed.any():
        return pushed
    producers = np.array([run.point.producers for run in runs])
    many = pushed & (producers >= producers[pushed].max() / 2)
    saturated: NDArray[np.bool_] = pushed & (rates >= SATURATION_FRACTION * np.median(rates[many]))
    return saturated


def fit_drain(runs: Sequence[PeriodicFigures], seed: int) -> DrainFit:
    """Pool drain-dominated runs: the trimmed mean of their common-window rates.

    The interval resamples runs, and within each run its time blocks.
    """
    rates = np.array([run.bytes_per_s for run in runs])
    rng = generator(seed, "drain")
    block_means = np.array([_resampled_means(run.block_bytes_per_s, rng) for run in runs])
    drawn = rng.integers(len(runs), size=(REPLICATES, len(runs)))
    replicates = stats.trim_mean(block_means[drawn, np.arange(REPLICATES)[:, None]], TRIM, axis=1)
    return DrainFit(
        bytes_per_s=float(stats.trim_mean(rates, TRIM)),
        ci95=interval95(replicates),
        replicates=replicates,
        runs=tuple(runs),
    )


def _offered_bytes_per_s(run: PeriodicFigures, issue: IssueModel) -> float:
    point = run.point
    free_ns = issue.free_issue_ns(point.flavour, point.producers, point.burst_bytes)
    offered = burst_gap.injection_bytes_per_s(
        gap_ns=run.gap_ns, free_issue_ns=free_ns, volume_bytes=point.volume_bytes
    )
    return float(offered)


def _resampled_means(blocks: Floats, rng: np.random.Generator) -> Floats:
    means: Floats = blocks[rng.integers(len(blocks), size=(REPLICATES, len(blocks)))].mean(axis=1)
    return means
