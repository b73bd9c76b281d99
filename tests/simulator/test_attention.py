"""Attention's tile orders and streams."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulator import residual_us
from xstage_tune.devices.simulator.attention import OutputStores, QLoop, attention_streams
from xstage_tune.devices.simulator.attention_order import AttentionGrid, TileOrder, attention_order
from xstage_tune.errors import UsageError

ORDERS: tuple[TileOrder, ...] = ("sequential", "rotated", "spread")


@given(
    heads=st.integers(1, 5),
    tokens=st.integers(1, 3000),
    block_m=st.sampled_from([64, 128, 192]),
    sms=st.integers(1, 40),
    ranks=st.integers(1, 8),
    order=st.sampled_from(ORDERS),
    data=st.data(),
)
@settings(deadline=None, max_examples=120)
def test_every_row_is_stored_once_and_own_rows_stay(
    heads: int, tokens: int, block_m: int, sms: int, ranks: int, order: TileOrder, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, ranks - 1))
    grid = AttentionGrid(heads, tokens, block_m, sms, ranks, rank)
    tiles = attention_order(grid, order)
    keys = tiles.head * grid.tiles_per_head + tiles.m_block
    assert np.sort(keys).tolist() == list(range(heads * grid.tiles_per_head))
    assert tiles.rows.sum() == heads * tokens
    owner = np.arange(tokens) // -(-tokens // ranks)
    assert tiles.remote_rows.sum() == heads * np.count_nonzero(owner != rank)
    assert (tiles.remote_rows >= 0).all()
    assert np.diff(tiles.first).max() - np.diff(tiles.first).min() <= 1


def test_a_tile_that_straddles_two_ranks_is_remote_in_part() -> None:
    grid = AttentionGrid(heads=1, tokens=400, block_m=128, sms=1, ranks=2, rank=0)
    assert attention_order(grid, "sequential").remote_rows.tolist() == [0, 56, 128, 16]


def test_counting_every_byte_as_remote() -> None:
    grid = AttentionGrid(heads=2, tokens=300, block_m=128, sms=4)
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


def test_a_partial_tile_computes_in_full_and_stores_its_rows() -> None:
    grid = AttentionGrid(heads=1, tokens=200, block_m=128, sms=2)
    loop = QLoop(block_n=128, kv_tile_ns=790.0, fixed_ns=100.0, cover_ns=300.0)
    stores = OutputStores(row_bytes=256, local_bytes_per_ns=64)
    streams = attention_streams(grid, attention_order(grid, "sequential"), loop, stores)
    assert streams.mainloop_ns.tolist() == [1680.0, 1680.0]
    assert streams.remote_bytes.tolist() == [128 * 256.0, 72 * 256.0]
    assert streams.slot_offset_ns.tolist() == [300.0, 300.0]


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
    "wrong", [{"tokens": 0}, {"sms": 0}, {"rank": 8}, {"rank": -1}, {"heads": 0}, {"block_m": -128}]
)
def test_a_grid_refuses_what_cannot_be_tiled(wrong: dict[str, int]) -> None:
    good = {"heads": 4, "tokens": 8192, "block_m": 128, "sms": 148}
    with pytest.raises(UsageError, match="attention"):
        AttentionGrid(**{**good, **wrong})
