"""No simulated time lies below its bound."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.configs.cases import BLACKWELL, attention, attention_config, hopper, moe
from tests.search.cases import drained, small_space
from xstage_tune.families.attention_a2a.config import TileOrder
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.binding import check_config, family_of
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.megamoe.axes import CONDITIONAL, SCHEDULE
from xstage_tune.families.megamoe.load import moe_load
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload import Workload
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.search.ranking import rank_configs
from xstage_tune.search.space import default_axes
from xstage_tune.simulator.fused_kernels import SimulatedKernels

#: Measured: two store flavours, ports that share R unevenly, a law of Q.
H200 = load_platform("h200-host")

ALL_ON_ONE = {"kind": "histogram", "histogram": [1.0] + [0.0] * 15}

#: Rounding of sums over some thousand tiles.
ROUNDING = 1 + 1e-9


def odd_sms() -> PlatformProfile:
    """Of pairs of CTAs, the last SM has none."""
    return hopper().model_copy(
        update={"name": "odd", "gpu": hopper().gpu.model_copy(update={"sm_count": 131})}
    )


def samples(platform: PlatformProfile, workload: Workload, count: int, seed: int) -> list[KernelConfig]:
    """Configs of the workload's own axes that fit, drawn without building the whole space."""
    axes, rng = default_axes(workload, platform), np.random.default_rng(seed)
    found: dict[KernelConfig, None] = {}
    while len(found) < count:
        params = {name: values[rng.integers(len(values))] for name, values in axes.items()}
        for name, schedule in CONDITIONAL.items():
            if params.get(SCHEDULE) != schedule:
                params.pop(name, None)
        config = family_of(workload).config_of(params)
        if check_config(config, workload, platform).feasible:
            found[config] = None
    return list(found)


def assert_bounded(workload: Workload, platform: PlatformProfile, configs: list[KernelConfig]) -> None:
    device = SimulatedKernels(platform)
    bounds = rank_configs(configs, workload, platform, "latency").bound_ns
    for config, bound_ns in zip(configs, bounds, strict=True):
        fastest = min(device.run_kernel(workload, config, 2).latency_ns)
        assert bound_ns <= fastest * ROUNDING, config.label


@st.composite
def layers(draw: st.DrawFn) -> MoeWorkload:
    routing: dict[str, Any] = draw(
        st.sampled_from(
            [{"kind": "balanced"}, {"kind": "zipf", "alpha": 1.5, "seed": 2}, {"kind": "zipf", "alpha": 0.5}]
        )
    )
    return moe(
        hidden=draw(st.sampled_from([512, 1024, 2048])),
        intermediate=draw(st.sampled_from([256, 512, 2048])),
        tokens_per_rank=draw(st.integers(1, 3000)),
        precision=draw(st.sampled_from(["bf16", "w8a8", "w4a8"])),
        routing=routing,
        remote_fraction=draw(st.sampled_from([None, 0.0, 0.3, 1.0])),
    )


@settings(max_examples=15, deadline=None)
@given(layers(), st.sampled_from([BLACKWELL, hopper()]), st.integers(0, 1000))
def test_moe_launches(workload: MoeWorkload, platform: PlatformProfile, seed: int) -> None:
    assert_bounded(workload, platform, samples(platform, workload, 8, seed))


@pytest.mark.parametrize(
    "workload",
    [moe(tokens_per_rank=1), moe(top_k=1, routing=ALL_ON_ONE), drained()],
    ids=["one token", "all on one expert", "drain-limited"],
)
@pytest.mark.parametrize("platform", [BLACKWELL, hopper(), H200], ids=lambda platform: platform.name)
def test_extreme_moe_launches(workload: MoeWorkload, platform: PlatformProfile) -> None:
    assert_bounded(workload, platform, samples(platform, workload, 40, 0))


@st.composite
def attentions(draw: st.DrawFn) -> AttentionWorkload:
    return attention(
        heads=8 * draw(st.integers(1, 6)),
        head_dim=draw(st.sampled_from([64, 128])),
        tokens=draw(st.integers(1, 12_000)),
        remote_fraction=draw(st.sampled_from([None, 0.0, 0.3, 0.5, 1.0])),
    )


@settings(max_examples=15, deadline=None)
@given(attentions(), st.sampled_from([BLACKWELL, hopper(), H200]), st.integers(0, 1000))
def test_attention_launches(workload: AttentionWorkload, platform: PlatformProfile, seed: int) -> None:
    assert_bounded(workload, platform, samples(platform, workload, 8, seed))


@settings(max_examples=10, deadline=None)
@given(attentions(), st.sampled_from([BLACKWELL, H200]), st.sampled_from(["alias-v", "dedicated-x1"]))
def test_every_tile_order(workload: AttentionWorkload, platform: PlatformProfile, staging: str) -> None:
    orders = get_args(TileOrder)
    configs = [attention_config(block_n=80, output_staging=staging, tile_order=order) for order in orders]
    assert_bounded(workload, platform, list(configs))


@settings(max_examples=15, deadline=None)
@given(attentions(), st.sampled_from([hopper(), H200, odd_sms()]), st.integers(0, 1000))
def test_tiles_that_ctas_share(workload: AttentionWorkload, platform: PlatformProfile, seed: int) -> None:
    workload = workload.model_copy(update={"tokens": 176 + workload.tokens})  # at least two KV tiles
    rng = np.random.default_rng(seed)
    configs = [
        attention_config(
            block_n=int(rng.choice([64, 80, 128])),
            output_staging=str(rng.choice(["dedicated-x1", "dedicated-x2"])),
            tile_order=order,
            store_flavour=str(rng.choice(sorted({point.flavour for point in platform.issue}))),
            kv_splits=2,
        )
        for order in get_args(TileOrder)
    ]
    assert_bounded(workload, platform, list(configs))


def test_a_slow_path_makes_the_drain_bind() -> None:
    slow = BLACKWELL.model_copy(update={"drain": BLACKWELL.drain.model_copy(update={"bytes_per_s": 20e9})})
    configs = list(small_space().configs[:40])
    ranking = rank_configs(configs, drained(), slow, "latency")
    assert set(ranking.binding) == {"drain"}
    config = configs[0]
    load = moe_load(config, drained(), slow)  # type: ignore[arg-type]
    # V_total over R, and a tile of either layer before the first store.
    leaving_ns = load.remote_bytes / 20.0
    assert ranking.bound_ns[0] == pytest.approx(
        leaving_ns + load.linear1.least_ns + load.linear2.least_ns, rel=1e-12
    )
    assert_bounded(drained(), slow, configs)


def test_a_slow_memory_makes_the_weights_bind() -> None:
    assert BLACKWELL.compute is not None
    slow = BLACKWELL.model_copy(
        update={"compute": BLACKWELL.compute.model_copy(update={"memory_bytes_per_s": 2e11})}
    )
    layer = moe(tokens_per_rank=64, hidden=2048)
    configs = samples(slow, layer, 20, 0)
    ranking = rank_configs(configs, layer, slow, "latency")
    assert "memory" in ranking.binding
    # Two local experts, both of whose matrices are loaded once: 3 * hidden * intermediate bytes each.
    weights_ns = 2 * 3 * 2048 * 512 / 200.0
    assert ranking.bound_ns[ranking.binding.index("memory")] == pytest.approx(weights_ns)
    assert_bounded(layer, slow, configs)


def test_stalls_have_no_bound_but_zero() -> None:
    configs = list(small_space().configs[:20])
    assert (rank_configs(configs, drained(), BLACKWELL, "stall").bound_ns == 0).all()
