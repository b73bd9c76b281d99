"""Tile times of an attention config, with what they rest on."""

from __future__ import annotations

from dataclasses import dataclass

from xstage_tune.estimates.figures import Basis, Figure, derived
from xstage_tune.families.architecture import compute_of
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.tile_times import attention_tile_times, measured_sigma_ns
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.platforms.schema import PlatformProfile


@dataclass(frozen=True, slots=True)
class QLoopTimes:
    """Sigma, the Q-loop and its fixed part, G_QK, and what a consumer spends on staging its rows."""

    kv_tile_ns: Figure
    fixed_ns: Figure
    exchange_ns: Figure  # of CTAs that share a tile; 0 where none do
    q_loop_ns: Figure
    cover_ns: Figure
    staging_ns: Figure


def q_loop_times(
    attention: AttentionWorkload, platform: PlatformProfile, config: AttentionConfig
) -> QLoopTimes:
    """Times of a Q-loop: the platform's own where it has this tile, else scaled from its nearest.

    Raises:
        UsageError: the platform has no compute section or no attention tile.
    """
    times = attention_tile_times(config, attention, platform)
    shape = (config.block_m, config.block_n, attention.head_dim)
    basis, origin = Basis.ASSUMED, "scaled by work from the platform's nearest attention tile"
    for tile in compute_of(platform).attention:
        sigma_ns = measured_sigma_ns(tile, config)
        if (tile.block_m, tile.block_n, tile.head_dim) == shape and sigma_ns == times.kv_tile_ns:
            basis, origin = Basis.MEASURED, tile.source
    if (compute := compute_of(platform)).origin != "measured":
        origin = f"compute: {compute.origin}; {origin}"
        basis = Basis.ASSUMED if compute.origin == "datasheet" else basis
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
