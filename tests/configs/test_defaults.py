"""The default and today's heuristics."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.configs.cases import BLACKWELL, attention, attention_config, hopper, megamoe_config, moe
from xstage_tune.base.errors import UsageError
from xstage_tune.devices.recorded_kernels import ReplayedKernels
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.binding import bind, check_config, default_config
from xstage_tune.families.kernel_launch import run_kernel
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.defaults import fitting_stages
from xstage_tune.families.megamoe.family import FAMILY
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload_files import list_workloads, load_workload
from xstage_tune.launches.recording import recording_file
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile


@pytest.mark.parametrize("platform", [BLACKWELL, hopper()], ids=lambda platform: platform.name)
@pytest.mark.parametrize("name", list_workloads())
def test_every_shipped_workload_has_configs_that_fit(name: str, platform: PlatformProfile) -> None:
    workload = load_workload(name)
    for config in (default_config(workload, platform), *bind(workload, platform).heuristics().values()):
        assert check_config(config, workload, platform).feasible


def test_a_wave_fills_all_sms_twice() -> None:
    """1,536 tokens an expert make 8 rows of 32 Linear-1 tiles: 256 an expert, for 2 x 148 SMs two experts."""
    flash = load_workload("megamoe/deepseek-v4-flash")
    config = default_config(flash, BLACKWELL)
    assert isinstance(config, MegaMoeConfig)
    assert (config.block_m, config.block_n) == (192, 128)
    assert config.schedule.experts_per_wave == 2


@pytest.mark.parametrize(("tokens_per_expert", "block_m"), [(8, 16), (48, 64), (128, 128), (1000, 192)])
def test_rows_hold_the_mean_tokens_of_an_expert(tokens_per_expert: int, block_m: int) -> None:
    config = default_config(moe(tokens_per_rank=tokens_per_expert), BLACKWELL)  # 8 ranks x top-2 of 16
    assert isinstance(config, MegaMoeConfig)
    assert config.block_m == block_m


def test_one_token_and_one_hot_expert_have_a_default() -> None:
    one_token = default_config(moe(tokens_per_rank=1), BLACKWELL)
    hot = moe(top_k=1, routing={"kind": "histogram", "histogram": [1.0] + [0.0] * 15})
    for workload in (moe(tokens_per_rank=1), hot):
        assert check_config(one_token, workload, BLACKWELL).feasible


def test_heuristics_differ_from_the_default_only_in_their_schedule() -> None:
    default = default_config(moe(), BLACKWELL)
    heuristics = bind(moe(), BLACKWELL).heuristics()
    assert set(heuristics) == {"alternating", "clamped-lag"}
    for name, config in heuristics.items():
        assert isinstance(config, MegaMoeConfig)
        assert config.schedule.kind == name
        assert config.model_dump(exclude={"schedule"}) == default.model_dump(exclude={"schedule"})


def attention_default(workload: AttentionWorkload, platform: PlatformProfile) -> AttentionConfig:
    config = default_config(workload, platform)
    assert isinstance(config, AttentionConfig)
    assert config.tile_order == "rotated"
    return config


@pytest.mark.parametrize(
    ("tokens", "local_heads", "tile"),
    [
        (8192, 3, (192, 128)),  # 129 tiles, one round, against two of 128 rows
        (16_384, 3, (128, 176)),  # two rounds of 192 rows, three of 128: equal
        (8192, 4, (128, 176)),  # two rounds of either
        (4096, 3, (128, 128)),  # 96 tiles are one round; 24 x 176 KV rows are 3.1% more than 32 x 128
        (200, 1, (128, 128)),
    ],
)
def test_an_attentions_tile_fills_the_rounds_and_pads_little(
    tokens: int, local_heads: int, tile: tuple[int, int]
) -> None:
    layer = attention(tokens=tokens, heads=8 * local_heads)
    config = attention_default(layer, hopper())
    assert (config.block_m, config.block_n) == tile
    config = attention_default(layer, BLACKWELL)  # nothing is built for it: FlashAttention-4's tile
    assert (config.block_m, config.block_n) == (128, 128)


def test_an_attentions_default_falls_to_a_smaller_tile_where_the_usual_one_does_not_fit() -> None:
    """192 rows of Q and two stages of 128 KV rows are 176 KiB, 128 rows 160 KiB."""
    layer, platform = attention(tokens=8192, heads=24), hopper()
    assert platform.compute is not None
    for limit_kib, tile in ((178, (192, 128)), (162, (128, 128)), (100, (128, 64))):
        compute = platform.compute.model_copy(update={"shared_bytes_per_cta": limit_kib * 1024})
        config = attention_default(layer, platform.model_copy(update={"compute": compute}))
        assert (config.block_m, config.block_n) == tile


def test_todays_attention_is_flash_attention_3s_tile_in_its_order() -> None:
    wide = bind(attention(tokens=16_384, heads=24), hopper()).heuristics()["fa3-tile"]
    assert isinstance(wide, AttentionConfig)
    assert (wide.block_m, wide.block_n, wide.tile_order) == (128, 176, "sequential")
    assert bind(attention(head_dim=256), hopper()).heuristics() == {}


@pytest.mark.parametrize(("tokens", "heads"), [(4096, 24), (8192, 24), (8192, 32)])
def test_on_an_h200_the_default_was_faster_than_the_tiles_of_flash_attention(tokens: int, heads: int) -> None:
    """The spaces on record, measured over the host path."""
    layer = load_workload("fa-a2a/paper", [f"tokens={tokens}", f"heads={heads}"])
    default = attention_default(layer, load_platform("h200-host"))
    times_ns = []
    with closing(ReplayedKernels(recording_file(f"h200-host-fa-{tokens}x{heads // 8}", "search"))) as device:
        device.require_workload(layer)
        for config in (default, *(attention_config(block_n=block_n) for block_n in (128, 176))):
            times_ns.append(run_kernel(device, layer, config, "host", 5).median_ns("latency"))
    assert times_ns[0] < min(times_ns[1:])


def test_the_interleaved_lead_exceeds_the_knee() -> None:
    """DeepSeek-V4-Flash: D_knee = 128 * 148 / (2 * 2048) = 4.6 rows; two and a half of them."""
    flash = load_workload("megamoe/deepseek-v4-flash")
    assert isinstance(flash, MoeWorkload)
    assert FAMILY.bind(flash, BLACKWELL).with_schedule("interleaved").schedule.lead_rows == 12


def test_stages_fill_what_the_rest_leaves() -> None:
    config = megamoe_config()
    most = fitting_stages(config, moe(), BLACKWELL)
    fits = config.model_copy(update={"pipeline_stages": most})
    over = config.model_copy(update={"pipeline_stages": most + 1})
    assert check_config(fits, moe(), BLACKWELL).feasible
    assert not check_config(over, moe(), BLACKWELL).feasible


def test_a_layer_that_no_width_divides_has_a_default_of_partial_tiles() -> None:
    """2,880 columns are 22.5 tiles of 128, and 45 of 64: an odd number, which pairs of CTAs do not share."""
    layer = moe(hidden=2880, intermediate=2880, precision="w4a8")  # of which there is no kernel
    config = default_config(layer, BLACKWELL)
    assert isinstance(config, MegaMoeConfig)
    assert config.block_n == 128
    assert check_config(config, layer, BLACKWELL).feasible
    unpaired = default_config(layer, hopper())
    assert isinstance(unpaired, MegaMoeConfig)
    assert unpaired.block_n == 64  # divides it, where CTAs are not paired


@pytest.mark.parametrize("platform", [BLACKWELL, hopper()], ids=lambda platform: platform.name)
@pytest.mark.parametrize("precision", ["bf16", "w8a8", "w4a8"])
@pytest.mark.parametrize(("hidden", "intermediate"), [(64, 32), (320, 96), (1056, 544), (2080, 1120)])
def test_every_layer_of_whole_16_byte_rows_has_a_default(
    platform: PlatformProfile, precision: str, hidden: int, intermediate: int
) -> None:
    layer = moe(hidden=hidden, intermediate=intermediate, precision=precision)
    for config in (default_config(layer, platform), *bind(layer, platform).heuristics().values()):
        assert check_config(config, layer, platform).feasible


def test_a_layer_that_no_config_can_run_is_refused_with_what_to_pad_it_to() -> None:
    with pytest.raises(UsageError, match=r"no config of 'test/moe' can run .*intermediate = 500") as caught:
        default_config(moe(intermediate=500), BLACKWELL)
    assert "pad it to 512" in caught.value.message


@pytest.mark.parametrize("head_dim", [8, 40, 72, 96, 112, 192, 256, 320, 512])
def test_an_attention_has_a_default_wherever_a_tile_fits(head_dim: int) -> None:
    """No head dim is built in for Blackwell; large ones leave room for small tiles alone."""
    config = default_config(attention(head_dim=head_dim), BLACKWELL)
    assert check_config(config, attention(head_dim=head_dim), BLACKWELL).feasible
