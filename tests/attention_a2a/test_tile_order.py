"""The kernel's tile order, compiled for the host, is the simulator's."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.host_library import host_library
from xstage_tune.cuda.attention_variants import TILE_ORDER_NUMBER
from xstage_tune.families.attention_a2a.config import TileOrder
from xstage_tune.families.attention_a2a.order import AttentionGrid, attention_order

SMS = 7


@pytest.fixture(scope="module")
def kernel_order() -> ctypes.CDLL:
    return host_library(Path(__file__).with_name("order.cpp"), "-std=c++17")


def kernel_tiles(library: ctypes.CDLL, grid: AttentionGrid, order: TileOrder) -> NDArray[np.uint32]:
    """``[2, tiles]``: head and block of every place."""
    sizes = (grid.tokens, grid.heads, grid.block_m, grid.ranks, grid.rank)
    tiles = np.full((2, library.tile_count(*sizes)), 0xFFFFFFFF, np.uint32)
    address = tiles.ctypes.data
    half = tiles.nbytes // 2
    library.tiles(*sizes, TILE_ORDER_NUMBER[order], ctypes.c_void_p(address), ctypes.c_void_p(address + half))
    return tiles


@settings(deadline=None, max_examples=300)
@given(
    tokens=st.integers(1, 40) | st.integers(1, 3000),
    heads=st.integers(1, 3),
    block_m=st.sampled_from([128, 192]),
    group=st.integers(1, 8).flatmap(lambda ranks: st.tuples(st.just(ranks), st.integers(0, ranks - 1))),
    order=st.sampled_from(get_args(TileOrder)),
)
def test_kernel_and_simulator_agree_tile_by_tile(
    kernel_order: ctypes.CDLL, tokens: int, heads: int, block_m: int, group: tuple[int, int], order: TileOrder
) -> None:
    grid = AttentionGrid(heads, tokens, block_m, SMS, *group)
    head, block = kernel_tiles(kernel_order, grid, order)
    simulated = attention_order(grid, order)
    for sm in range(SMS):
        mine = slice(simulated.first[sm], simulated.first[sm + 1])
        assert head[sm::SMS].tolist() == simulated.head[mine].tolist()
        assert block[sm::SMS].tolist() == simulated.m_block[mine].tolist()


@pytest.mark.parametrize("order", get_args(TileOrder))
@pytest.mark.parametrize("tokens", [75_600, 118_800, 4_608])
def test_every_tile_once_at_the_sizes_of_real_models(
    kernel_order: ctypes.CDLL, order: TileOrder, tokens: int
) -> None:
    grid = AttentionGrid(5, tokens, 128, SMS, 8, 3)
    head, block = kernel_tiles(kernel_order, grid, order).astype(np.int64)
    assert np.sort(head * grid.tiles_per_head + block).tolist() == list(range(5 * grid.tiles_per_head))
