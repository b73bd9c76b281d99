"""Small launches for the tests of skeletons."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.families.megamoe.order import LINEAR2, Interleaved, MoeGrid, Schedule, megamoe_order
from xstage_tune.families.megamoe.placement import Placement
from xstage_tune.families.megamoe.scheduling import MoeScheduling
from xstage_tune.families.megamoe.streams import MoeStores, given_mainloop_ns, megamoe_streams
from xstage_tune.launches.skeletons import Skeleton
from xstage_tune.launches.streams import Streams, independent_streams

BLOCK_M = 128


def moe_skeleton(
    schedule: Schedule | None = None,
    *,
    slots: int = 2,
    flavour: StoreFlavour = "tma",
    tokens: tuple[int, ...] = (3 * BLOCK_M, 0, 2 * BLOCK_M + 40),
    sms: int = 3,
    cta_group: int = 1,
    l1_tiles: int = 4,
    l2_tiles: int = 6,
    tile_bytes: float = 8192.0,
    remote_fraction: float = 0.25,
    slot_offset: float = 0.0,
    dependencies: bool = True,
    listed: bool = False,
    coupled: bool = False,
    placement: Placement | None = None,
) -> Skeleton:
    """A small MegaMoE layer; ``slot_offset`` is the part of a mainloop that needs no slot."""
    schedule = schedule or Interleaved(1)
    grid = MoeGrid(tokens, BLOCK_M, l1_tiles, l2_tiles, sms, cta_group)
    order = megamoe_order(grid, schedule, placement)
    per_token = tile_bytes / BLOCK_M
    stores = MoeStores(per_token, per_token, remote_fraction, local_bytes_per_ns=np.inf)
    mainloop_ns = given_mainloop_ns(order, l1_ns=4000.0, l2_ns=2000.0)
    streams = megamoe_streams(grid, order, mainloop_ns, stores, dependencies=dependencies)
    stored = grid.row_tokens[order.row] * per_token
    return Skeleton(
        label="small layer",
        streams=replace(streams, slot_offset_ns=slot_offset * mainloop_ns),
        local_bytes=np.where(order.layer == LINEAR2, stored - streams.remote_bytes, stored),
        staging_slots=slots,
        flavour=flavour,
        path="host",
        scheduling=None if listed else MoeScheduling(grid, schedule, placement),
        completion_coupled=coupled,
    )


def listed_skeleton(streams: Streams, *, local_bytes: float = 0.0, slots: int = 2) -> Skeleton:
    """Streams as they are, each tile with the same local bytes."""
    return Skeleton(
        label="listed tiles",
        streams=streams,
        local_bytes=np.full(streams.tiles, local_bytes),
        staging_slots=slots,
        flavour="tma",
        path="host",
    )


def attention_skeleton(tiles: int = 9, sms: int = 2, remote_bytes: float = 4096.0) -> Skeleton:
    """Independent tiles, as attention's."""
    first = np.arange(sms + 1) * tiles
    streams = independent_streams(first, np.full(sms * tiles, 1500.0), remote_bytes=remote_bytes)
    return listed_skeleton(streams)


def deadlocked_skeleton() -> Skeleton:
    """Tile 0 of either SM waits on what tile 1 of the other signals."""
    streams = attention_skeleton(tiles=2, sms=2).streams
    crossed = replace(
        streams,
        waits_on=np.array([0, -1, 1, -1], np.int32),
        signals=np.array([-1, 1, -1, 0], np.int32),
        counters=2,
    )
    return listed_skeleton(crossed)
