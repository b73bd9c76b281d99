"""Two launches timed in turn: their ratio, how sure it is, and when that is sure enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from statistics import fmean, median, stdev

#: Of intervals. They are looked at after every few samples, which a level of 95% would not bear.
LEVEL = 0.99


@dataclass(frozen=True, slots=True)
class Interval:
    """A value, and where it lies at :data:`LEVEL`."""

    low: float
    value: float
    high: float

    def within(self, tolerance: float) -> bool:
        """Whether a ratio surely differs from 1 by no more than a fraction."""
        return 1 - tolerance <= self.low and self.high <= 1 + tolerance

    def settles(self, tolerance: float) -> bool:
        """Whether a ratio needs no more samples: they tell which is less, or that it is a tie."""
        return self.low > 1 or self.high < 1 or self.within(tolerance)


def ratio_of(own_ns: Sequence[float], other_ns: Sequence[float]) -> Interval:
    """Ratio of two times, of samples taken in turn: Student's interval of the mean logarithm of each pair's.

    Args:
        own_ns, other_ns: ``[n]`` each, n > 0; the i-th ones were taken one behind the other.
    """
    return _interval([log(own / other) for own, other in zip(own_ns, other_ns, strict=True)])


def difference_ns(own_ns: Sequence[float], other_ns: Sequence[float]) -> float:
    """By how much a time is longer than another, of samples taken in turn: median of each pair's difference.

    Of the means one sample would decide in which another process had the GPU for some milliseconds.
    """
    return median(own - other for own, other in zip(own_ns, other_ns, strict=True))


def ratio_of_ratios(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Ratio of two times that were both taken in turn with a third: Welch's interval.

    Args:
        first, second: samples of either, over those of the third.
    """
    first_log, second_log = [log(x) for x in first], [log(x) for x in second]
    mean = fmean(first_log) - fmean(second_log)
    if min(len(first_log), len(second_log)) < 2:
        return Interval(0.0, exp(mean), inf)
    parts = [stdev(sample) ** 2 / len(sample) for sample in (first_log, second_log)]
    variance = sum(parts)
    if variance == 0:
        return Interval(exp(mean), exp(mean), exp(mean))
    sizes = (len(first_log), len(second_log))
    freedom = variance**2 / sum(part**2 / (size - 1) for part, size in zip(parts, sizes, strict=True))
    return _around(mean, sqrt(variance), freedom)


def _interval(logs: Sequence[float]) -> Interval:
    mean = fmean(logs)
    if len(logs) < 2:
        return Interval(0.0, exp(mean), inf)
    return _around(mean, stdev(logs) / sqrt(len(logs)), len(logs) - 1)


def _around(mean: float, error: float, freedom: float) -> Interval:
    from scipy.special import stdtrit  # not at the top: reading a result needs no quantile

    half = float(stdtrit(freedom, (1 + LEVEL) / 2)) * error
    return Interval(exp(mean - half), exp(mean), exp(mean + half))
