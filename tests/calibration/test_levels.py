"""Clustering of service rates into levels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xstage_tune.calibration.levels import levels


def test_levels_of_an_h200_are_two() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat([1.375, 0.917], [24, 108])
    shuffled = rng.permutation(132)
    labels = levels((truth + 0.01 * rng.standard_normal(132))[shuffled], 0.01)
    assert np.array_equal(labels, (truth[shuffled] > 1).astype(int))


@pytest.mark.parametrize("spread", [1e-6, 0.01, 0.05])
def test_noise_about_one_level_is_one_level(spread: float) -> None:
    rng = np.random.default_rng(1)
    assert levels(1 + spread * rng.standard_normal(132), 0.01).max() == 0


def test_levels_closer_than_the_noise_are_one() -> None:
    assert levels(np.repeat([1.0, 1.005], 20), 0.01).max() == 0


def test_one_value_is_one_level() -> None:
    assert levels(np.array([3.0]), 0.01).tolist() == [0]


@settings(deadline=None, max_examples=40)
@given(
    gaps=st.lists(st.floats(0.2, 1.0), min_size=1, max_size=4),
    sizes=st.lists(st.integers(5, 40), min_size=5, max_size=5),
)
def test_separated_levels_are_found_exactly(gaps: list[float], sizes: list[int]) -> None:
    centres = np.cumsum([1.0, *gaps])
    truth = np.repeat(np.arange(len(centres)), sizes[: len(centres)])
    wiggle = 0.002 * np.sin(np.arange(len(truth)))
    assert levels(centres[truth] + wiggle, 0.01).tolist() == truth.tolist()
