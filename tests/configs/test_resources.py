"""Budgets by hand, and the limits that bind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.configs.cases import BLACKWELL, attention, attention_config, hopper, megamoe_config, moe
from xstage_tune.base.errors import UsageError
from xstage_tune.families.binding import check_config, require_feasible
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.megamoe.config import Schedule
from xstage_tune.families.workload import Workload
from xstage_tune.platforms.schema import PlatformProfile


def limits(config: KernelConfig, workload: Workload, platform: PlatformProfile) -> set[str]:
    return {violation.limit_name for violation in check_config(config, workload, platform).violations}


def test_shared_memory_of_a_pair_on_blackwell_by_hand() -> None:
    """Each CTA of a pair holds half of the 192 tokens, its own 128 weight rows, and one output tile."""
    shared = check_config(megamoe_config(), moe(), BLACKWELL).budgets[0]
    terms = {term.name: term.amount for term in shared.terms}
    assert terms["operand stages"] == 4 * ((96 + 128) * 128 + 4 * (96 + 128))
    assert terms["output staging"] == 192 * 128 * 2
    assert shared.used == sum(terms.values())
    assert shared.limit == 227 * 1024


def test_hopper_stages_outputs_in_shared_memory_and_shares_no_operand() -> None:
    shared = check_config(megamoe_config(staging_depth=3), moe(), hopper()).budgets[0]
    terms = {term.name: term.amount for term in shared.terms}
    assert terms["operand stages"] == 4 * ((192 + 128) * 128 + 4 * (192 + 128))
    assert terms["output staging"] == 3 * 192 * 128 * 2


def test_accumulators_fill_tensor_memory() -> None:
    """256 KiB hold two tiles of 192x128 in fp32 (96 KiB each), not three; nor two of 256x128 with scales."""
    assert "tensor memory" not in limits(megamoe_config(), moe(), BLACKWELL)
    assert limits(megamoe_config(staging_depth=3, pipeline_stages=2), moe(), BLACKWELL) == {"tensor memory"}
    assert limits(megamoe_config(block_m=256, pipeline_stages=2), moe(), BLACKWELL) == {"tensor memory"}
    bf16 = moe(precision="bf16")
    assert limits(megamoe_config(block_m=256, block_k=64, pipeline_stages=2), bf16, BLACKWELL) == set()


def test_fp8_promotion_doubles_hopper_accumulators() -> None:
    """192x128 over two warpgroups is 96 registers a thread; promoted and with 40 more, 232 of 240."""
    thread = check_config(megamoe_config(), moe(), hopper()).budgets[1]
    assert {term.name: term.amount for term in thread.terms} == {
        "accumulators": 96, "promotion": 96, "bookkeeping": 40,
    }  # fmt: skip
    assert "registers of a math thread" in limits(megamoe_config(block_m=256), moe(), hopper())
    assert "registers of a math thread" not in limits(
        megamoe_config(block_m=256, block_k=64, pipeline_stages=2), moe(precision="bf16"), hopper()
    )


@pytest.mark.parametrize(
    ("changes", "head_dim", "broken"),
    [
        # FlashAttention-3's own tiles fit.
        ({"block_n": 176}, 128, set()),
        ({"block_n": 208}, 128, {"shared memory", "built tiles"}),
        ({"block_m": 192, "block_n": 128}, 64, set()),
        # Three warpgroups have 160 registers a thread: scores and products in turn fit, up to 128 columns.
        ({"block_m": 192, "block_n": 128, "kv_stages": 2}, 128, set()),
        ({"block_m": 192, "block_n": 144, "kv_stages": 2}, 128, {"register file"}),
        ({"block_m": 192, "block_n": 96}, 128, set()),
        ({"block_m": 64, "block_n": 256, "kv_stages": 1}, 128, {"built tiles"}),
        # Storer warps take registers from the consumers: 152 are left.
        (
            {"block_m": 192, "block_n": 128, "kv_stages": 2, "output_staging": "dedicated-x1"},
            128,
            {"register file"},
        ),
        ({"block_m": 192, "block_n": 112, "kv_stages": 2, "output_staging": "dedicated-x1"}, 128, set()),
        ({"output_staging": "dedicated-x2", "block_n": 160}, 128, {"shared memory"}),
        ({}, 96, {"built head dims"}),
    ],
)
def test_attention_tiles_on_hopper(changes: dict[str, Any], head_dim: int, broken: set[str]) -> None:
    assert limits(attention_config(**changes), attention(head_dim=head_dim), hopper()) == broken


SPLIT = {"output_staging": "dedicated-x1", "kv_splits": 2}


def test_a_cta_of_a_split_tile_stages_its_own_rows_and_receives_their_other_half() -> None:
    """64 rows of bf16 in either buffer; of the other CTA's output 64 rows of fp32, and 8 bytes a row."""
    config = attention_config(output_staging="dedicated-x2", kv_splits=2)
    shared = check_config(config, attention(), hopper()).budgets[0]
    terms = {term.name: term.amount for term in shared.terms}
    assert terms["Q"] == 128 * 128 * 2
    assert terms["output staging"] == 2 * 64 * 128 * 2
    assert terms["partial output"] == 64 * (128 * 4 + 8)
    whole = check_config(config.model_copy(update={"kv_splits": 1}), attention(), hopper()).budgets[0]
    terms = {term.name: term.amount for term in whole.terms}
    assert (terms["output staging"], terms["partial output"]) == (2 * 128 * 128 * 2, 0)


@pytest.mark.parametrize(
    ("changes", "tokens", "platform", "message"),
    [
        ({}, 2048, BLACKWELL, "kv_splits = 2: the kernel of sm_100 splits none"),
        (
            {"block_m": 192, "block_n": 80},
            2048,
            hopper(),
            "kv_splits = 2 needs block_m = 128, a consumer warpgroup for each CTA",
        ),
        (
            {"output_staging": "alias-q"},
            2048,
            hopper(),
            "kv_splits = 2 needs output_staging dedicated-x1 or dedicated-x2",
        ),
        ({}, 128, hopper(), "128 KV rows are one tile of 128, nothing to split"),
    ],
)
def test_what_cannot_be_split(
    changes: dict[str, Any], tokens: int, platform: PlatformProfile, message: str
) -> None:
    split, whole = (attention_config(**SPLIT | changes | {"kv_splits": n}) for n in (2, 1))
    broken = [v for v in check_config(split, attention(tokens=tokens), platform).violations
              if v.limit_name == "KV split"]  # fmt: skip
    assert broken[0].message == message
    assert "KV split" not in limits(whole, attention(tokens=tokens), platform)


def test_what_a_split_costs_must_be_known() -> None:
    unknown = hopper()
    assert unknown.compute is not None
    tiles = tuple(tile.model_copy(update={"split": None}) for tile in unknown.compute.attention)
    compute = unknown.compute.model_copy(update={"attention": tiles})
    (broken,) = check_config(
        attention_config(**SPLIT), attention(), unknown.model_copy(update={"compute": compute})
    ).violations
    assert broken.limit_name == "split times"
    assert "'hopper' has no compute.attention tile with split times" in broken.message


def test_two_kv_tiles_can_be_split() -> None:
    assert limits(attention_config(**SPLIT), attention(tokens=129), hopper()) == set()


def test_an_aliased_output_must_fit_the_buffer_it_takes_over() -> None:
    config = attention_config(block_m=256, block_n=64, kv_stages=3)
    assert "output staging" in limits(config, attention(), BLACKWELL)
    assert limits(attention_config(block_m=256, block_n=64, kv_stages=4), attention(), BLACKWELL) == set()


@pytest.mark.parametrize(
    ("config", "layer", "message"),
    [
        ({}, {"hidden": 1032}, "hidden = 1032: a row of w8a8 weights is no whole number of 16-byte units"),
        ({}, {"hidden": 1040, "precision": "w4a8"}, "pad it to 1056"),
        ({}, {"intermediate": 513}, "intermediate = 513"),
        ({"block_k": 96}, {}, "block_k = 96 is no whole number of operand rows of 128 bytes"),
        ({"block_n": 32}, {}, "block_n = 32 is not a multiple of the MMA's 64 rows"),
        ({"block_m": 100}, {}, "block_m = 100 is not a multiple of 16 up to 256"),
        ({"block_m": 272}, {}, "block_m = 272 is not a multiple of 16 up to 256"),
        ({"epilogue_warps": 6}, {}, "epilogue_warps = 6 is not whole warpgroups"),
        (
            {"schedule": Schedule(kind="wave", experts_per_wave=3)},
            {},
            "experts_per_wave = 3 of 2 local experts",
        ),
        ({"store_flavour": "tma"}, {}, "has no tma times, only st.v4"),
    ],
)
def test_rules_of_shape(config: dict[str, Any], layer: dict[str, Any], message: str) -> None:
    violations = check_config(megamoe_config(**config), moe(**layer), BLACKWELL).violations
    assert any(message in violation.message for violation in violations), violations


@pytest.mark.parametrize("platform", [BLACKWELL, hopper()], ids=["blackwell", "hopper"])
@pytest.mark.parametrize("warps", [32, 2**63 - 1])
def test_a_cta_has_1024_threads_on_every_architecture(platform: PlatformProfile, warps: int) -> None:
    """32 warps, of which the epilogue cannot have all: others load and multiply."""
    config = megamoe_config(epilogue_warps=warps)
    assert "threads of a CTA" in limits(config, moe(), platform)
    assert "threads of a CTA" not in limits(megamoe_config(epilogue_warps=8), moe(), platform)


def test_the_last_warpgroup_that_fits_a_cta_on_blackwell() -> None:
    assert limits(megamoe_config(epilogue_warps=28), moe(), BLACKWELL) == set()
    with pytest.raises(UsageError, match=r"threads of a CTA: 1,152 threads of 1,024 \(TMA and MMA issue 128"):
        require_feasible(megamoe_config(epilogue_warps=32), moe(), BLACKWELL)


@pytest.mark.parametrize("platform", [BLACKWELL, hopper()], ids=["blackwell", "hopper"])
@pytest.mark.parametrize(
    "layer", [{"hidden": 1408}, {"hidden": 2880, "intermediate": 2880}, {"hidden": 1040, "intermediate": 528}]
)
def test_tiles_may_be_partial(platform: PlatformProfile, layer: dict[str, int]) -> None:
    for block_n in (64, 128):
        assert limits(megamoe_config(block_m=128, block_n=block_n), moe(**layer), platform) == set()


def test_the_message_of_a_refused_config_has_the_numbers() -> None:
    with pytest.raises(UsageError, match=r"shared memory: 2\d\d,\d{3} B of 232,448 \(operand stages"):
        require_feasible(megamoe_config(pipeline_stages=7), moe(), BLACKWELL)


def test_a_config_of_another_kernel_is_refused() -> None:
    with pytest.raises(UsageError, match="kind 'attention' does not fit the workload 'test/moe'"):
        check_config(attention_config(), moe(), BLACKWELL)


def test_a_platform_that_says_too_little_is_refused() -> None:
    bare = BLACKWELL.model_copy(update={"compute": None})
    with pytest.raises(UsageError, match="no compute section"):
        check_config(megamoe_config(), moe(), bare)
    ampere = BLACKWELL.model_copy(update={"gpu": BLACKWELL.gpu.model_copy(update={"architecture": "sm_80"})})
    with pytest.raises(UsageError, match="no fused kernel for architecture 'sm_80'"):
        check_config(megamoe_config(), moe(), ampere)


def test_the_binding_budget_is_the_fullest() -> None:
    resources = check_config(megamoe_config(), moe(), BLACKWELL)
    assert resources.feasible
    assert resources.binding.resource == "tensor memory"  # 196,608 + 5,120 of 262,144


def test_all_that_keeps_a_config_from_running_is_named() -> None:
    config = attention_config(**SPLIT | {"block_m": 192, "output_staging": "alias-q"})
    with pytest.raises(UsageError, match=r"needs block_m = 128.*; kv_splits = 2 needs output_staging"):
        require_feasible(config, attention(), hopper())
