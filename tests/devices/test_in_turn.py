"""Intervals of ratios: they hold the truth as often as they say, and end a measurement no sooner."""

from __future__ import annotations

import random

import pytest

from xstage_tune.launches.in_turn import LEVEL, Interval, difference_ns, ratio_of, ratio_of_ratios

TRIES = 600


def samples(chance: random.Random, mean: float, clocks: list[float], noise: float = 0.01) -> list[float]:
    return [mean * clock * (1 + chance.gauss(0, noise)) for clock in clocks]


@pytest.mark.parametrize("count", [5, 20])
def test_the_interval_holds_the_ratio_as_often_as_it_says_whatever_the_clocks_do(count: int) -> None:
    chance = random.Random(count)
    held = 0
    for _ in range(TRIES):
        clocks = [chance.uniform(0.8, 1.2) for _ in range(count)]
        ratio = ratio_of(samples(chance, 1.03, clocks), samples(chance, 1.0, clocks))
        held += ratio.low <= 1.03 <= ratio.high
    # Three standard deviations of so many tries below the level.
    assert held / TRIES >= LEVEL - 3 * (LEVEL * (1 - LEVEL) / TRIES) ** 0.5


def test_two_that_were_timed_against_a_third_compare_likewise() -> None:
    chance = random.Random(7)
    held = 0
    for _ in range(TRIES):
        first = samples(chance, 0.9, [1.0] * 20)
        second = samples(chance, 1.0, [1.0] * 12, noise=0.03)
        ratio = ratio_of_ratios(first, second)
        held += ratio.low <= 0.9 <= ratio.high
    assert held / TRIES >= LEVEL - 3 * (LEVEL * (1 - LEVEL) / TRIES) ** 0.5


def test_one_sample_settles_nothing_and_equal_ones_all() -> None:
    assert not ratio_of([1.0], [1.5]).settles(0.01)
    assert ratio_of([1.0, 1.0], [1.0, 1.0]) == Interval(1.0, 1.0, 1.0)
    assert ratio_of_ratios([1.0, 1.0], [2.0, 2.0]).high == 0.5


@pytest.mark.parametrize(
    ("low", "high", "settled"),
    [(0.9, 0.95, True), (1.01, 1.02, True), (0.998, 1.002, True), (0.98, 1.004, False), (0.9, 1.1, False)],
)
def test_a_measurement_ends_when_it_tells_which_is_less_or_that_neither_is(
    low: float, high: float, settled: bool
) -> None:
    assert Interval(low, (low + high) / 2, high).settles(0.005) is settled


def test_a_difference_of_turns_is_not_that_of_one_which_another_process_interrupted() -> None:
    assert difference_ns([100.0, 101.0, 5000.0], [90.0, 90.0, 91.0]) == 11.0
