"""The closed forms know which configs are good."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from tests.configs.cases import BLACKWELL, attention, attention_config, hopper, megamoe_config, moe
from tests.search.cases import drained, small_space
from xstage_tune.families.attention_a2a.config import TileOrder
from xstage_tune.families.megamoe.config import Schedule
from xstage_tune.families.workload import Workload
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.search.ranking import rank_configs
from xstage_tune.search.space import build_space
from xstage_tune.simulator import fused_kernels as simulated_kernels
from xstage_tune.simulator.fused_kernels import SimulatedKernels

H200 = load_platform("h200-host")


def test_nothing_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the ranking must not simulate")

    monkeypatch.setattr(simulated_kernels, "simulate", refuse)
    space = small_space()
    order = rank_configs(space.configs, drained(), BLACKWELL, "latency").order
    assert sorted(order.tolist()) == list(range(len(space.configs)))


@pytest.mark.parametrize("platform", [BLACKWELL, hopper()], ids=lambda platform: platform.name)
@pytest.mark.parametrize("workload", [drained(), attention(tokens=6000)], ids=["moe", "attention"])
def test_expected_times_order_the_simulated_ones(workload: Workload, platform: PlatformProfile) -> None:
    from scipy.stats import spearmanr  # takes a second, in every process that collects

    configs = build_space(workload, platform).configs
    chosen = [configs[i] for i in np.random.default_rng(3).choice(len(configs), 60, replace=False)]
    device = SimulatedKernels(platform)
    measured = [device.run_kernel(workload, config, 1).latency_ns[0] for config in chosen]
    expected = rank_configs(chosen, workload, platform, "latency").predicted_ns
    assert spearmanr(measured, expected).statistic > 0.9


@pytest.mark.parametrize(
    ("block_m", "block_n", "schedule"),
    [
        (96, 128, Schedule(kind="wave", experts_per_wave=2)),
        (64, 64, Schedule(kind="interleaved", lead_rows=3)),
        (64, 64, Schedule(kind="interleaved", lead_rows=2)),
        (128, 64, Schedule(kind="alternating")),
    ],
    ids=lambda value: getattr(value, "label", None),
)
def test_a_launch_that_the_path_limits_is_expected_to_take_the_drain_and_what_it_waits_for(
    block_m: int, block_n: int, schedule: Schedule
) -> None:
    """Combine of this layer drains for 1.7 ms, behind mainloops of 0.4 to 0.6 ms."""
    layer = load_workload("megamoe/deepseek-v4-flash", ["tokens_per_rank=2048"])
    config = megamoe_config(
        block_m=block_m, block_n=block_n, pipeline_stages=6, staging_depth=1, schedule=schedule
    )
    simulated_ns = SimulatedKernels(H200).run_kernel(layer, config).latency_ns[0]
    ranking = rank_configs([config], layer, H200, "latency")
    assert 0.8 < ranking.predicted_ns[0] / simulated_ns < 1.25


@pytest.mark.parametrize("order", get_args(TileOrder))
@pytest.mark.parametrize("heads", [3, 4, 6])
@pytest.mark.parametrize(("kv_splits", "block_n"), [(1, 160), (2, 128)])
def test_what_the_last_round_of_an_order_leaves_to_drain_is_expected(
    order: TileOrder, heads: int, kv_splits: int, block_n: int
) -> None:
    """Paced stores: nothing else is exposed. CTAs begin up to a microsecond apart."""
    layer = attention(tokens=16_000, heads=8 * heads)
    config = attention_config(
        block_n=block_n, output_staging="dedicated-x1", tile_order=order, kv_splits=kv_splits
    )
    simulated_ns = SimulatedKernels(H200).run_kernel(layer, config).latency_ns[0]
    ranking = rank_configs([config], layer, H200, "latency")
    assert ranking.predicted_ns[0] == pytest.approx(simulated_ns, abs=1500)


def test_own_tiles_last_are_expected_to_be_best_unless_even_they_are_remote() -> None:
    configs = [
        attention_config(block_n=160, output_staging="dedicated-x1", tile_order=order)
        for order in get_args(TileOrder)
    ]

    def best(**changes: float) -> set[str]:
        layer = attention(tokens=32_768, heads=32, **changes)
        ranking = rank_configs(configs, layer, H200, "latency")
        expected_ns = dict(zip(get_args(TileOrder), ranking.predicted_ns, strict=True))
        return {order for order, ns in expected_ns.items() if ns == min(expected_ns.values())}

    assert best() == best(remote_fraction=7 / 8) == {"own-last"}
    assert best(remote_fraction=1.0) == set(get_args(TileOrder))


def test_a_split_is_expected_to_win_where_the_last_round_s_drain_is_long_beside_the_exchanges() -> None:
    configs = [
        attention_config(output_staging="dedicated-x1", tile_order="own-last", kv_splits=splits)
        for splits in (1, 2)
    ]
    for tokens, best in ((8192, 2), (65_536, 1)):
        layer = attention(tokens=tokens, heads=32, remote_fraction=7 / 8)
        first = rank_configs(configs, layer, H200, "latency").order[0]
        assert configs[first].kv_splits == best


def expected_ns(schedule: Schedule, **changes: int) -> float:
    ranking = rank_configs([megamoe_config(schedule, **changes)], drained(), BLACKWELL, "latency")
    return float(ranking.predicted_ns[0])


def test_interleaving_is_expected_to_beat_drain_limited_waves() -> None:
    waves = [expected_ns(Schedule(kind="wave", experts_per_wave=n)) for n in (1, 2, 4)]
    assert expected_ns(Schedule(kind="interleaved", lead_rows=12)) < min(waves)


def test_leads_too_short_starve_and_leads_too_long_leave_a_tail() -> None:
    starved, good, long = (expected_ns(Schedule(kind="interleaved", lead_rows=d)) for d in (1, 12, 64))
    assert good < long < starved


def test_one_slot_serialises_mainloops_and_stores() -> None:
    alternating = Schedule(kind="alternating")
    assert expected_ns(alternating, staging_depth=1) > 1.2 * expected_ns(alternating, staging_depth=2)


def test_of_twins_the_deepest_comes_first_and_the_others_last() -> None:
    """Three stages already feed the port: more make no difference that the model sees."""
    configs = [
        megamoe_config(Schedule(kind="interleaved", lead_rows=lead), pipeline_stages=stages)
        for lead in (2, 12)
        for stages in (4, 6, 5)
    ]
    ranking = rank_configs(configs, drained(), BLACKWELL, "latency")
    assert ranking.order.tolist() == [4, 1, 5, 3, 2, 0]
    assert ranking.twin.tolist() == [True, False, True, True, False, True]


def test_equal_stalls_are_ordered_by_time() -> None:
    layer = moe(tokens_per_rank=4096, remote_fraction=0.0)
    configs = [megamoe_config(block_m=m, staging_depth=3, epilogue_warps=8) for m in (32, 128)]
    ranking = rank_configs(configs, layer, BLACKWELL, "stall")
    latency = rank_configs(configs, layer, BLACKWELL, "latency").predicted_ns
    assert ranking.predicted_ns[0] == ranking.predicted_ns[1]
    assert latency[0] > latency[1]
    assert ranking.order.tolist() == [1, 0]


def test_no_config_at_all_is_an_empty_ranking() -> None:
    assert rank_configs([], drained(), BLACKWELL, "latency").order.size == 0
