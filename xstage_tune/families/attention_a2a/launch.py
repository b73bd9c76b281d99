"""From an attention config to the tiles of its launch, on rank 0."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.order import (
    AttentionGrid,
    attention_order,
    last_round_remote_rows,
)
from xstage_tune.families.attention_a2a.streams import (
    OutputStores,
    QLoop,
    attention_streams,
    output_store_bytes,
)
from xstage_tune.families.attention_a2a.tile_times import attention_tile_times, paced_part_of_q_loop
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.launch import FusedLaunch, GivenTimes
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.launches.streams import Floats, Streams
from xstage_tune.platforms.schema import PlatformProfile

_SLOTS = {"alias-q": 1, "alias-v": 1, "dedicated-x1": 1, "dedicated-x2": 2}


def attention_grid(
    config: AttentionConfig, workload: AttentionWorkload, platform: PlatformProfile
) -> AttentionGrid:
    """The tiles of rank 0."""
    return AttentionGrid(
        heads=workload.local_heads,
        tokens=workload.tokens,
        block_m=config.block_m,
        sms=platform.gpu.sm_count,
        ranks=workload.degree,
        local_ranks=workload.local_ranks,
        kv_splits=config.kv_splits,
    )


def last_round_remote_bytes(
    config: AttentionConfig, workload: AttentionWorkload, platform: PlatformProfile
) -> float:
    """What the last round of tiles stores remotely, which no Q-loop follows."""
    rows = last_round_remote_rows(attention_grid(config, workload, platform), config.tile_order)
    return rows * workload.remote_row_part * workload.head_dim * OUTPUT_BYTES


def attention_launch(
    config: AttentionConfig, workload: AttentionWorkload, platform: PlatformProfile, given: GivenTimes
) -> FusedLaunch:
    loop, epilogue_ns = _attention_times(config, workload, platform, given)
    grid = attention_grid(config, workload, platform)
    stores = OutputStores(
        row_bytes=float(workload.head_dim * OUTPUT_BYTES),
        local_bytes_per_ns=math.inf,
        fixed_ns=epilogue_ns,
        remote_row_part=workload.remote_row_part,
    )
    order = attention_order(grid, config.tile_order)
    streams = attention_streams(grid, order, loop, stores)
    local_bytes, _ = output_store_bytes(order, stores)
    return FusedLaunch(
        streams=replace(
            streams,
            slot_offset_ns=_slot_offset_ns(config, streams, loop.cover_ns),
            paced_ns=_paced_ns(config, streams, workload.head_dim),
        ),
        local_bytes=local_bytes,
        staging_slots=_SLOTS[config.output_staging],
        flavour=config.store_flavour,
        load_cover_ns=config.kv_stages * loop.kv_tile_ns,
    )


def _paced_ns(config: AttentionConfig, streams: Streams, head_dim: int) -> Floats:
    """How long a tile's stores are held back: most of a Q-loop, but nothing in the last round."""
    if not config.paces_stores:
        return np.zeros(streams.tiles)
    round_of_tile = np.arange(streams.tiles) - streams.first[streams.sm_of_tile()]
    is_last = round_of_tile == np.diff(streams.first).max(initial=0) - 1
    paced: Floats = paced_part_of_q_loop(head_dim) * streams.mainloop_ns * ~is_last
    return paced


def _attention_times(
    config: AttentionConfig, workload: AttentionWorkload, platform: PlatformProfile, given: GivenTimes
) -> tuple[QLoop, float]:
    """The Q-loop, and the epilogue of a tile in ns."""
    times = attention_tile_times(config, workload, platform)
    loop = QLoop(
        block_n=config.block_n,
        kv_tile_ns=times.kv_tile_ns,
        fixed_ns=times.fixed_ns,
        cover_ns=times.cover_ns,
        kv_splits=config.kv_splits,
        exchange_ns=times.exchange_ns,
    )
    if given.q_ns is not None:
        kv_tile_ns = given.q_ns / times.kv_tiles
        loop = QLoop(config.block_n, kv_tile_ns, cover_ns=kv_tile_ns / 2, kv_splits=config.kv_splits)
    return loop, times.epilogue_ns if given.epilogue_ns is None else given.epilogue_ns


def _slot_offset_ns(config: AttentionConfig, streams: Streams, cover_ns: float) -> Floats:
    """How far a Q-loop gets while the tile before it is stored.

    The buffer of Q is needed at once, that of V after the first product, an own one only at the end.
    """
    if config.output_staging == "alias-q":
        return np.zeros(streams.tiles)
    if config.output_staging == "alias-v":
        return np.minimum(cover_ns, streams.mainloop_ns)
    return streams.mainloop_ns
