"""Launches that a search refuses to simulate."""

from __future__ import annotations

import pytest

from tests.configs.cases import BLACKWELL, attention, moe
from xstage_tune.base.errors import UsageError
from xstage_tune.families.binding import default_config
from xstage_tune.families.workload import Workload
from xstage_tune.simulator.launch_size import MOST_TILES, require_simulable


def launch(kind: str, rows: int) -> Workload:
    """``rows`` rows of tiles on one rank: of 16 heads, or of (512 + 256) / 128 columns of both Linears."""
    if kind == "attention":
        return attention(heads=16, degree=1, tokens=rows * 128)
    return moe(
        hidden=256, intermediate=256, experts=1, top_k=1, ep_degree=1, tokens_per_rank=rows * 128, routing={}
    )


@pytest.mark.parametrize(("kind", "row_tiles"), [("attention", 16), ("moe", 6)])
def test_the_limit_is_that_of_tiles(kind: str, row_tiles: int) -> None:
    fits = launch(kind, MOST_TILES // row_tiles)
    config = default_config(fits, BLACKWELL).model_copy(update={"block_m": 128, "block_n": 128})
    require_simulable([config], fits, BLACKWELL)
    with pytest.raises(UsageError, match="more than the 20,000,000 that are simulated"):
        require_simulable([config], launch(kind, MOST_TILES // row_tiles + 1), BLACKWELL)


def test_a_tile_that_ctas_share_counts_for_each() -> None:
    workload = launch("attention", MOST_TILES // 16)
    config = default_config(workload, BLACKWELL).model_copy(update={"block_m": 128})
    require_simulable([config], workload, BLACKWELL)
    with pytest.raises(UsageError, match=r"has 40,000,000 tiles on one rank \(of 128x.* in 2 parts"):
        require_simulable([config, config.model_copy(update={"kv_splits": 2})], workload, BLACKWELL)


def test_the_smallest_blocks_count() -> None:
    workload = launch("attention", MOST_TILES // 16)
    config = default_config(workload, BLACKWELL).model_copy(update={"block_m": 128})
    smaller = config.model_copy(update={"block_m": 64})
    with pytest.raises(UsageError, match=r"has 40,000,000 tiles on one rank \(of 64x"):
        require_simulable([config, smaller], workload, BLACKWELL)
