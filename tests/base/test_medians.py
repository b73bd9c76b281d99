"""Intervals of medians."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest

from xstage_tune.base.medians import median_interval95


@pytest.mark.parametrize(
    ("count", "rank"), [(6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (17, 5), (20, 6), (25, 8)]
)
def test_ranks_are_those_of_the_sign_test(count: int, rank: int) -> None:
    """Conover, Practical Nonparametric Statistics: two-sided 5% points of the sign test."""
    values = [float(value) for value in np.random.default_rng(count).permutation(count)]
    assert median_interval95(values) == (rank - 1, count - rank)


@pytest.mark.parametrize("count", range(6))
def test_fewer_than_six_have_none(count: int) -> None:
    assert median_interval95([1.0] * count) is None


@pytest.mark.parametrize("count", [6, 7, 12, 30])
def test_at_least_95_of_100_intervals_have_the_median(count: int) -> None:
    rng = np.random.default_rng(0)
    draws = 4000
    held = 0
    for _ in range(draws):
        values = list(rng.exponential(1.0, count))
        low, high = median_interval95(values) or (0.0, 0.0)
        assert low <= median(values) <= high
        held += low <= np.log(2) <= high
    # Four standard deviations of a binomial below 95%.
    assert held / draws >= 0.95 - 4 * (0.95 * 0.05 / draws) ** 0.5
