"""Placement by share: Linear-2 in proportion to the shares, all work balanced, and the order still sound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulator.grids import grids, placements
from xstage_tune.base.errors import UsageError
from xstage_tune.families.megamoe.order import (
    LINEAR1,
    LINEAR2,
    Alternating,
    ClampedLag,
    ExpertWave,
    Interleaved,
    MoeGrid,
    MoeOrder,
    Schedule,
    megamoe_order,
)
from xstage_tune.families.megamoe.placement import MOST_WEIGHT, Placement, deal, share_placement

L1_NS, L2_NS = 25_000.0, 12_700.0
SCHEDULES: list[Schedule] = [ExpertWave(2), Interleaved(4), Alternating(), ClampedLag()]
#: As measured on an H200: 24 SMs with half as much again as the others.
H200_SHARES = np.where(np.arange(132) % 11 < 2, 1.38, 0.92)


def large_grid(cta_group: int = 1) -> MoeGrid:
    return MoeGrid((4096,) * 8, 128, l1_tiles=32, l2_tiles=32, sms=132, cta_group=cta_group)


def tiles_of_sm(order: MoeOrder, layer: int) -> np.ndarray:
    sm = np.repeat(np.arange(order.first.size - 1), np.diff(order.first))
    return np.bincount(sm[order.layer == layer], minlength=order.first.size - 1)


def test_linear_2_follows_the_shares_and_mainloops_balance() -> None:
    grid = large_grid()
    placement = share_placement(grid, H200_SHARES, l1_ns=L1_NS, l2_ns=L2_NS)
    order = megamoe_order(grid, Interleaved(4), placement)
    linear1, linear2 = tiles_of_sm(order, LINEAR1), tiles_of_sm(order, LINEAR2)
    # 8192 tiles of either layer: 62 an SM on average. Weights are 64ths, tiles whole.
    assert np.abs(linear2 - H200_SHARES / H200_SHARES.mean() * 8192 / 132).max() < 2.0
    busy_ns = linear1 * L1_NS + linear2 * L2_NS
    assert np.ptp(busy_ns) < 2 * L1_NS


def test_even_shares_are_the_even_placement() -> None:
    grid = large_grid()
    placement = share_placement(grid, np.ones(132), l1_ns=L1_NS, l2_ns=L2_NS)
    assert set(placement.l1_weights) == set(placement.l2_weights) == {MOST_WEIGHT}
    plain, placed = (megamoe_order(grid, Interleaved(4), which) for which in (None, placement))
    np.testing.assert_array_equal(plain.row, placed.row)
    np.testing.assert_array_equal(plain.n_tile, placed.n_tile)


def test_a_pair_has_the_share_of_both_its_sms() -> None:
    grid = large_grid(cta_group=2)
    shares = np.tile([1.5, 0.5], 66)
    assert len(set(share_placement(grid, shares, l1_ns=1.0, l2_ns=1.0).l2_weights)) == 1


def test_shares_too_uneven_to_balance_are_drawn_to_the_mean() -> None:
    grid = large_grid()
    shares = np.where(np.arange(132) < 12, 8.0, 1.0)
    placement = share_placement(grid, shares, l1_ns=1.0, l2_ns=1.0)
    order = megamoe_order(grid, Interleaved(4), placement)
    work = tiles_of_sm(order, LINEAR1) + tiles_of_sm(order, LINEAR2)
    assert np.ptp(work) <= 5
    assert tiles_of_sm(order, LINEAR1)[:12].max() <= 3
    assert tiles_of_sm(order, LINEAR2)[:12].min() > 1.5 * tiles_of_sm(order, LINEAR2)[12:].max()


@st.composite
def placed_grids(draw: st.DrawFn) -> tuple[MoeGrid, Placement]:
    grid = draw(grids())
    return grid, draw(placements(grid))


@given(placed=placed_grids(), schedule=st.sampled_from(SCHEDULES))
@settings(deadline=None, max_examples=80)
def test_whatever_the_weights_the_conditions_against_deadlock_hold(
    placed: tuple[MoeGrid, Placement], schedule: Schedule
) -> None:
    grid, placement = placed
    order = megamoe_order(grid, schedule, placement)
    assert order.layer.size == grid.rows * (grid.l1_tiles + grid.l2_tiles)
    for begin, end in zip(order.first[:-1], order.first[1:], strict=True):
        layer, row = order.layer[begin:end], order.row[begin:end]
        for which in (LINEAR1, LINEAR2):
            assert (np.diff(row[layer == which]) >= 0).all()  # (a)
        # (b): no Linear-1 of a row follows Linear-2 of that row or a later one.
        latest = np.maximum.accumulate(np.where(layer == LINEAR2, row, -1))
        assert (row[layer == LINEAR1] > latest[layer == LINEAR1]).all()


@given(weights=st.lists(st.integers(0, 64), min_size=1, max_size=20).filter(any), groups=st.integers(0, 3000))
@settings(deadline=None, max_examples=100)
def test_any_part_of_a_stream_is_dealt_by_the_weights(weights: list[int], groups: int) -> None:
    dealt = deal(groups, tuple(weights))
    np.testing.assert_array_equal(np.sort(np.concatenate(dealt)), np.arange(groups))
    for weight, mine in zip(weights, dealt, strict=True):
        # Equal spacing within a cycle: never more than one group from the exact part, either way.
        assert abs(mine.size - groups * weight / sum(weights)) <= 1 + len(weights) / 2


@pytest.mark.parametrize(
    ("l1", "l2"), [((0, 0), (1, 1)), ((1, 65), (1, 1)), ((1, -1), (1, 1)), ((1, 1), (1, 1, 1))]
)
def test_weights_out_of_range_are_refused(l1: tuple[int, ...], l2: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="placement"):
        Placement(l1, l2)


def test_a_placement_for_other_instances_is_refused() -> None:
    with pytest.raises(UsageError, match="a placement of 2 instances does not fit 132"):
        megamoe_order(large_grid(), Interleaved(1), Placement((1, 1), (1, 1)))


@pytest.mark.parametrize("shares", [np.ones(131), np.zeros(132), -np.ones(132)])
def test_shares_that_are_none_are_refused(shares: np.ndarray) -> None:
    with pytest.raises(UsageError, match="132 positive shares"):
        share_placement(large_grid(), shares, l1_ns=1.0, l2_ns=1.0)
