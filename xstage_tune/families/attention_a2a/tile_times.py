"""Time of an output tile of an attention config: the platform's measured tiles, scaled by the work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xstage_tune.base.errors import UsageError
from xstage_tune.families.architecture import architecture_of, compute_of
from xstage_tune.families.attention_a2a.budget import WARPGROUP_ROWS
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.tile_times import EPILOGUE_WARP_NS_PER_ELEMENT, load_bytes_per_ns
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.model.attention import q_loop_kv_tiles
from xstage_tune.platforms.schema import AttentionTile, PlatformProfile

#: Warps that hand an attention tile's output on: one warpgroup.
_ATTENTION_EPILOGUE_WARPS = 4
# What a storer warp stores at once of its warpgroup's rows: 16 bytes a thread.
_STORE_INSTRUCTION_BYTES = 512


@dataclass(frozen=True, slots=True)
class AttentionTileTimes:
    """What one output tile takes a CTA: its Q-loop, then its epilogue.

    Args:
        kv_tiles: that the CTA goes over.
        kv_tile_ns: sigma, of each.
        fixed_ns: of every Q-loop.
        exchange_ns: of merging the outputs of the CTAs that share a tile; 0 where none do.
        cover_ns: G_QK of equation 19, the first product of a KV tile.
        epilogue_ns: of staging its rows of a full tile, whose warpgroups do so side by side.
    """

    kv_tiles: int
    kv_tile_ns: float
    fixed_ns: float
    exchange_ns: float
    cover_ns: float
    epilogue_ns: float

    @property
    def q_loop_ns(self) -> float:
        """G_Qloop."""
        return self.fixed_ns + self.kv_tile_ns * self.kv_tiles + self.exchange_ns


def attention_tile_times(
    config: AttentionConfig, workload: AttentionWorkload, platform: PlatformProfile
) -> AttentionTileTimes:
    """Tile times of a config: the platform's measured sigma of the nearest tile, scaled by the work.

    Raises:
        UsageError: the platform has no compute section, no attention tile or, for a config that splits KV,
            none with split times; or an unknown architecture.
    """
    architecture = architecture_of(platform)
    reference = _nearest_tile(config, workload, platform)
    # Fewer rows than the Tensor Core works on take as long as a full set.
    rows = -(-config.block_m // architecture.mma_m_full_rate) * architecture.mma_m_full_rate
    work = rows * config.block_n * workload.head_dim
    split = reference.split if config.kv_splits > 1 else None
    sigma_ns = (
        measured_sigma_ns(reference, config)
        * work
        / (reference.block_m * reference.block_n * reference.head_dim)
    )
    kv_bytes = 2.0 * config.block_n * workload.head_dim * OUTPUT_BYTES
    load_ns = kv_bytes / load_bytes_per_ns(config.kv_stages * kv_bytes, platform)
    kv_tile_ns = max(sigma_ns, load_ns)
    staging_ns = reference.staging_ns
    if split is not None and split.staging_ns is not None:
        staging_ns = split.staging_ns
    if staging_ns is None:
        elements = config.block_m * workload.head_dim
        epilogue_ns = elements * EPILOGUE_WARP_NS_PER_ELEMENT / _ATTENTION_EPILOGUE_WARPS
    else:
        larger = config.block_m * workload.head_dim / (reference.block_m * reference.head_dim)
        epilogue_ns = staging_ns * larger
    return AttentionTileTimes(
        kv_tiles=q_loop_kv_tiles(tokens=workload.tokens, block_n=config.block_n, kv_splits=config.kv_splits),
        kv_tile_ns=kv_tile_ns,
        fixed_ns=reference.fixed_ns,
        exchange_ns=split.exchange_ns if split else 0.0,
        cover_ns=kv_tile_ns / 2,
        epilogue_ns=epilogue_ns,
    )


def measured_sigma_ns(tile: AttentionTile, config: AttentionConfig) -> float:
    """Sigma of a platform's tile, whole or shared by CTAs as the config's."""
    return tile.split.kv_tile_ns if config.kv_splits > 1 and tile.split else tile.kv_tile_ns


def paced_part_of_q_loop(head_dim: int) -> float:
    """Part of a Q-loop over which the attention kernel spreads paced stores of the tile before.

    A warp's stores are evenly apart, and the first leaves at once (``storer.cuh``).
    """
    stores = WARPGROUP_ROWS * head_dim * OUTPUT_BYTES // _STORE_INSTRUCTION_BYTES
    return 1.0 - 1.0 / stores


def scaled_from(
    config: AttentionConfig, workload: AttentionWorkload, platform: PlatformProfile
) -> str | None:
    """What the time of a config's tile is scaled from, in words; None where it is that of a measured tile.

    Raises:
        UsageError: as :func:`attention_tile_times`.
    """
    reference = _nearest_tile(config, workload, platform)
    measured = (reference.block_m, reference.block_n, reference.head_dim)
    if measured == (config.block_m, config.block_n, workload.head_dim):
        return None
    shared = f" of {config.kv_splits} CTAs" if config.kv_splits > 1 else ""
    return (
        f"the time of a {config.block_m}x{config.block_n} tile{shared} (head dim {workload.head_dim}) is "
        f"scaled by its work from that of {reference.block_m}x{reference.block_n} (head dim "
        f"{reference.head_dim})"
    )


def _tiles_of(
    config: AttentionConfig, workload: AttentionWorkload, platform: PlatformProfile
) -> list[AttentionTile]:
    """Tiles whose times say something of the config's."""
    tiles = [tile for tile in compute_of(platform).attention if tile.dtype == workload.dtype]
    if not tiles:
        raise UsageError(
            f"platform '{platform.name}' has no compute.attention tile for '{workload.dtype}'",
            "add [[compute.attention]] with the time of a KV tile to the profile",
        )
    if config.kv_splits == 1:
        return tiles
    split = [tile for tile in tiles if tile.split is not None]
    if not split:
        raise UsageError(
            f"platform '{platform.name}' has no compute.attention tile with split times",
            "add them to a tile of the profile, or take kv_splits = 1",
        )
    return split


def _nearest_tile(
    config: AttentionConfig, workload: AttentionWorkload, platform: PlatformProfile
) -> AttentionTile:
    def distance(tile: AttentionTile) -> tuple[float, ...]:
        pairs = (
            (tile.head_dim, workload.head_dim),
            (tile.block_m, config.block_m),
            (tile.block_n, config.block_n),
        )
        return tuple(abs(np.log(measured / wanted)) for measured, wanted in pairs)

    return min(_tiles_of(config, workload, platform), key=distance)
