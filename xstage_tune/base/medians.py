"""Medians of few samples, and how far they are known."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import median


def median_or_none(values: Sequence[float]) -> float | None:
    """None of no values."""
    return median(values) if values else None


def median_interval95(values: Sequence[float]) -> tuple[float, float] | None:
    """The narrowest pair of order statistics that has the median between it with at least 95% confidence.

    Whatever the distribution: each value is above its median with probability 1/2, so that of n values fewer
    than k are has the binomial one. None of fewer than six, of which even the least and the greatest miss it
    more often.
    """
    ordered, count = sorted(values), len(values)
    outside, rank = 0.0, 0
    while outside + 2 * comb(count, rank) / 2**count <= 0.05:
        outside += 2 * comb(count, rank) / 2**count
        rank += 1
    return (ordered[rank - 1], ordered[-rank]) if rank else None
