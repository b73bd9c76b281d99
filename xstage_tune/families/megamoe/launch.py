"""From a MegaMoE config to the tiles of its launch, on the rank that receives most."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from xstage_tune.families.architecture import architecture_of
from xstage_tune.families.launch import FusedLaunch, GivenTimes
from xstage_tune.families.megamoe import order as orders
from xstage_tune.families.megamoe.built import has_kernel
from xstage_tune.families.megamoe.compute import MoeShape, compute_model, moe_mainloop_ns
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.config import Schedule as ScheduleConfig
from xstage_tune.families.megamoe.placement import Placement, share_placement
from xstage_tune.families.megamoe.routing import busiest_tokens
from xstage_tune.families.megamoe.scheduling import MoeScheduling
from xstage_tune.families.megamoe.streams import (
    MoeStores,
    given_mainloop_ns,
    megamoe_streams,
    moe_store_bytes,
)
from xstage_tune.families.megamoe.tile_times import moe_tile_times
from xstage_tune.families.megamoe.tiling import linear_tiles
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.launches.streams import Floats, Streams
from xstage_tune.platforms.schema import PlatformProfile


def order_schedule(schedule: ScheduleConfig) -> orders.Schedule:
    """A config's schedule as the tile order."""
    if schedule.kind == "wave" and schedule.experts_per_wave is not None:
        return orders.ExpertWave(schedule.experts_per_wave)
    if schedule.kind == "interleaved" and schedule.lead_rows is not None:
        return orders.Interleaved(schedule.lead_rows)
    return orders.Alternating() if schedule.kind == "alternating" else orders.ClampedLag()


def moe_grid(config: MegaMoeConfig, workload: MoeWorkload, platform: PlatformProfile) -> orders.MoeGrid:
    """The tiles of the rank that receives most."""
    tokens = busiest_tokens(workload)
    architecture = architecture_of(platform)
    linear1, linear2 = linear_tiles(config, workload, architecture)
    return orders.MoeGrid(
        tokens_per_expert=tuple(tokens.tolist()),
        block_m=config.block_m,
        l1_tiles=linear1.count,
        l2_tiles=linear2.count,
        sms=platform.gpu.sm_count,
        cta_group=architecture.cta_group,
        l1_extent=linear1.extent,
        l2_extent=linear2.extent,
    )


def moe_launch(
    config: MegaMoeConfig,
    workload: MoeWorkload,
    platform: PlatformProfile,
    given: GivenTimes,
    dependencies: bool,
) -> FusedLaunch:
    grid, schedule = moe_grid(config, workload, platform), order_schedule(config.schedule)
    placement = None
    if config.schedule.placement == "share":
        placement = _share_placement(grid, config, workload, platform, given)
    order = orders.megamoe_order(grid, schedule, placement)
    stores = MoeStores(
        # SwiGLU makes one output of a gate and an up column.
        l1_bytes_per_token=config.block_n / 2 * workload.activation_bytes,
        l2_bytes_per_token=float(config.block_n * OUTPUT_BYTES),
        remote_fraction=workload.combine_remote_fraction,
        local_bytes_per_ns=math.inf,
    )
    if given.l1_ns is not None and given.l2_ns is not None:
        mainloop_ns = given_mainloop_ns(order, l1_ns=given.l1_ns, l2_ns=given.l2_ns)
    else:
        mainloop_ns = _mainloop_ns(config, workload, platform, grid, order)
    streams = megamoe_streams(grid, order, mainloop_ns, stores, dependencies=dependencies)
    if given.epilogue_ns is None:
        per_token_ns = moe_tile_times(config, workload, platform).epilogue_ns_per_token
    else:
        per_token_ns = given.epilogue_ns / config.block_m
    epilogue_ns: Floats = grid.row_tokens[order.row] * np.float64(per_token_ns)
    # Accumulators in registers leave them at the mainloop's end, when they need a buffer; in tensor memory
    # they need one from its begin.
    in_registers = not architecture_of(platform).tensor_memory
    local_bytes, _ = moe_store_bytes(grid, order, stores)
    paced = has_kernel(workload, platform)
    linear1_ns = float(np.median(mainloop_ns[order.layer == orders.LINEAR1]))
    return FusedLaunch(
        streams=replace(
            streams,
            staging_ns=epilogue_ns,
            slot_offset_ns=streams.mainloop_ns if in_registers else streams.slot_offset_ns,
            paced_ns=_paced_ns(order, streams, epilogue_ns) if paced else streams.paced_ns,
        ),
        local_bytes=local_bytes,
        staging_slots=config.staging_depth,
        flavour=config.store_flavour,
        load_cover_ns=config.pipeline_stages * config.block_k / workload.hidden * linear1_ns,
        scheduling=MoeScheduling(grid, schedule, placement),
        linear2=order.layer == orders.LINEAR2,
    )


def _paced_ns(order: orders.MoeOrder, streams: Streams, epilogue_ns: Floats) -> Floats:
    """How long a Linear-2 tile's stores are held back: its successor's mainloop, but nothing behind the last.

    The epilogue before them is a part of it here: it is a storing role's in the model, and the computing
    role's in the kernel.
    """
    following = np.append(streams.mainloop_ns[1:], 0.0)
    following[order.first[1:][np.diff(order.first) > 0] - 1] = 0.0
    paced: Floats = np.where(order.layer == orders.LINEAR2, np.maximum(0.0, following - epilogue_ns), 0.0)
    return paced


def _share_placement(
    grid: orders.MoeGrid,
    config: MegaMoeConfig,
    workload: MoeWorkload,
    platform: PlatformProfile,
    given: GivenTimes,
) -> Placement | None:
    """Linear-2 by the SMs' measured shares of R; None where the platform has none."""
    if platform.arbitration is None:
        return None
    share = np.zeros(grid.sms)
    for group in platform.arbitration.groups:
        share[list(group.sm_ids)] = group.share / len(group.sm_ids)
    if given.l1_ns is not None and given.l2_ns is not None:
        return share_placement(grid, share, l1_ns=given.l1_ns, l2_ns=given.l2_ns)
    times = moe_tile_times(config, workload, platform)
    full = np.array([config.block_m])
    return share_placement(
        grid,
        share,
        l1_ns=float(times.mainloop_ns(full, workload.hidden)[0]),
        l2_ns=float(times.mainloop_ns(full, workload.intermediate)[0]),
    )


def _mainloop_ns(
    config: MegaMoeConfig,
    workload: MoeWorkload,
    platform: PlatformProfile,
    grid: orders.MoeGrid,
    order: orders.MoeOrder,
) -> Floats:
    """Mainloops with weights from memory, none shorter than its operands' way from L2."""
    times = moe_tile_times(config, workload, platform)
    model = replace(compute_model(platform, workload.tensor_dtype), efficiency=times.efficiency)
    shape = MoeShape(
        hidden=workload.hidden,
        intermediate=workload.intermediate,
        block_n=times.block_n,
        weight_bytes=workload.weight_bytes,
        activation_bytes=workload.activation_bytes,
        block_k=times.block_k,
    )
    depth = np.where(order.layer == orders.LINEAR1, workload.hidden, workload.intermediate)
    from_l2 = times.fill_ns + times.load_ns(grid.row_tokens[order.row], depth)
    return np.maximum(moe_mainloop_ns(model, shape, grid, order), from_l2)
