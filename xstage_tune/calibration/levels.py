"""One-dimensional clustering of service rates into levels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xstage_tune.calibration.reduce import Floats, Ints

MAX_LEVELS = 8


def levels(values: Floats, noise: float) -> Ints:
    """Assign each value to a level, numbered by rising value, ``[n]``.

    For each number of levels the assignment with the least squared error is found exactly (dynamic
    programming over the sorted values). The number is the one with the least integrated classification
    likelihood: Gaussian errors of one common variance, not below ``noise`` squared, plus the entropy of
    the assignment, plus a BIC penalty for each level. The entropy keeps noise from being cut up.

    Args:
        values: ``[n]``.
        noise: error of a value, below which differences mean nothing; positive.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    most = min(MAX_LEVELS, len(values))
    errors, cuts = _optimal_cuts(ordered, most)
    candidates = [_bounds(cuts, count, len(values)) for count in range(1, most + 1)]
    scores = [
        _score(bounds, float(errors[count, -1]), noise, len(values))
        for count, bounds in enumerate(candidates, start=1)
    ]
    bounds = candidates[int(np.argmin(scores))]
    labels = np.empty(len(values), dtype=np.int64)
    labels[order] = np.searchsorted(bounds[1:-1], np.arange(len(values)), side="right")
    return labels


def _optimal_cuts(ordered: Floats, most: int) -> tuple[Floats, Ints]:
    """Least squared error of the first i values in c levels, ``[c, i]``, and where the last level starts."""
    n = len(ordered)
    # Centring keeps the prefix sums of squares from cancelling.
    centred = ordered - ordered.mean()
    total = np.concatenate([[0.0], np.cumsum(centred)])
    squares = np.concatenate([[0.0], np.cumsum(centred**2)])
    errors = np.full((most + 1, n + 1), np.inf)
    errors[0, 0] = 0.0
    starts = np.zeros((most + 1, n + 1), dtype=np.int64)
    for count in range(1, most + 1):
        for end in range(count, n + 1):
            begin = np.arange(count - 1, end)
            sums = total[end] - total[begin]
            within = np.maximum(squares[end] - squares[begin] - sums**2 / (end - begin), 0.0)
            cost = errors[count - 1, begin] + within
            best = int(np.argmin(cost))
            errors[count, end] = cost[best]
            starts[count, end] = begin[best]
    return errors, starts


def _bounds(starts: Ints, count: int, n: int) -> Ints:
    bounds = [n]
    for level in range(count, 0, -1):
        bounds.append(int(starts[level, bounds[-1]]))
    return np.array(bounds[::-1], dtype=np.int64)


def _score(bounds: Ints, squared_error: float, noise: float, n: int) -> float:
    sizes: NDArray[np.float64] = np.diff(bounds) / n
    entropy = -float(np.sum(sizes * np.log(sizes)))
    variance = squared_error / n + noise**2
    return float(n * np.log(variance) + 2 * n * entropy + 2 * len(sizes) * np.log(n))
