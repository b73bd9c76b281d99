"""Configs on the simulator."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.configs.cases import BLACKWELL, attention, attention_config, hopper, megamoe_config, moe
from xstage_tune.base.errors import UsageError
from xstage_tune.families.attention_a2a.config import AttentionConfig, TileOrder
from xstage_tune.families.attention_a2a.spans import remote_tiles
from xstage_tune.families.attention_a2a.tile_times import attention_tile_times
from xstage_tune.families.attention_a2a.timing import profile_case
from xstage_tune.families.binding import fused_launch
from xstage_tune.families.launch import GivenTimes
from xstage_tune.families.megamoe.config import Schedule
from xstage_tune.families.megamoe.routing import busiest_rank, local_tokens_per_expert
from xstage_tune.families.megamoe.tile_times import moe_tile_times
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform
from xstage_tune.simulator.fused_kernels import SimulatedKernels

KERNELS = SimulatedKernels(BLACKWELL)
H200 = load_platform("h200-host")
SCHEDULES = [
    Schedule(kind="wave", experts_per_wave=1),
    Schedule(kind="interleaved", lead_rows=8),
    Schedule(kind="alternating"),
    Schedule(kind="clamped-lag"),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.kind)
def test_a_layer_stores_its_combine_bytes_once(schedule: Schedule) -> None:
    layer = moe(routing={"kind": "zipf", "alpha": 1.0, "seed": 0})
    run = KERNELS.launch(layer, megamoe_config(schedule)).run()
    tokens = local_tokens_per_expert(layer, busiest_rank(layer)).sum()
    assert run.accepted_bytes == pytest.approx(tokens * 1024 * 2 * 7 / 8)
    rows = sum(-(-t // 192) for t in local_tokens_per_expert(layer, busiest_rank(layer)))
    assert run.streams.tiles == rows * (1024 // 128 + 1024 // 128)


@pytest.mark.parametrize("staging", ["alias-q", "alias-v", "dedicated-x1", "dedicated-x2"])
def test_attention_stores_what_other_ranks_own(staging: str) -> None:
    """2 local heads of 2,048 rows of 256 bytes; of 8 ranks' rows one rank's stay."""
    launch = KERNELS.launch(attention(), attention_config(output_staging=staging))
    assert launch.run().accepted_bytes == pytest.approx(2 * 2048 * 256 * 7 / 8)
    every = attention(remote_fraction=1.0)
    launch = KERNELS.launch(every, attention_config(output_staging=staging))
    assert launch.run().accepted_bytes == pytest.approx(2 * 2048 * 256)


@settings(deadline=None, max_examples=40)
@given(
    tokens=st.integers(1, 6000),
    remote_ranks=st.integers(0, 8),
    tile=st.sampled_from([(128, "alias-q", 1), (192, "alias-q", 1), (128, "dedicated-x1", 2)]),
    order=st.sampled_from(get_args(TileOrder)),
)
def test_whole_ranks_are_as_local_as_in_a_profiled_launch(
    tokens: int, remote_ranks: int, tile: tuple[int, str, int], order: TileOrder
) -> None:
    block_m, staging, kv_splits = tile
    assume(tokens > 80 or kv_splits == 1)
    workload = attention(tokens=tokens, remote_fraction=remote_ranks / 8)
    config = attention_config(
        block_m=block_m, block_n=80, output_staging=staging, tile_order=order, kv_splits=kv_splits
    )
    streams = fused_launch(workload, config, H200).streams
    case = profile_case("", workload, config, "host", seed=0)
    assert streams.remote_bytes.sum() == case.remote_bytes == workload.remote_bytes
    ctas, per_cta = streams.sms, int(np.diff(streams.first).max())
    simulated = np.zeros((ctas, per_cta), np.bool_)
    for sm, (begin, end) in enumerate(pairwise(streams.first)):
        simulated[sm, : end - begin] = streams.remote_bytes[begin:end] > 0
    assert (remote_tiles(case, ctas, per_cta) == simulated.ravel()).all()


def test_what_no_whole_ranks_make_is_a_part_of_every_tile() -> None:
    launch = fused_launch(attention(tokens=1000, remote_fraction=0.3), attention_config(), H200)
    rows = launch.streams.remote_bytes / (0.3 * 256)
    assert sorted(set(rows.round(6).tolist())) == [104, 128]
    assert launch.local_bytes == pytest.approx(rows * 0.7 * 256)


@pytest.mark.parametrize(("tokens", "heads", "most_us"), [(32_768, 4, 0.0), (16_384, 6, 7.5)])
def test_own_tiles_last_leave_little_to_drain(tokens: int, heads: int, most_us: float) -> None:
    """128 own tiles for a last round of 100; 96 for one of 108, whose other 12 drain in 7.5 us."""
    workload = attention(tokens=tokens, heads=8 * heads)
    config = attention_config(block_n=160, output_staging="dedicated-x1", store_flavour="st.v4")

    def residual_us(order: TileOrder) -> float:
        ordered = config.model_copy(update={"tile_order": order})
        with_stores = SimulatedKernels(H200).run_kernel(workload, ordered)
        alone = SimulatedKernels(H200).run_kernel(
            workload.model_copy(update={"remote_fraction": 0.0}), ordered
        )
        return (with_stores.latency_ns[0] - alone.latency_ns[0]) / 1e3

    assert residual_us("own-last") <= most_us
    assert min(map(residual_us, ("sequential", "rotated", "spread"))) > 20


def test_repeats_differ_by_their_starts_and_calls_do_not() -> None:
    first = KERNELS.run_kernel(moe(), megamoe_config(), 3)
    assert len(set(first.latency_ns)) == 3
    assert max(first.latency_ns) - min(first.latency_ns) <= 2000
    assert first == KERNELS.run_kernel(moe(), megamoe_config(), 3)
    assert first.median_ns("latency") == sorted(first.latency_ns)[1]
    assert first.samples_ns("stall") == first.stall_ns


def test_more_output_buffers_never_wait_longer() -> None:
    busy = attention(heads=320, tokens=600)
    stalls = [
        KERNELS.run_kernel(busy, attention_config(output_staging=staging)).stall_ns[0]
        for staging in ("alias-q", "alias-v", "dedicated-x1", "dedicated-x2")
    ]
    assert stalls == sorted(stalls, reverse=True)
    assert stalls[0] > stalls[1] > 0


def test_hopper_needs_a_buffer_only_at_the_end_of_a_mainloop() -> None:
    config = megamoe_config(block_m=128)
    on_hopper = SimulatedKernels(hopper()).launch(moe(), config).streams
    assert np.array_equal(on_hopper.slot_offset_ns, on_hopper.mainloop_ns)
    assert not KERNELS.launch(moe(), config).streams.slot_offset_ns.any()


def test_a_config_that_does_not_fit_is_refused_with_the_limit() -> None:
    with pytest.raises(UsageError, match="tensor memory: "):
        KERNELS.run_kernel(moe(), megamoe_config(staging_depth=3, pipeline_stages=2))
    with pytest.raises(UsageError, match="does not fit the workload"):
        KERNELS.run_kernel(moe(), attention_config())


def test_tile_times_by_hand() -> None:
    """w8a8 at 4.5 PFLOP/s * 0.763 over 148 SMs; operands of a pair at 64 bytes a clock."""
    times = moe_tile_times(megamoe_config(), moe(), BLACKWELL)
    tokens = np.array([192])
    assert times.compute_ns(tokens, 1024)[0] == pytest.approx(
        2 * 192 * 128 * 1024 / (4.5e15 * 0.763 / 148) * 1e9
    )
    assert times.load_ns(tokens, 1024)[0] == pytest.approx(1024 * (96 + 128) / (64 * 1.98))
    assert times.mainloop_ns(tokens, 1024)[0] == pytest.approx(64 + times.compute_ns(tokens, 1024)[0])


def test_few_stages_and_narrow_tiles_are_slow() -> None:
    shallow = moe_tile_times(megamoe_config(pipeline_stages=1), moe(), BLACKWELL)
    # One stage of (96 + 128) * 128 bytes per 500 ns.
    assert shallow.load_bytes_per_ns == pytest.approx((96 + 128) * 128 / 500)
    half = moe_tile_times(megamoe_config(block_n=64), moe(), BLACKWELL)
    assert half.efficiency == pytest.approx(0.763 / 2)
    assert moe_tile_times(megamoe_config(block_n=64), moe(), hopper()).efficiency == pytest.approx(0.763)


def test_kv_tiles_scale_with_their_work() -> None:
    """790 ns for 128 x 128 x 128, as measured; half the head dimension or KV rows, half the time."""
    assert attention_tile_times(attention_config(), attention(), BLACKWELL).kv_tile_ns == 790
    narrow = attention_tile_times(attention_config(block_n=64), attention(), BLACKWELL)
    assert narrow.kv_tile_ns == 395
    assert attention_tile_times(attention_config(), attention(head_dim=64), BLACKWELL).kv_tile_ns == 395
    # 64 query rows keep a Blackwell Tensor Core as busy as 128.
    assert attention_tile_times(attention_config(block_m=64), attention(), BLACKWELL).kv_tile_ns == 790


def test_a_platform_without_the_rate_or_tile_is_refused() -> None:
    assert BLACKWELL.compute is not None
    poor = BLACKWELL.model_copy(
        update={
            "compute": BLACKWELL.compute.model_copy(
                update={"attention": (), "tensor": BLACKWELL.compute.tensor[:1]}
            )
        }
    )
    with pytest.raises(UsageError, match=r"no compute.tensor rate for 'fp8'"):
        SimulatedKernels(poor).run_kernel(moe(), megamoe_config())
    with pytest.raises(UsageError, match=r"no compute.attention tile for 'bf16'"):
        SimulatedKernels(poor).run_kernel(attention(), attention_config())


def test_a_kernel_ends_when_its_stores_have_drained() -> None:
    """One round of tiles: nothing follows that could hide the drain of what they store."""
    workload = attention(tokens=2048, heads=24, remote_fraction=1.0)
    config = attention_config(output_staging="alias-q")
    kernel = SimulatedKernels(H200).run_kernel(workload, config)
    alone = SimulatedKernels(H200).run_kernel(workload.model_copy(update={"remote_fraction": 0.0}), config)
    drain_ns = 2048 * 3 * 128 * 2 / H200.drain.bytes_per_s * 1e9
    assert kernel.latency_ns[0] - alone.latency_ns[0] == pytest.approx(drain_ns, rel=0.1)


def test_paced_stores_leave_the_path_to_the_loads_but_for_the_last_round() -> None:
    """16,384 tokens of 3 heads: three rounds, of which bursts hold up two, and the last drains uncovered."""
    workload = attention(tokens=16_384, heads=24, remote_fraction=0.875)
    paced, burst = (
        attention_config(block_n=160, output_staging="dedicated-x1", store_flavour="st.v4"),
        attention_config(block_n=160, output_staging="alias-v", store_flavour="st.v4"),
    )

    def residual_ns(config: AttentionConfig) -> float:
        with_stores = SimulatedKernels(H200).run_kernel(workload, config)
        local = workload.model_copy(update={"remote_fraction": 0.0})
        return with_stores.latency_ns[0] - SimulatedKernels(H200).run_kernel(local, config).latency_ns[0]

    last_round_ns = (384 - 264) * 128 * 128 * 2 * 0.875 / H200.drain.bytes_per_s * 1e9
    assert residual_ns(paced) == pytest.approx(last_round_ns, rel=0.1)
    assert residual_ns(burst) > 1.3 * residual_ns(paced)


def split(kv_splits: int, **changes: Any) -> AttentionConfig:
    keys = {"output_staging": "dedicated-x1", "tile_order": "own-last", "kv_splits": kv_splits}
    return attention_config(**keys | changes)


@pytest.mark.parametrize("tokens", [4096, 4100])  # the last tile of a head has 4 rows, all of its first CTA's
def test_ctas_that_share_tiles_store_the_same_bytes(tokens: int) -> None:
    workload = attention(tokens=tokens, heads=24)
    whole, shared = (SimulatedKernels(H200).launch(workload, split(parts)) for parts in (1, 2))
    assert shared.streams.tiles == 2 * whole.streams.tiles
    assert shared.streams.remote_bytes.sum() == whole.streams.remote_bytes.sum()
    assert shared.local_bytes.sum() == pytest.approx(whole.local_bytes.sum())
    assert shared.streams.remote_bytes.max() == whole.streams.remote_bytes.max() / 2
    assert shared.run().accepted_bytes == pytest.approx(whole.run().accepted_bytes)


def test_one_warpgroup_stages_half_the_rows_in_the_time_that_the_platform_gives() -> None:
    """Sooner than two of a whole tile, which come to it one after the other."""
    workload = attention(tokens=4096, remote_fraction=1.0)
    whole, shared = (fused_launch(workload, split(parts), H200).streams for parts in (1, 2))
    assert H200.compute is not None
    known = next(
        tile.split.staging_ns
        for tile in H200.compute.attention
        if (tile.block_m, tile.block_n, tile.head_dim) == (128, 128, 128) and tile.split is not None
    )
    assert set(shared.staging_ns) == {known}
    assert known is not None
    assert known < whole.staging_ns.min()


def test_without_a_split_tile_s_own_staging_that_of_the_whole_tile_counts() -> None:
    assert H200.compute is not None
    tiles = tuple(
        tile.model_copy(update={"split": tile.split and tile.split.model_copy(update={"staging_ns": None})})
        for tile in H200.compute.attention
    )
    unknown = H200.model_copy(update={"compute": H200.compute.model_copy(update={"attention": tiles})})
    workload = attention(tokens=4096)
    whole, shared = (attention_tile_times(split(parts), workload, unknown) for parts in (1, 2))
    assert shared.epilogue_ns == whole.epilogue_ns


def test_without_stores_a_split_costs_a_fixed_part_and_an_exchange_for_each_q_loop() -> None:
    """512 tiles: 4 rounds of 132 CTAs, 8 of 66 teams."""
    workload = attention(tokens=65_536, heads=8, remote_fraction=0.0)
    whole, shared = (SimulatedKernels(H200).run_kernel(workload, split(parts)) for parts in (1, 2))
    times = attention_tile_times(split(2), workload, H200)
    whole_ns = attention_tile_times(split(1), workload, H200).kv_tile_ns
    assert times.exchange_ns > 0
    # Of 512 KV tiles all in four rounds, half in eight.
    cost_ns = 8 * (times.fixed_ns + times.exchange_ns) - 4 * times.fixed_ns
    cost_ns += 4 * 512 * (times.kv_tile_ns - whole_ns)
    # The last tile's staging has its local stores, of which each CTA has half; CTAs begin up to 1 us apart.
    assert shared.latency_ns[0] - whole.latency_ns[0] == pytest.approx(cost_ns, abs=1500)


def test_a_split_leaves_less_to_drain_at_the_end_of_a_short_attention() -> None:
    """Of 256 tiles the last round is of 124, 92 of them remote; of 66 teams 58, of which 26."""
    workload = load_workload("fa-a2a/paper", ("tokens=8192", "heads=32", "remote_fraction=0.875"))

    def residual_ns(config: AttentionConfig) -> float:
        local = workload.model_copy(update={"remote_fraction": 0.0})
        with_stores = SimulatedKernels(H200).run_kernel(workload, config)
        return with_stores.latency_ns[0] - SimulatedKernels(H200).run_kernel(local, config).latency_ns[0]

    tile_ns = 128 * 128 * 2 / H200.drain.bytes_per_s * 1e9
    assert residual_ns(split(1)) == pytest.approx(92 * tile_ns, rel=0.1)
    assert residual_ns(split(2)) == pytest.approx(26 * tile_ns, rel=0.1)


def test_the_last_sm_of_an_odd_number_stays_idle_where_pairs_share_tiles() -> None:
    odd = hopper().model_copy(update={"gpu": hopper().gpu.model_copy(update={"sm_count": 131})})
    streams = fused_launch(attention(tokens=8192, heads=24), split(2), odd).streams
    per_sm = np.diff(streams.first)
    assert (per_sm[:130] > 0).all()
    assert per_sm[130] == 0


def test_a_given_q_loop_is_that_of_each_cta() -> None:
    streams = fused_launch(attention(tokens=4100), split(2), H200, given=GivenTimes(q_ns=5000.0)).streams
    assert streams.mainloop_ns == pytest.approx(5000.0)
