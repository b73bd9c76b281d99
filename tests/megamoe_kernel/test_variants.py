"""Every shipped MoE variant compiles to a kernel worth running; what is not built is refused in one line."""

from __future__ import annotations

from typing import Any

import pytest

from tests.megamoe_kernel.shipped import VARIANTS, WIDEST, variant_words
from xstage_tune.base.errors import UsageError
from xstage_tune.cuda.cache import cached_kernel
from xstage_tune.cuda.moe_reduce import REDUCE, REDUCE_KERNEL
from xstage_tune.cuda.moe_variants import KERNEL, moe_variant
from xstage_tune.families.binding import bind, check_config
from xstage_tune.families.megamoe.built import shared_bytes, unbuilt
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule
from xstage_tune.families.megamoe.workload import Precision
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform
from xstage_tune.search.space import default_axes, violations_of

WIDE = WIDEST["bf16"]
LAYER = "megamoe/deepseek-v4-flash"


@pytest.fixture(autouse=True)
def cache_folder(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own cache, kept from run to run."""
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(pytestconfig.cache.mkdir("kernels")))


@pytest.mark.parametrize(
    # Every two of the three switches in all four ways: eight ways of each variant take minutes to compile.
    ("tickets", "record_spans", "dispatch"),
    [(True, False, True), (True, True, False), (False, False, False), (False, True, True)],
    ids=["tickets, timed, dispatch", "tickets, recording, staged", "dealt, timed, staged",
         "dealt, recording, dispatch"],
)  # fmt: skip
@pytest.mark.parametrize("variant", VARIANTS, ids=variant_words)
def test_shipped_variant_neither_spills_nor_serialises_its_products(
    variant: tuple[Precision, MegaMoeConfig], tickets: bool, record_spans: bool, dispatch: bool
) -> None:
    precision, config = variant
    built = moe_variant(config, precision, tickets=tickets, dispatch=dispatch, record_spans=record_spans)
    kernel = cached_kernel(built.source, "sm_90a", built.defines, built.names)
    assert kernel.warnings == ()
    assert kernel.entries[KERNEL].spill_bytes == 0
    assert kernel.entries[KERNEL].stack_bytes == 0


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_words)
def test_the_search_knows_that_shipped_variants_fit(variant: tuple[Precision, MegaMoeConfig]) -> None:
    precision, config = variant
    layer = load_workload(LAYER, [f"precision={precision}"])
    assert check_config(config, layer, load_platform("h200-host")).violations == ()


def test_the_reduction_compiles_without_spills() -> None:
    kernel = cached_kernel(REDUCE.source, "sm_90a", REDUCE.defines, REDUCE.names)
    assert kernel.warnings == ()
    assert kernel.entries[REDUCE_KERNEL].spill_bytes == 0


def test_shared_memory_by_hand() -> None:
    """Three stages of 48 KiB, two parts of 64 rows of 512 + 16 bytes, and the barriers; then scales."""
    without_scales = 3 * 48 * 1024 + 2 * 64 * 528 + 1024
    assert shared_bytes(WIDE, "bf16") == without_scales
    assert shared_bytes(WIDEST["w8a8"], "w8a8") == without_scales + 3 * (128 * 4 + 16)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"block_m": 192}, "block_m = 192"),
        ({"block_n": 64}, "block_n = 64"),
        ({"block_k": 128}, "block_k = 128"),
        ({"epilogue_warps": 4}, "epilogue_warps = 4"),
        ({"block_m": 64, "block_n": 128}, "tiles of 64x128"),
        ({"pipeline_stages": 1}, "pipeline_stages = 1"),
        ({"pipeline_stages": 4}, "265,216 bytes of shared memory"),
        ({"schedule": Schedule(kind="wave", experts_per_wave=1, placement="share")}, "placement 'share'"),
    ],
)
def test_what_is_not_built_is_refused_by_its_knob(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        moe_variant(WIDE.model_copy(update=changed), "bf16")


@pytest.mark.parametrize("precision", ["bf16", "w8a8", "w4a8"])
def test_a_search_of_a_layer_with_a_kernel_is_among_its_variants(precision: Precision) -> None:
    layer, platform = load_workload(LAYER, [f"precision={precision}"]), load_platform("h200-host")
    bound, axes = bind(layer, platform), default_axes(layer, platform)
    tiles = (variants.checked for variants in bound.variants(axes))
    searched = [tile for tile in tiles if not violations_of(tile, bound, axes)]
    assert searched
    if precision == "w4a8":
        assert len({(tile.block_m, tile.block_n) for tile in searched}) > 2
    else:
        assert not any(reason for tile in searched for reason in unbuilt(tile, precision))


def test_axes_that_leave_no_variant_are_searched_all_the_same() -> None:
    layer, platform = load_workload(LAYER, ["precision=bf16"]), load_platform("h200-host")
    axes = default_axes(layer, platform) | {"block_m": (96,)}
    assert violations_of(WIDE.model_copy(update={"block_m": 96}), bind(layer, platform), axes) == ()


@pytest.mark.parametrize("precision", ["bf16", "w8a8"])
@pytest.mark.parametrize("tokens", [16, 512, 8192])
@pytest.mark.parametrize("name", ["deepseek-v4-flash", "deepseek-v4-pro", "glm-5", "qwen3.5-35b-a3b"])
def test_the_default_and_the_heuristics_of_a_layer_with_a_kernel_are_built(
    name: str, tokens: int, precision: Precision
) -> None:
    layer = load_workload(f"megamoe/{name}", [f"precision={precision}", f"tokens_per_rank={tokens}"])
    bound = bind(layer, load_platform("h200-host"))
    for config in (bound.default(), *bound.heuristics().values()):
        assert not any(unbuilt(config, precision))
        assert bound.check(config).feasible
