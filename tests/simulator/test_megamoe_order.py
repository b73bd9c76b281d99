"""Tile orders: every tile once, Algorithm 1 to the letter, nothing before what it reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulator.cases import constant_rate
from tests.simulator.grids import grids, schedules
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
from xstage_tune.families.megamoe.streams import MoeStores, given_mainloop_ns, megamoe_streams
from xstage_tune.simulator.drain import DrainModel
from xstage_tune.simulator.pipeline import PipelineConfig, simulate

STORES = MoeStores(
    l1_bytes_per_token=128, l2_bytes_per_token=256, remote_fraction=0.5, local_bytes_per_ns=64, fixed_ns=20
)


def of_sm(order: MoeOrder, sm: int) -> list[tuple[int, int, int]]:
    """(layer, row, n_tile) of one SM, in order."""
    part = slice(order.first[sm], order.first[sm + 1])
    columns = (order.layer[part].tolist(), order.row[part].tolist(), order.n_tile[part].tolist())
    return list(zip(*columns, strict=True))


def algorithm_1(grid: MoeGrid, g: int, r: int, lead: int) -> list[tuple[int, int, int]]:
    """The listing of MODEL.md, step by step."""
    emitted = []
    k1 = k2 = g
    while k1 < grid.rows * grid.l1_groups or k2 < grid.rows * grid.l2_groups:
        p1 = k1 // grid.l1_groups if k1 < grid.rows * grid.l1_groups else float("inf")
        p2 = k2 // grid.l2_groups
        if k2 < grid.rows * grid.l2_groups and p2 + lead <= p1:
            emitted.append((LINEAR2, p2, grid.cta_group * (k2 % grid.l2_groups) + r))
            k2 += grid.instances
        else:
            emitted.append((LINEAR1, int(p1), grid.cta_group * (k1 % grid.l1_groups) + r))
            k1 += grid.instances
    return emitted


@given(grid=grids(), lead=st.integers(1, 30))
@settings(deadline=None, max_examples=80)
def test_interleaving_is_algorithm_1(grid: MoeGrid, lead: int) -> None:
    order = megamoe_order(grid, Interleaved(lead))
    for sm in range(grid.instances * grid.cta_group):
        g, r = divmod(sm, grid.cta_group)
        assert of_sm(order, sm) == algorithm_1(grid, g, r, lead)


@given(grid=grids(), schedule=schedules)
@settings(deadline=None, max_examples=120)
def test_every_tile_comes_exactly_once(grid: MoeGrid, schedule: Schedule) -> None:
    order = megamoe_order(grid, schedule)
    width = max(grid.l1_tiles, grid.l2_tiles)
    tiles = (order.layer.astype(np.int64) * (grid.rows + 1) + order.row) * width + order.n_tile
    assert order.first[-1] == tiles.size == np.unique(tiles).size
    assert np.count_nonzero(order.layer == LINEAR1) == grid.rows * grid.l1_tiles
    assert np.count_nonzero(order.layer == LINEAR2) == grid.rows * grid.l2_tiles
    loads = np.diff(order.first)[: grid.instances * grid.cta_group]
    assert loads.max() - loads.min() <= 2


@given(grid=grids(), schedule=schedules, ring=st.booleans())
@settings(deadline=None, max_examples=120)
def test_no_order_deadlocks_or_reads_what_is_not_written(
    grid: MoeGrid, schedule: Schedule, ring: bool
) -> None:
    order = megamoe_order(grid, schedule)
    ring_rows = order.ring_rows_needed() if ring else None
    mainloop_ns = given_mainloop_ns(order, l1_ns=900.0, l2_ns=500.0)
    streams = megamoe_streams(grid, order, mainloop_ns, STORES, ring_rows=ring_rows)
    drain = DrainModel(20e9, 64e3, constant_rate(50.0), (0,) * grid.sms)
    times = simulate(streams, drain, PipelineConfig(signal_ns=300.0)).times
    written = np.full(grid.rows, -np.inf)
    linear1, linear2 = order.layer == LINEAR1, order.layer == LINEAR2
    np.maximum.at(written, order.row[linear1], times.accepted[linear1] + 300.0)
    assert (times.begin[linear2] >= written[order.row[linear2]]).all()
    if ring_rows is not None:
        read = np.full(grid.rows, -np.inf)
        np.maximum.at(read, order.row[linear2], times.end[linear2] + 300.0)
        reuses = linear1 & (order.row >= ring_rows)
        assert (times.begin[reuses] >= read[order.row[reuses] - ring_rows]).all()


@given(grid=grids(), lead=st.integers(1, 12))
@settings(deadline=None, max_examples=60)
def test_a_lead_of_d_rows_needs_a_ring_of_at_most_d(grid: MoeGrid, lead: int) -> None:
    assert megamoe_order(grid, Interleaved(lead)).ring_rows_needed() <= max(lead, 1)


@given(grid=grids(), experts=st.integers(1, 7))
@settings(deadline=None, max_examples=60)
def test_a_wave_finishes_before_the_next(grid: MoeGrid, experts: int) -> None:
    order = megamoe_order(grid, ExpertWave(experts))
    phase = 2 * (grid.expert_of_row[order.row] // experts) + (order.layer == LINEAR2)
    for begin, end in zip(order.first[:-1], order.first[1:], strict=True):
        assert (np.diff(phase[begin:end]) >= 0).all()


def skeleton_grid() -> MoeGrid:
    """16 rows an expert, each of which gives every SM one tile of either layer."""
    return MoeGrid((16 * 128,) * 3, block_m=128, l1_tiles=132, l2_tiles=132, sms=132)


def layers_of_first_sm(schedule: Schedule, grid: MoeGrid) -> list[int]:
    return [layer for layer, _, _ in of_sm(megamoe_order(grid, schedule), 0)]


def test_the_orders_of_the_skeleton_are_as_described() -> None:
    grid = skeleton_grid()
    assert layers_of_first_sm(ExpertWave(1), grid) == ([1] * 16 + [2] * 16) * 3
    assert layers_of_first_sm(Interleaved(1), grid) == [1, 2] * 48
    assert layers_of_first_sm(Interleaved(4), grid) == [1] * 4 + [2, 1] * 44 + [2] * 4
    assert layers_of_first_sm(Alternating(3), grid) == [1] * 3 + [2, 1] * 45 + [2] * 3
    assert layers_of_first_sm(Alternating(), grid) == [1] * 2 + [2, 1] * 46 + [2] * 2


def test_the_clamped_lag_follows_units_of_8_rows_in_groups_of_4() -> None:
    grid = MoeGrid((128 * 8 * 20,) * 2, block_m=128, l1_tiles=2, l2_tiles=2, sms=2)
    order = megamoe_order(grid, ClampedLag())
    # 40 units: lag 18. Units 0-3 of Linear-2 follow units 0-21 of Linear-1.
    layer, row = order.layer[: order.first[1]], order.row[: order.first[1]]
    first = int(np.flatnonzero(layer == LINEAR2)[0])
    assert first == (18 + 4) * 8
    assert row[first] == 0
    assert order.ring_rows_needed() == (18 + 4) * 8


def test_the_default_warm_up_never_has_to_draw_linear_1_forward() -> None:
    grid = MoeGrid((128 * 40,), block_m=128, l1_tiles=64, l2_tiles=32, sms=24)
    layers = layers_of_first_sm(Alternating(), grid)
    first, last = layers.index(2), len(layers) - 1 - layers[::-1].index(1)
    assert layers[first : last + 1] == ([2, 1] * len(layers))[: last + 1 - first]


def test_empty_experts_and_partial_rows() -> None:
    grid = MoeGrid((0, 130, 0, 64), block_m=64, l1_tiles=2, l2_tiles=2, sms=2)
    assert grid.rows == 4
    assert grid.row_tokens.tolist() == [64, 64, 2, 64]
    assert grid.expert_of_row.tolist() == [1, 1, 1, 3]
    nobody = MoeGrid((0, 0), block_m=64, l1_tiles=2, l2_tiles=2, sms=2)
    for schedule in (ExpertWave(1), Interleaved(1), Alternating(), ClampedLag()):
        assert megamoe_order(nobody, schedule).first.tolist() == [0, 0, 0]


def test_a_partial_row_stores_only_its_tokens() -> None:
    grid = MoeGrid((130,), block_m=128, l1_tiles=2, l2_tiles=2, sms=2)
    order = megamoe_order(grid, Interleaved(1))
    streams = megamoe_streams(grid, order, given_mainloop_ns(order, l1_ns=1.0, l2_ns=1.0), STORES)
    remote = dict(
        zip(zip(order.layer.tolist(), order.row.tolist(), strict=True), streams.remote_bytes, strict=True)
    )
    assert remote == {(1, 0): 0.0, (1, 1): 0.0, (2, 0): 128 * 128.0, (2, 1): 2 * 128.0}


def test_a_ring_too_small_is_refused_with_what_it_needs() -> None:
    grid = skeleton_grid()
    order = megamoe_order(grid, ExpertWave(1))
    with pytest.raises(UsageError, match="ring of 15 rows deadlocks: the schedule needs 16"):
        megamoe_streams(grid, order, np.ones(order.row.size), STORES, ring_rows=15)


def test_without_dependencies_nothing_waits() -> None:
    grid = skeleton_grid()
    order = megamoe_order(grid, Interleaved(1))
    streams = megamoe_streams(grid, order, np.ones(order.row.size), STORES, dependencies=False)
    assert streams.counters == 0
    assert (streams.waits_on == -1).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"l1_tiles": 3}, "3 N-tiles of Linear-1"),
        ({"l2_tiles": 5}, "5 N-tiles of Linear-2"),
        ({"sms": 1}, "1 SMs"),
        ({"block_m": 0}, "block_m"),
        ({"tokens_per_expert": (-1,)}, "negative"),
    ],
)
def test_a_grid_refuses_what_cannot_be_tiled(change: dict[str, object], message: str) -> None:
    good = {"tokens_per_expert": (100,), "block_m": 64, "l1_tiles": 2, "l2_tiles": 2, "sms": 4}
    with pytest.raises(UsageError, match=message):
        MoeGrid(**{**good, **change})  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", [ExpertWave(0), Interleaved(0), Alternating(-1)])
def test_unsound_schedules_are_refused(schedule: Schedule) -> None:
    with pytest.raises(UsageError):
        megamoe_order(skeleton_grid(), schedule)
