"""From a config of a fused kernel to the tiles of its launch, on the rank that sets the workload's time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from xstage_tune.configs.architecture import architecture_of
from xstage_tune.configs.resources import require_feasible
from xstage_tune.configs.schema import AttentionConfig, KernelConfig, MegaMoeConfig
from xstage_tune.configs.schema import Schedule as ScheduleConfig
from xstage_tune.configs.tiling import linear_tiles
from xstage_tune.devices.base import StoreFlavour
from xstage_tune.devices.simulator import megamoe_order as orders
from xstage_tune.devices.simulator.attention import (
    OutputStores,
    QLoop,
    attention_streams,
    output_store_bytes,
)
from xstage_tune.devices.simulator.attention_order import (
    AttentionGrid,
    attention_order,
    last_round_remote_rows,
)
from xstage_tune.devices.simulator.compute import MoeShape, compute_model, moe_mainloop_ns
from xstage_tune.devices.simulator.megamoe import (
    MoeStores,
    given_mainloop_ns,
    megamoe_streams,
    moe_store_bytes,
)
from xstage_tune.devices.simulator.moe_placement import Placement, share_placement
from xstage_tune.devices.skeletons import MoeScheduling
from xstage_tune.devices.streams import Floats, Streams
from xstage_tune.devices.tile_times import attention_tile_times, moe_tile_times, paced_part_of_q_loop
from xstage_tune.errors import UsageError
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.workloads.routing import busiest_rank, local_tokens_per_expert
from xstage_tune.workloads.schema import OUTPUT_BYTES, AttentionWorkload, MoeWorkload, Workload

_SLOTS = {"alias-q": 1, "alias-v": 1, "dedicated-x1": 1, "dedicated-x2": 2}


@dataclass(frozen=True, slots=True)
class GivenTimes:
    """Tile times that are known, in ns; None leaves one to the compute model.

    Args:
        l1_ns, l2_ns: mainloops of MegaMoE's tiles, both or neither.
        q_ns: the Q-loop of attention.
        epilogue_ns: what the issue role spends on a full tile beyond its stores.
    """

    l1_ns: float | None = None
    l2_ns: float | None = None
    q_ns: float | None = None
    epilogue_ns: float | None = None


@dataclass(frozen=True, slots=True)
class FusedLaunch:
    """A config made ready to run.

    Args:
        streams: the tiles of each SM; ``staging_ns`` is the epilogue, without any store.
        local_bytes: ``[n]`` what each tile stores to the GPU's own memory.
        staging_slots: S.
        flavour: of the stores.
        load_cover_ns: how long a mainloop goes on with the operands in its pipeline's stages.
        scheduling: MegaMoE's tiles and the order of them; None for attention.
        linear2: ``[n]`` whether a tile is of Linear-2; None for attention.
    """

    streams: Streams
    local_bytes: Floats
    staging_slots: int
    flavour: StoreFlavour
    load_cover_ns: float
    scheduling: MoeScheduling | None = None
    linear2: NDArray[np.bool_] | None = None


def fused_launch(
    workload: Workload,
    config: KernelConfig,
    platform: PlatformProfile,
    *,
    given: GivenTimes | None = None,
    dependencies: bool = True,
) -> FusedLaunch:
    """The launch of a config on the rank that receives most.

    Args:
        given: tile times in place of the compute model's.
        dependencies: False runs Linear-2 tiles as if their inputs were ready.

    Raises:
        UsageError: the config does not fit the workload or the platform, or the platform lacks compute
            figures.
    """
    require_feasible(config, workload, platform)
    times = given or GivenTimes()
    if isinstance(config, MegaMoeConfig) and isinstance(workload, MoeWorkload):
        return _moe_launch(config, workload, platform, times, dependencies)
    if isinstance(config, AttentionConfig) and isinstance(workload, AttentionWorkload):
        return _attention_launch(config, workload, platform, times)
    raise UsageError(f"a config of kind '{config.kind}' does not fit the workload '{workload.name}'")


def order_schedule(schedule: ScheduleConfig) -> orders.Schedule:
    """A config's schedule as the tile order."""
    if schedule.kind == "wave" and schedule.experts_per_wave is not None:
        return orders.ExpertWave(schedule.experts_per_wave)
    if schedule.kind == "interleaved" and schedule.lead_rows is not None:
        return orders.Interleaved(schedule.lead_rows)
    return orders.Alternating() if schedule.kind == "alternating" else orders.ClampedLag()


def moe_grid(config: MegaMoeConfig, workload: MoeWorkload, platform: PlatformProfile) -> orders.MoeGrid:
    """The tiles of the rank that receives most."""
    tokens = local_tokens_per_expert(workload, busiest_rank(workload))
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


def launch_tiles(workload: Workload, config: KernelConfig) -> int:
    """Tiles of the rank that has most; those that CTAs share, once for each CTA."""
    if isinstance(workload, AttentionWorkload):
        splits = config.kv_splits if isinstance(config, AttentionConfig) else 1
        return workload.local_heads * -(-workload.tokens // config.block_m) * splits
    tokens = local_tokens_per_expert(workload, busiest_rank(workload))
    shapes = (workload.linear1_shape, workload.linear2_shape)
    row_tiles = sum(-(-columns // config.block_n) for columns, _ in shapes)
    return int((-(-tokens // config.block_m)).sum()) * row_tiles


def _moe_launch(
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
    linear1_ns = float(np.median(mainloop_ns[order.layer == orders.LINEAR1]))
    return FusedLaunch(
        streams=replace(
            streams,
            staging_ns=epilogue_ns,
            slot_offset_ns=streams.mainloop_ns if in_registers else streams.slot_offset_ns,
        ),
        local_bytes=local_bytes,
        staging_slots=config.staging_depth,
        flavour=config.store_flavour,
        load_cover_ns=config.pipeline_stages * config.block_k / workload.hidden * linear1_ns,
        scheduling=MoeScheduling(grid, schedule, placement),
        linear2=order.layer == orders.LINEAR2,
    )


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


def _attention_launch(
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
