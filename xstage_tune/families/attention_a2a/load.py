"""What an attention config asks of one rank's SMs and path, in closed form."""

from __future__ import annotations

from xstage_tune.families.attention_a2a.budget import staged_rows
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.launch import attention_grid, last_round_remote_bytes
from xstage_tune.families.attention_a2a.tile_times import attention_tile_times
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.equal_tiles import EqualTiles, equal_tiles
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.model.attention import output_tile_bytes
from xstage_tune.platforms.schema import PlatformProfile


def attention_load(
    config: AttentionConfig, workload: AttentionWorkload, platform: PlatformProfile
) -> EqualTiles:
    """The load of a config.

    Raises:
        UsageError: the platform lacks compute figures, T0 or Q.
    """
    grid = attention_grid(config, workload, platform)
    times = attention_tile_times(config, workload, platform)
    q_loop_ns = times.q_loop_ns
    covers = {"alias-q": 0.0, "alias-v": min(times.cover_ns, q_loop_ns), "dedicated-x1": q_loop_ns}
    tile_bytes = output_tile_bytes(
        block_m=staged_rows(config), head_dim=workload.head_dim, element_bytes=OUTPUT_BYTES
    )
    return equal_tiles(
        platform,
        config.store_flavour,
        tiles=grid.tiles * grid.kv_splits,
        sms=grid.teams * grid.kv_splits,
        tile_ns=q_loop_ns,
        cover_ns=covers.get(config.output_staging, 2 * q_loop_ns),
        epilogue_ns=times.epilogue_ns,
        tile_bytes=float(tile_bytes),
        remote_fraction=workload.output_remote_fraction,
        remote_bytes=workload.remote_bytes,
        last_round_bytes=last_round_remote_bytes(config, workload, platform),
        operands_ns=config.kv_stages * times.kv_tile_ns,
        paced=config.paces_stores,
    )
