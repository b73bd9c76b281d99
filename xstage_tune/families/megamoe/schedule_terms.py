"""The terms of :mod:`xstage_tune.export.schedule_choice` for a tuned MoE config."""

from __future__ import annotations

import numpy as np

from xstage_tune.families.architecture import architecture_of, compute_of
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.defaults import schedule_of_kind, usual_lead_rows
from xstage_tune.families.megamoe.schedule_model import ScheduleModel
from xstage_tune.families.megamoe.tile_times import moe_tile_times
from xstage_tune.families.megamoe.tiling import linear_tiles
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.platforms.latencies import latencies_of
from xstage_tune.platforms.queries import capacity_bytes
from xstage_tune.platforms.schema import PlatformProfile


def schedule_model(layer: MoeWorkload, platform: PlatformProfile, config: MegaMoeConfig) -> ScheduleModel:
    """The terms of a tuned config: D and the experts a wave are the tuned ones where it has them.

    Raises:
        UsageError: the platform lacks compute figures or Q.
    """
    group = architecture_of(platform).cta_group
    sms = platform.gpu.sm_count // group * group
    times = moe_tile_times(config, layer, platform)
    l1_tiles, l2_tiles = linear_tiles(config, layer, architecture_of(platform))
    (_, l1_depth), (_, l2_depth) = layer.linear1_shape, layer.linear2_shape
    tile_bytes = config.block_m * config.block_n * OUTPUT_BYTES * layer.combine_remote_fraction
    rows, latencies = np.array(config.block_m), latencies_of(platform)
    epilogue_ns = times.epilogue_ns_per_token * config.block_m
    return ScheduleModel(
        sms=sms,
        l1_tiles=l1_tiles.count,
        l2_tiles=l2_tiles.count,
        l1_mainloop_ns=float(times.mainloop_ns(rows, l1_depth)),
        l2_mainloop_ns=float(times.mainloop_ns(rows, l2_depth)),
        l1_handover_ns=epilogue_ns + latencies.counter.ns + latencies.signal.ns,
        tile_bytes=tile_bytes * l2_tiles.filled,
        drain_bytes_per_s=platform.drain.bytes_per_s,
        capacity_bytes=float(capacity_bytes(platform, config.store_flavour, sms)),
        l1_weight_tile_bytes=config.block_n * l1_depth * layer.weight_bytes * l1_tiles.filled,
        l2_weight_tile_bytes=config.block_n * l2_depth * layer.weight_bytes * l2_tiles.filled,
        row_output_bytes=config.block_m * layer.intermediate * layer.activation_bytes,
        cache_bytes=float(platform.gpu.l2_bytes),
        memory_bytes_per_s=compute_of(platform).memory_bytes_per_s,
        lead_rows=config.schedule.lead_rows or usual_lead_rows(config, layer, sms),
        experts_per_wave=_experts_per_wave(layer, platform, config),
    )


def _experts_per_wave(layer: MoeWorkload, platform: PlatformProfile, config: MegaMoeConfig) -> int:
    if config.schedule.experts_per_wave:
        return config.schedule.experts_per_wave
    wave = schedule_of_kind("wave", config, layer, platform)
    assert wave.experts_per_wave is not None
    return wave.experts_per_wave
