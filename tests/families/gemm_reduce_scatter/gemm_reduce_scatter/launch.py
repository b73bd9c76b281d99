"""The tiles of a launch on rank 0: what each takes, stores, and when its turn is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemm_reduce_scatter.config import GemmConfig
from gemm_reduce_scatter.workload import GemmWorkload
from xstage_tune.families.equal_tiles import EqualTiles, equal_tiles
from xstage_tune.families.launch import FusedLaunch, GivenTimes
from xstage_tune.families.tile_times import (
    EPILOGUE_WARP_NS_PER_ELEMENT,
    load_bytes_per_ns,
    tensor_rate,
)
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.launches.streams import Floats, Ints, independent_streams
from xstage_tune.platforms.schema import PlatformProfile

#: Depth of a stage: an operand row of 128 bytes.
BLOCK_K = 64
_EPILOGUE_WARPS = 4


@dataclass(frozen=True)
class TileTimes:
    """Of one tile, in ns; a partial one takes as long."""

    mainloop_ns: float
    epilogue_ns: float
    operands_ns: float  # how long its stages last


def tile_times(config: GemmConfig, workload: GemmWorkload, platform: PlatformProfile) -> TileTimes:
    """Times by the platform's rates."""
    rate = tensor_rate(platform, workload.dtype)
    area, perimeter = config.block_m * config.block_n, config.block_m + config.block_n
    steps = -(-workload.rank_depth // BLOCK_K)
    stage_bytes = BLOCK_K * perimeter * OUTPUT_BYTES
    flop_per_ns = rate.peak_flop_per_s * rate.tile_efficiency / platform.gpu.sm_count / 1e9
    step_ns = max(
        2.0 * area * BLOCK_K / flop_per_ns,
        stage_bytes / load_bytes_per_ns(config.stages * stage_bytes, platform),
    )
    assert platform.compute is not None  # it has a rate
    return TileTimes(
        mainloop_ns=platform.compute.tile_fill_ns + steps * step_ns,
        epilogue_ns=area * EPILOGUE_WARP_NS_PER_ELEMENT / _EPILOGUE_WARPS,
        operands_ns=config.stages * step_ns,
    )


@dataclass(frozen=True)
class Tiles:
    """Output tiles in the order in which CTAs take them, ``[n]`` each: tile i is of SM ``i % sms``."""

    sms: int
    rows: Ints
    remote_rows: Ints
    columns: Ints

    @property
    def producers(self) -> int:
        """SMs that have a tile."""
        return min(self.sms, self.rows.size)

    @property
    def rounds(self) -> int:
        return -(-self.rows.size // self.sms)

    @property
    def remote_bytes(self) -> Floats:
        return (self.remote_rows * self.columns * OUTPUT_BYTES).astype(np.float64)

    @property
    def local_bytes(self) -> Floats:
        return (self.rows * self.columns * OUTPUT_BYTES).astype(np.float64) - self.remote_bytes

    @property
    def last_round_bytes(self) -> float:
        """What the last round stores remotely."""
        return float(self.remote_bytes[(self.rounds - 1) * self.sms :].sum())


def count_tiles(config: GemmConfig, workload: GemmWorkload) -> int:
    return -(-workload.tokens // config.block_m) * -(-workload.columns // config.block_n)


def tiles_of(config: GemmConfig, workload: GemmWorkload, platform: PlatformProfile) -> Tiles:
    first_row = np.arange(0, workload.tokens, config.block_m)
    if config.tile_order == "own-rows-last":
        first_row = np.roll(first_row, -int(np.searchsorted(first_row, workload.own_rows)))
    first_column = np.arange(0, workload.columns, config.block_n)
    end = np.minimum(first_row + config.block_m, workload.tokens)
    remote_rows = np.maximum(end - np.maximum(first_row, workload.own_rows), 0)
    columns = np.minimum(config.block_n, workload.columns - first_column)
    each = first_column.size
    return Tiles(
        sms=platform.gpu.sm_count,
        rows=np.repeat(end - first_row, each),
        remote_rows=np.repeat(remote_rows, each),
        columns=np.tile(columns, first_row.size),
    )


def gemm_launch(
    config: GemmConfig, workload: GemmWorkload, platform: PlatformProfile, given: GivenTimes
) -> FusedLaunch:
    tiles, times = tiles_of(config, workload, platform), tile_times(config, workload, platform)
    sm = np.arange(tiles.rows.size) % tiles.sms
    by_sm = np.argsort(sm, kind="stable")
    first = np.concatenate(([0], np.cumsum(np.bincount(sm, minlength=tiles.sms))))
    return FusedLaunch(
        streams=independent_streams(
            first,
            np.full(sm.size, times.mainloop_ns),
            staging_ns=times.epilogue_ns if given.epilogue_ns is None else given.epilogue_ns,
            remote_bytes=tiles.remote_bytes[by_sm],
            slot_offset_ns=times.mainloop_ns,  # accumulators are in registers until a slot is free
        ),
        local_bytes=tiles.local_bytes[by_sm],
        staging_slots=config.staging_slots,
        flavour=config.store_flavour,
        load_cover_ns=times.operands_ns,
    )


def gemm_load(config: GemmConfig, workload: GemmWorkload, platform: PlatformProfile) -> EqualTiles:
    """What bounds and predicts a launch."""
    tiles, times = tiles_of(config, workload, platform), tile_times(config, workload, platform)
    return equal_tiles(
        platform,
        config.store_flavour,
        tiles=tiles.rows.size,
        sms=tiles.producers,
        tile_ns=times.mainloop_ns,
        cover_ns=config.staging_slots * times.mainloop_ns,
        epilogue_ns=times.epilogue_ns,
        tile_bytes=float(config.block_m * config.block_n * OUTPUT_BYTES),
        remote_fraction=workload.leaving_fraction,
        remote_bytes=workload.remote_bytes,
        last_round_bytes=tiles.last_round_bytes,
        operands_ns=times.operands_ns,
    )
