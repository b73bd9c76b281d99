"""Every shipped variant compiles to a kernel worth running; what cannot be built is refused in one line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from tests.attention_a2a.cases import config
from xstage_tune.base.errors import UsageError
from xstage_tune.cuda.attention_variants import (
    EPOCHS,
    KERNEL,
    SHARED_BYTES_LIMIT,
    SHIPPED,
    attention_variant,
    recording_bytes,
    shared_bytes,
)
from xstage_tune.cuda.cache import cached_kernel
from xstage_tune.cuda.compiler import CompiledKernel
from xstage_tune.cuda.variants import KernelVariant
from xstage_tune.families.attention_a2a.budget import (
    BUILT_BLOCK_M,
    BUILT_BLOCK_N,
    BUILT_HEAD_DIMS,
    BUILT_KV_SPLITS,
)
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.binding import check_config
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform


def paced_tiles() -> Iterator[tuple[AttentionConfig, int]]:
    """Of those that a search may choose on an H200 the two widest of each height, with the head dim.

    Scores and products of a narrower tile take fewer registers.
    """
    platform = load_platform("h200-host")
    for head_dim, block_m, kv_splits in product(
        BUILT_HEAD_DIMS["sm_90"], BUILT_BLOCK_M["sm_90"], BUILT_KV_SPLITS["sm_90"]
    ):
        layer = load_workload("fa-a2a/paper", [f"head_dim={head_dim}"])
        tiles = (
            config(block_m=block_m, block_n=block_n, output_staging="dedicated-x1", kv_splits=kv_splits)
            for block_n in sorted(BUILT_BLOCK_N["sm_90"])
        )
        fitting = [tile for tile in tiles if not check_config(tile, layer, platform).violations]
        yield from ((tile, head_dim) for tile in fitting[-2:])


PACED = tuple(paced_tiles())


@pytest.fixture(autouse=True)
def cache_folder(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own cache, kept from run to run: compiling them takes minutes of processor time."""
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(pytestconfig.cache.mkdir("kernels")))


def compiled(variant: KernelVariant) -> CompiledKernel:
    """What the compiler made of these very sources and options, and said of them."""
    return cached_kernel(variant.source, "sm_90a", variant.defines, variant.names)


@pytest.mark.parametrize("record_spans", [False, True], ids=["timed", "recording"])
@pytest.mark.parametrize(
    ("shipped", "head_dim"), SHIPPED, ids=[f"{config.label}, d {head_dim}" for config, head_dim in SHIPPED]
)
def test_shipped_variant_neither_spills_nor_serialises_its_products(
    shipped: AttentionConfig, head_dim: int, record_spans: bool
) -> None:
    kernel = compiled(attention_variant(shipped, head_dim, record_spans=record_spans))
    assert kernel.warnings == ()
    assert kernel.entries[KERNEL].spill_bytes == 0
    assert kernel.entries[KERNEL].stack_bytes == 0


@pytest.mark.parametrize(("paced", "head_dim"), PACED)
def test_the_widest_tiles_that_a_search_may_pace_compile_without_spills(
    paced: AttentionConfig, head_dim: int
) -> None:
    """With a storer warp registers are scarcest; what spills is refused, too late for a search."""
    kernel = compiled(attention_variant(paced, head_dim, record_spans=False))
    assert kernel.warnings == ()
    assert kernel.entries[KERNEL].spill_bytes == 0


@pytest.mark.parametrize(("shipped", "head_dim"), SHIPPED)
def test_the_search_knows_that_shipped_variants_fit(shipped: AttentionConfig, head_dim: int) -> None:
    """Its budget of registers is the compiler's: a config that is cut here would never be found."""
    layer = load_workload("fa-a2a/paper", [f"head_dim={head_dim}"])
    assert check_config(shipped, layer, load_platform("h200-host")).violations == ()


def test_completion_kernels_compile_without_warnings() -> None:
    kernel = compiled(EPOCHS)
    assert set(kernel.entries) == set(EPOCHS.names)
    assert kernel.warnings == ()


def test_shared_memory_by_hand() -> None:
    """FlashAttention-3's tile: Q 32 KiB, two stages of K and V of 44 KiB each, and the barriers."""
    wide = config(block_n=176, output_staging="alias-v")
    assert shared_bytes(wide, 128) == (32 + 2 * 2 * 44 + 1) * 1024
    staged = config(block_m=192, block_n=80, output_staging="dedicated-x1")
    assert shared_bytes(staged, 128) == (48 + 2 * 2 * 20 + 48 + 1) * 1024
    # Of one warpgroup: its staged rows, and the other CTA's output of them in fp32, 16 bytes more a pair.
    split = config(block_n=144, output_staging="dedicated-x1", kv_splits=2)
    assert shared_bytes(split, 128) == (32 + 2 * 2 * 36 + 16 + 32 + 1) * 1024 + 32 * 16


def test_spans_have_room_beside_every_shipped_variant() -> None:
    """36 spans a lane: 12 tiles a CTA."""
    for shipped, head_dim in SHIPPED:
        assert recording_bytes(shipped, head_dim) >= 36 * 12 * shipped.block_m // 64


@pytest.mark.parametrize(
    ("changes", "head_dim", "message"),
    [
        ({}, 96, "head_dim = 96"),
        ({"block_m": 64}, 128, "block_m = 64"),
        ({"block_n": 72}, 128, "block_n = 72"),
        ({"block_n": 192}, 128, "block_n = 192"),
        ({"kv_stages": 4}, 128, "shared memory"),
        ({"output_staging": "dedicated-x2", "block_n": 144}, 128, f"of {SHARED_BYTES_LIMIT:,}"),
        ({"kv_splits": 2}, 128, "splits KV in 2 only for tiles of 128 rows with staging of their own"),
        (
            {"block_m": 192, "block_n": 80, "output_staging": "dedicated-x1", "kv_splits": 2},
            128,
            "splits KV in 2 only for tiles of 128 rows",
        ),
        (
            {"output_staging": "alias-v", "block_m": 192, "block_n": 80},
            128,
            "does not fit into V's buffers of 2 x 80 rows",
        ),
    ],
)
def test_variants_that_do_not_exist_are_refused(changes: dict[str, Any], head_dim: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        attention_variant(config(**changes), head_dim)


def test_tile_order_is_no_knob_of_the_build() -> None:
    assert attention_variant(config(tile_order="spread"), 128) == attention_variant(config(), 128)
