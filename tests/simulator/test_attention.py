"""Attention's tile orders and streams."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.simulator import residual_us
from xstage_tune.base.errors import UsageError
from xstage_tune.families.attention_a2a.config import TileOrder
from xstage_tune.families.attention_a2a.order import (
    AttentionGrid,
    AttentionOrder,
    attention_order,
    last_round_remote_rows,
)
from xstage_tune.families.attention_a2a.streams import OutputStores, QLoop, attention_streams

ORDERS: tuple[TileOrder, ...] = get_args(TileOrder)


@st.composite
def grids(draw: st.DrawFn, *, whole_tiles: bool = False) -> AttentionGrid:
    """Any grid; with ``whole_tiles`` one whose ranks all own as many, none of which straddles two."""
    ranks, block_m = draw(st.integers(1, 8)), draw(st.sampled_from([64, 128, 192]))
    kv_splits = draw(st.sampled_from([1, 2]))
    tokens = block_m * ranks * draw(st.integers(1, 4)) if whole_tiles else draw(st.integers(1, 3000))
    return AttentionGrid(
        heads=draw(st.integers(1, 5)),
        tokens=tokens,
        block_m=block_m,
        sms=draw(st.integers(kv_splits, 40)),
        ranks=ranks,
        rank=draw(st.integers(0, ranks - 1)),
        local_ranks=draw(st.integers(0, ranks)),
        kv_splits=kv_splits,
    )


def in_places(grid: AttentionGrid, order: AttentionOrder) -> NDArray[np.int64]:
    """Indices of an order's tiles, which go SM by SM, by their places; of a split tile by its parts."""
    sm = np.repeat(np.arange(grid.sms), np.diff(order.first))
    return np.argsort((np.arange(sm.size) - order.first[sm]) * grid.sms + sm)


def first_rows(grid: AttentionGrid, order: AttentionOrder) -> NDArray[np.int64]:
    return order.m_block * grid.block_m + order.part * (grid.block_m // grid.kv_splits)


@given(grids(), st.sampled_from(ORDERS))
@settings(deadline=None, max_examples=200)
def test_every_row_is_stored_once_and_rows_of_local_ranks_stay(grid: AttentionGrid, order: TileOrder) -> None:
    tiles = attention_order(grid, order)
    splits = grid.kv_splits
    keys = (tiles.head * grid.tiles_per_head + tiles.m_block) * splits + tiles.part
    assert np.sort(keys).tolist() == list(range(grid.heads * grid.tiles_per_head * splits))
    stored_rows = np.zeros((grid.heads, grid.tokens), np.int64)
    for head, first, rows in zip(tiles.head, first_rows(grid, tiles), tiles.rows, strict=True):
        stored_rows[head, first : first + rows] += 1
    assert (stored_rows == 1).all()
    assert tiles.rows.sum() == grid.heads * grid.tokens
    owner = np.arange(grid.tokens) // -(-grid.tokens // grid.ranks)
    remote = (owner - grid.rank) % grid.ranks >= grid.local_ranks
    begin = first_rows(grid, tiles)
    stored = [remote[first : first + rows].sum() for first, rows in zip(begin, tiles.rows, strict=True)]
    assert tiles.remote_rows.tolist() == stored
    per_sm = np.diff(tiles.first)
    in_teams = grid.sms // splits * splits
    assert (per_sm[in_teams:] == 0).all()
    assert per_sm[:in_teams].max() - per_sm[:in_teams].min() <= 1
    assert ((per_sm > 0).sum(), per_sm.max()) == (grid.ctas, grid.rounds)
    by_place = in_places(grid, tiles)
    last_round = by_place[(by_place.size - 1) // in_teams * in_teams :]
    assert last_round_remote_rows(grid, order) == tiles.remote_rows[last_round].sum()


@given(grids())
@settings(deadline=None, max_examples=100)
def test_own_last_ends_with_all_own_tiles(grid: AttentionGrid) -> None:
    """So no order of whole tiles has fewer tiles of other ranks among its last ones, however many."""
    tiles = attention_order(grid, "own-last")
    by_place = in_places(grid, tiles)
    begin = tiles.m_block[by_place] * grid.block_m
    own = begin // -(-grid.tokens // grid.ranks) == grid.rank
    assert not (own[:-1] & ~own[1:]).any()
    heads = tiles.head[by_place]
    for part in (own, ~own):
        assert (np.diff(heads[part]) >= 0).all()


@given(grids(whole_tiles=True))
@settings(deadline=None, max_examples=100)
def test_of_whole_tiles_own_last_leaves_least_to_drain(grid: AttentionGrid) -> None:
    """Of ragged ones not always: an own tile that straddles the next rank's rows may be last."""
    grid = replace(grid, local_ranks=1)
    left = {order: last_round_remote_rows(grid, order) for order in ORDERS}
    assert left["own-last"] == min(left.values())


@pytest.mark.parametrize(
    ("tokens", "ranks", "rank", "blocks"),
    [
        (1024, 4, 1, [4, 5, 6, 7, 0, 1] * 2 + [2, 3] * 2),
        (1024, 4, 3, [0, 1, 2, 3, 4, 5] * 2 + [6, 7] * 2),
        (400, 2, 0, [2, 3] * 2 + [0, 1] * 2),  # 200 rows a rank: tile 1 straddles, and is of rank 0
        (400, 2, 1, [0, 1] * 2 + [2, 3] * 2),
        (9, 8, 6, [0] * 2),  # rank 6 owns no token
        (100, 8, 0, [0] * 2),  # one tile, of rank 0
        (100, 8, 5, [0] * 2),
        (400, 1, 0, [0, 1, 2, 3] * 2),
    ],
)
def test_own_last_by_hand(tokens: int, ranks: int, rank: int, blocks: list[int]) -> None:
    grid = AttentionGrid(heads=2, tokens=tokens, block_m=128, sms=1, ranks=ranks, rank=rank)
    assert attention_order(grid, "own-last").m_block.tolist() == blocks


def test_a_tile_that_straddles_two_ranks_is_remote_in_part() -> None:
    grid = AttentionGrid(heads=1, tokens=400, block_m=128, sms=1, ranks=2, rank=0)
    assert attention_order(grid, "sequential").remote_rows.tolist() == [0, 56, 128, 16]


def test_a_team_makes_each_of_its_tiles_together() -> None:
    """Two teams of five CTAs: of two tiles of 200 rows, rank 0 owns the first 100."""
    grid = AttentionGrid(heads=2, tokens=200, block_m=128, sms=5, ranks=2, rank=0, kv_splits=2)
    order = attention_order(grid, "sequential")
    assert (grid.teams, grid.ctas, grid.rounds) == (2, 4, 2)
    assert order.first.tolist() == [0, 2, 4, 6, 8, 8]  # the fifth CTA gets none
    assert order.head.tolist() == [0, 1] * 4
    assert order.m_block.tolist() == [0] * 4 + [1] * 4
    assert order.part.tolist() == [0, 0, 1, 1] * 2
    assert order.rows.tolist() == [64, 64, 64, 64, 64, 64, 8, 8]
    assert order.remote_rows.tolist() == [0, 0, 28, 28, 64, 64, 8, 8]
    assert last_round_remote_rows(grid, "sequential") == 28 + 64 + 8


def test_the_later_part_of_a_short_tile_has_no_rows() -> None:
    grid = AttentionGrid(heads=1, tokens=150, block_m=128, sms=4, local_ranks=0, kv_splits=2)
    order = attention_order(grid, "sequential")
    assert order.rows.tolist() == order.remote_rows.tolist() == [64, 64, 22, 0]


def test_counting_every_byte_as_remote() -> None:
    grid = AttentionGrid(heads=2, tokens=300, block_m=128, sms=4, local_ranks=0)
    order = attention_order(grid, "sequential")
    assert np.array_equal(order.rows, order.remote_rows)


def first_blocks(order: TileOrder, rank: int) -> list[int]:
    grid = AttentionGrid(heads=1, tokens=4096, block_m=128, sms=1, ranks=4, rank=rank)
    return attention_order(grid, order).m_block[:5].tolist()


def test_orders_begin_where_they_say() -> None:
    assert first_blocks("sequential", 1) == [0, 1, 2, 3, 4]
    assert first_blocks("rotated", 1) == [16, 17, 18, 19, 20]
    assert first_blocks("rotated", 3) == [0, 1, 2, 3, 4]
    assert first_blocks("spread", 1) == [16, 24, 0, 8, 17]
    assert first_blocks("own-last", 1) == [16, 17, 18, 19, 20]


def test_a_partial_tile_computes_in_full_and_stores_its_rows() -> None:
    grid = AttentionGrid(heads=1, tokens=200, block_m=128, sms=2, local_ranks=0)
    loop = QLoop(block_n=128, kv_tile_ns=790.0, fixed_ns=100.0, cover_ns=300.0)
    stores = OutputStores(row_bytes=256, local_bytes_per_ns=64)
    streams = attention_streams(grid, attention_order(grid, "sequential"), loop, stores)
    assert streams.mainloop_ns.tolist() == [1680.0, 1680.0]
    assert streams.remote_bytes.tolist() == [128 * 256.0, 72 * 256.0]
    assert streams.slot_offset_ns.tolist() == [300.0, 300.0]


@pytest.mark.parametrize(("tokens", "kv_tiles"), [(256, 1), (257, 2), (8192, 32), (8193, 33)])
def test_who_shares_a_tile_goes_over_the_larger_half_of_the_kv_tiles_and_exchanges(
    tokens: int, kv_tiles: int
) -> None:
    loop = QLoop(block_n=128, kv_tile_ns=790.0, fixed_ns=100.0, kv_splits=2, exchange_ns=3000.0)
    assert loop.gap_ns(tokens) == 100.0 + kv_tiles * 790.0 + 3000.0


def test_the_fused_residual_is_an_issue_floor_and_the_coupled_one_grows_with_the_waves() -> None:
    """Figure 11: the paper predicts a floor against a growth from about 16 us to about 120 us."""
    tokens = (8192, 65_536)
    waves = [-(-4 * m // 128 // 148) for m in tokens]
    # Piggybacked: the part of T0 = 0.76 us that the cover of 0.395 us leaves, each wave; the last in full.
    fused = [residual_us(m, coupled=False) for m in tokens]
    assert fused == pytest.approx([n * 0.365 + 0.395 for n in waves], abs=0.01)
    # Coupled: V/R + T_lat - T_cover for each wave of 148 aligned tiles (equation 17), T_lat = 0.8 us.
    coupled = [residual_us(m, coupled=True) for m in tokens]
    assert coupled[1] == pytest.approx(waves[1] * (148 * 32.768 / 717 + 0.8 - 0.395), rel=0.05)
    assert coupled[1] - coupled[0] > 10 * (fused[1] - fused[0])


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens": 0},
        {"sms": 0},
        {"rank": 8},
        {"rank": -1},
        {"heads": 0},
        {"block_m": -128},
        {"local_ranks": -1},
        {"local_ranks": 9},
        {"kv_splits": 0},
        {"kv_splits": 3},
        {"kv_splits": 2, "sms": 1},
    ],
)
def test_a_grid_refuses_what_cannot_be_tiled(wrong: dict[str, int]) -> None:
    good = {"heads": 4, "tokens": 8192, "block_m": 128, "sms": 148}
    with pytest.raises(UsageError, match="attention"):
        AttentionGrid(**{**good, **wrong})
