"""Tile times of a MegaMoE config, with what they rest on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xstage_tune.estimates.figures import Basis, Figure
from xstage_tune.families.architecture import compute_of
from xstage_tune.families.launch import GivenTimes
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.tile_times import moe_tile_times
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.model.locality import tile_load_ns
from xstage_tune.platforms.schema import PlatformProfile


@dataclass(frozen=True, slots=True)
class MoeTimes:
    """T_L1 and T_L2: mainloops of one full Linear-1 and one full Linear-2 tile."""

    l1_ns: Figure
    l2_ns: Figure


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
    times = moe_tile_times(config, layer, platform)

    def mainloop(depth: int) -> Figure:
        from_l2 = float(times.mainloop_ns(np.array(tile_tokens), depth))
        loads_ns = tile_load_ns(
            weight_tile_bytes=config.block_n * depth * layer.weight_bytes,
            rows=rows_per_expert,
            sms=platform.gpu.sm_count,
            memory_bytes_per_s=compute_of(platform).memory_bytes_per_s,
        )
        from_memory = times.fill_ns + float(loads_ns)
        limit = "compute or L2 loads" if from_l2 >= from_memory else "weight loads from memory"
        origin = f"{limit} of a {tile_tokens} x {config.block_n} x {depth} tile at the platform's rates"
        if (compute := compute_of(platform)).origin != "measured":
            origin += f" (compute: {compute.origin})"
        return Figure(max(from_l2, from_memory), Basis.ASSUMED, origin)

    return MoeTimes(mainloop(layer.linear1_shape[1]), mainloop(layer.linear2_shape[1]))


def given_times(given: GivenTimes | None) -> MoeTimes | None:
    """Mainloops that are known; None where they are not."""
    if given is None or given.l1_ns is None or given.l2_ns is None:
        return None
    return MoeTimes(*(Figure(time_ns, Basis.MEASURED, "given") for time_ns in (given.l1_ns, given.l2_ns)))
