"""Orders of compared launches: fair to every one of them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from xstage_tune.experiments.launch_order import balanced, rotated


def test_rotation_is_a_rotation() -> None:
    assert [list(rotated(3, by)) for by in range(4)] == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]


@pytest.mark.parametrize("count", range(2, 9))
def test_each_comes_equally_often_at_each_place_and_behind_each_other_one(count: int) -> None:
    repeats = count * (1 + count % 2)
    orders = [list(balanced(count, repeat)) for repeat in range(repeats)]
    assert all(sorted(order) == list(range(count)) for order in orders)
    places = Counter(pair for order in orders for pair in enumerate(order))
    assert set(places.values()) == {repeats // count}
    behind = Counter(pair for order in orders for pair in pairwise(order))
    assert len(behind) == count * (count - 1)
    assert len(set(behind.values())) == 1


def test_the_design_begins_anew() -> None:
    assert list(balanced(6, 7)) == list(balanced(6, 1))
    assert list(balanced(1, 5)) == [0]
