"""Tile times of a config, with what they rest on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xstage_tune.audit.figures import Basis, Figure, derived
from xstage_tune.configs.architecture import compute_of, unmeasured_compute
from xstage_tune.configs.schema import AttentionConfig, MegaMoeConfig
from xstage_tune.devices import tile_times
from xstage_tune.model.checks import NS_PER_S
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.workloads.schema import AttentionWorkload, MoeWorkload


@dataclass(frozen=True, slots=True)
class MoeTimes:
    """T_L1 and T_L2: mainloops of one full Linear-1 and one full Linear-2 tile."""

    l1_ns: Figure
    l2_ns: Figure


@dataclass(frozen=True, slots=True)
class QLoopTimes:
    """Sigma, the Q-loop and its fixed part, G_QK, and what a consumer spends on staging its rows."""

    kv_tile_ns: Figure
    fixed_ns: Figure
    exchange_ns: Figure  # of CTAs that share a tile; 0 where none do
    q_loop_ns: Figure
    cover_ns: Figure
    staging_ns: Figure


def moe_times(
    layer: MoeWorkload,
    platform: PlatformProfile,
    config: MegaMoeConfig,
    *,
    tile_tokens: int,
    rows_per_expert: float,
) -> MoeTimes:
    """Mainloops of the largest tiles, where each weight tile comes from memory once for an expert's rows.

    Raises:
        UsageError: the platform has no compute section, or no rate for the layer's operands.
    """
    times = tile_times.moe_tile_times(config, layer, platform)
    memory_bytes_per_s = compute_of(platform).memory_bytes_per_s / platform.gpu.sm_count

    def mainloop(depth: int) -> Figure:
        from_l2 = float(times.mainloop_ns(np.array(tile_tokens), depth))
        weight_bytes = config.block_n * depth * layer.weight_bytes / rows_per_expert
        from_memory = times.fill_ns + weight_bytes / memory_bytes_per_s * NS_PER_S
        limit = "compute or L2 loads" if from_l2 >= from_memory else "weight loads from memory"
        origin = f"{limit} of a {tile_tokens} x {config.block_n} x {depth} tile at the platform's rates"
        if unmeasured_compute(platform):
            origin += " (compute: datasheet)"
        return Figure(max(from_l2, from_memory), Basis.ASSUMED, origin)

    return MoeTimes(mainloop(layer.linear1_shape[1]), mainloop(layer.linear2_shape[1]))


def q_loop_times(
    attention: AttentionWorkload, platform: PlatformProfile, config: AttentionConfig
) -> QLoopTimes:
    """Times of a Q-loop: the platform's own where it has this tile, else scaled from its nearest.

    Raises:
        UsageError: the platform has no compute section or no attention tile.
    """
    times = tile_times.attention_tile_times(config, attention, platform)
    shape = (config.block_m, config.block_n, attention.head_dim)
    basis, origin = Basis.ASSUMED, "scaled by work from the platform's nearest attention tile"
    for tile in compute_of(platform).attention:
        sigma_ns = tile_times.measured_sigma_ns(tile, config)
        if (tile.block_m, tile.block_n, tile.head_dim) == shape and sigma_ns == times.kv_tile_ns:
            basis, origin = Basis.MEASURED, tile.source
    if unmeasured_compute(platform):
        basis, origin = Basis.ASSUMED, f"compute: datasheet; {origin}"
    cover = Figure(times.cover_ns, max(basis, Basis.DERIVED), "G_QK, the first product of a KV tile")
    if config.output_staging == "alias-q":
        cover = Figure(0.0, Basis.DERIVED, "the output holds Q's buffer, so the next tile waits")
    kv_tile, fixed, exchange, staging = (
        Figure(value, basis, origin)
        for value in (times.kv_tile_ns, times.fixed_ns, times.exchange_ns, times.epilogue_ns)
    )
    if config.kv_splits == 1:
        words = "the Q-loop, fixed part + sigma*ceil(M/b_n)"
        q_loop = derived(times.q_loop_ns, words, kv_tile, fixed)
    else:
        words = f"the Q-loop, fixed part + sigma*ceil(ceil(M/b_n)/{config.kv_splits}) + exchange of outputs"
        q_loop = derived(times.q_loop_ns, words, kv_tile, fixed, exchange)
    return QLoopTimes(kv_tile, fixed, exchange, q_loop, cover, staging)
