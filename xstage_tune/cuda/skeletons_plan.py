"""From a skeleton to a launch: the tables that the kernel reads. Needs no GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError
from xstage_tune.cuda.skeletons_layout import (
    KEEP_FACTOR,
    MAX_SMS,
    NO_LANE,
    RAISES_AT_END,
    RAISES_NOTHING,
    RAISES_WHEN_STORED,
    STORE_PLAN,
    TILE_LINKS,
    TILE_MOMENTS,
    TILE_PLAN,
    VECTOR_BYTES,
    SharedMemory,
)
from xstage_tune.launches.skeletons import SchedulerTables, Skeleton
from xstage_tune.launches.sm_ids import spread_sm_ids
from xstage_tune.launches.streams import NO_COUNTER, Floats, Ints

#: Slots and rings begin on lines of L2.
_LINE_BYTES = 128
#: A launch whose spans do not all fit keeps at least those of so many tiles of each SM.
_LEAST_KEPT_TILES = 64
_MOST_KINDS = np.iinfo(np.uint16).max


@dataclass(frozen=True, slots=True)
class Target:
    """The GPU that a launch is planned for.

    Args:
        sm_count: SMs.
        shared_bytes: dynamic shared memory of a CTA.
        cycles_per_ns: of the SMs' clock.
        most_ns: what a launch may take; its waits give up then.
    """

    sm_count: int
    shared_bytes: int
    cycles_per_ns: float
    most_ns: float


@dataclass(frozen=True)
class LaunchPlan:
    """A skeleton made ready to launch.

    Args:
        sm_ids: ``[lanes]`` SM of each lane.
        first_tile: ``[lanes + 1]``.
        plans: ``[tiles]`` of TILE_PLAN.
        listed: ``[tiles]`` of TILE_LINKS; None where the scheduler finds the order.
        stores: ``[kinds]`` of STORE_PLAN.
        scheduler: what the scheduler reads; None for a listed order.
        order_check: ``[lanes]`` what each lane's sum over its tiles must be; None for a listed order.
        slot_bytes: of a staging slot.
        queue_tiles: room between the loader role and the storing roles.
        offsets: of the buffers in shared memory.
        keep_threshold: places whose golden-ratio key is at most this are kept.
        most_kept: kept tiles of the lane with most.
    """

    skeleton: Skeleton
    sm_ids: Ints
    first_tile: NDArray[np.uint32]
    plans: NDArray[np.void]
    listed: NDArray[np.void] | None
    stores: NDArray[np.void]
    scheduler: SchedulerTables | None
    order_check: NDArray[np.uint64] | None
    slot_bytes: int
    queue_tiles: int
    offsets: dict[str, int]
    keep_threshold: int
    most_kept: int

    @property
    def lanes(self) -> int:
        return len(self.sm_ids)

    @cached_property
    def lane_of_tile(self) -> Ints:
        return self.skeleton.streams.sm_of_tile()

    @cached_property
    def place_of_tile(self) -> Ints:
        """``[tiles]`` place of each tile in its lane's order: its number, for the owner."""
        return np.arange(self.plans.size) - self.skeleton.streams.first[self.lane_of_tile]

    @cached_property
    def kept(self) -> NDArray[np.bool_]:
        """``[tiles]`` whose moments are kept."""
        return _keys(self.place_of_tile) <= self.keep_threshold

    @cached_property
    def remote_bytes(self) -> Ints:
        """``[tiles]`` in whole vectors, as ``local_bytes``."""
        return _column(self, "remote_bytes")

    @cached_property
    def local_bytes(self) -> Ints:
        return _column(self, "local_bytes")

    @property
    def some_signal(self) -> bool:
        """Whether any tile raises a counter when it is stored."""
        return bool((self.stores["raises"] == RAISES_WHEN_STORED).any())

    def lane_of_sm(self) -> NDArray[np.uint16]:
        """``[MAX_SMS]`` lane of each SM id."""
        lanes = np.full(MAX_SMS, NO_LANE, np.uint16)
        lanes[self.sm_ids] = np.arange(self.lanes)
        return lanes


def _column(plan: LaunchPlan, name: str) -> Ints:
    """``[tiles]`` a column of the table of stores."""
    column: Ints = plan.stores[name][plan.plans["store"]].astype(np.int64)
    return column


def plan_launch(skeleton: Skeleton, target: Target) -> LaunchPlan:
    """Plan a launch.

    Raises:
        UsageError: the skeleton has more SMs than the GPU, more slots than shared memory holds, a mainloop of
            0 or more of them than a launch may take, too many kinds of stores, or streams that are not those
            of its scheduling.
    """
    streams = skeleton.streams
    _check(skeleton, target)
    stores, store_of_tile = _store_plans(skeleton, target)
    plans = np.zeros(streams.tiles, TILE_PLAN)
    plans["mainloop_cycles"] = _cycles(streams.mainloop_ns, target)
    plans["slot_offset_cycles"] = _cycles(streams.slot_offset_ns, target)
    plans["store"] = store_of_tile
    plans["expected"] = _expected_signals(skeleton)
    scheduling, listed, checks = skeleton.scheduling, None, None
    if scheduling is None:
        listed = np.zeros(streams.tiles, TILE_LINKS)
        listed["waits_on"] = streams.waits_on.astype(np.uint32)
        listed["signals"] = streams.signals.astype(np.uint32)
    else:
        scheduling.require_streams(streams)
        checks = scheduling.order_checks()
    tables = None if scheduling is None else scheduling.tables()
    most_tiles = int(np.diff(streams.first).max(initial=0))
    shared = SharedMemory(
        slots=skeleton.staging_slots,
        stores=stores.size,
        tiles=most_tiles,
        listed=scheduling is None,
        experts=0 if tables is None else tables.experts,
    )
    tile_bytes = stores["local_bytes"] + stores["remote_bytes"]
    slot_bytes = ring_slot_bytes(tile_bytes.astype(np.int64))
    most_kept = _kept_tiles(skeleton.label, shared, slot_bytes, target.shared_bytes)
    return LaunchPlan(
        skeleton=skeleton,
        sm_ids=spread_sm_ids(streams.sms, target.sm_count),
        first_tile=streams.first.astype(np.uint32),
        plans=plans,
        listed=listed,
        stores=stores,
        scheduler=tables,
        order_check=checks,
        slot_bytes=slot_bytes,
        queue_tiles=shared.queue_tiles,
        offsets=shared.offsets(slot_bytes),
        keep_threshold=_keep_threshold(most_tiles, most_kept),
        most_kept=most_kept,
    )


def ring_slot_bytes(tile_bytes: Ints) -> int:
    """Room for the largest of the tiles, in whole lines."""
    return max(_LINE_BYTES, _whole_lines(int(tile_bytes.max(initial=0))))


def _whole_lines(nbytes: int) -> int:
    return -(-nbytes // _LINE_BYTES) * _LINE_BYTES


def _check(skeleton: Skeleton, target: Target) -> None:
    streams = skeleton.streams
    if target.sm_count > MAX_SMS:
        raise UsageError(f"skeletons run on GPUs of up to {MAX_SMS} SMs, not on one of {target.sm_count}")
    if not 1 <= streams.sms <= target.sm_count:
        raise UsageError(
            f"{skeleton.label}: a launch of {streams.sms} SMs does not fit a GPU of {target.sm_count}"
        )
    if skeleton.staging_slots < 1:
        raise UsageError(f"{skeleton.label}: staging slots must be 1 or more, got {skeleton.staging_slots}")
    if skeleton.local_bytes.shape != (streams.tiles,) or (skeleton.local_bytes < 0).any():
        raise UsageError(f"{skeleton.label}: local_bytes must be {streams.tiles} values, none negative")
    empty = np.flatnonzero(_cycles(streams.mainloop_ns, target) == 0)
    if empty.size:
        tile = int(empty[0])
        sm = int(streams.sm_of_tile()[tile])
        raise UsageError(
            f"{skeleton.label}: tile {tile - streams.first[sm]} of SM {sm} has a mainloop of 0 ns",
            "give mainloops of a nanosecond or more",
        )
    busy_ns = np.bincount(streams.sm_of_tile(), streams.mainloop_ns, streams.sms)
    if busy_ns.max() > target.most_ns:
        raise UsageError(
            f"{skeleton.label}: the mainloops of SM {int(busy_ns.argmax())} take {busy_ns.max() / 1e9:.3g} "
            f"s, more than the {target.most_ns / 1e9:.3g} s that a launch may take",
            "give shorter mainloops or fewer tokens",
        )


def _cycles(time_ns: Floats, target: Target) -> NDArray[np.uint32]:
    # Beyond 32 bits: refused as too long a launch.
    return np.minimum(np.rint(time_ns * target.cycles_per_ns), np.iinfo(np.uint32).max).astype(np.uint32)


def _whole_vectors(nbytes: Floats) -> NDArray[np.uint32]:
    """To the nearest vector of 16 bytes, some bytes to one at least."""
    return np.where(
        nbytes > 0, np.maximum(VECTOR_BYTES * np.rint(nbytes / VECTOR_BYTES), VECTOR_BYTES), 0
    ).astype(np.uint32)


def _store_plans(skeleton: Skeleton, target: Target) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """The distinct ways of storing a tile, and each tile's."""
    streams = skeleton.streams
    columns = {
        "staging_cycles": _cycles(streams.staging_ns, target),
        "local_bytes": _whole_vectors(skeleton.local_bytes),
        "remote_bytes": _whole_vectors(streams.remote_bytes),
        "raises": np.where(
            streams.signals == NO_COUNTER,
            RAISES_NOTHING,
            np.where(streams.signals_at_end, RAISES_AT_END, RAISES_WHEN_STORED),
        ).astype(np.uint32),
    }
    key, distinct = np.zeros(streams.tiles, np.int64), 1
    for column in columns.values():
        values, index = np.unique(column, return_inverse=True)
        _, key = np.unique(key * values.size + index, return_inverse=True)
        distinct = int(key.max(initial=-1)) + 1
    if distinct > _MOST_KINDS:
        raise UsageError(f"{skeleton.label}: {distinct} kinds of stores are more than {_MOST_KINDS}")
    _, example = np.unique(key, return_index=True)
    plans = np.zeros(distinct if streams.tiles else 0, STORE_PLAN)
    for name, column in columns.items():
        plans[name] = column[example]
    return plans, key


def _expected_signals(skeleton: Skeleton) -> Ints:
    """``[tiles]`` signals that complete the counter that a tile waits on; 0 where it waits on none."""
    streams = skeleton.streams
    signals = np.bincount(streams.signals[streams.signals != NO_COUNTER], minlength=streams.counters + 1)
    if signals.max() > np.iinfo(np.uint16).max:
        raise UsageError(f"{skeleton.label}: {signals.max()} tiles signal one counter: too many")
    return np.where(streams.waits_on == NO_COUNTER, 0, signals[streams.waits_on])


def _keys(place: NDArray[Any]) -> NDArray[np.uint32]:
    return (place.astype(np.uint64) * KEEP_FACTOR).astype(np.uint32)


def _kept_tiles(label: str, shared: SharedMemory, slot_bytes: int, shared_bytes: int) -> int:
    """Tiles of a lane whose moments fit beside the slots.

    Raises:
        UsageError: the slots do not fit.
    """
    left = shared_bytes - shared.bytes_beside_slots() - shared.slots * slot_bytes
    least = min(shared.tiles, _LEAST_KEPT_TILES)
    if left < least * TILE_MOMENTS.itemsize:
        tables = shared.bytes_beside_slots() + least * TILE_MOMENTS.itemsize
        fit = max(0, (shared_bytes - tables) // slot_bytes)
        raise UsageError(
            f"{label}: {shared.slots} staging slots of {slot_bytes} bytes do not fit the {shared_bytes} "
            f"bytes of shared memory beside {tables} of tables: {fit} fit",
            "use fewer slots or smaller tiles" if fit else "use smaller tiles or fewer tokens",
        )
    return min(shared.tiles, left // TILE_MOMENTS.itemsize)


def _keep_threshold(most_tiles: int, most_kept: int) -> int:
    """So that a lane of ``most_tiles`` keeps ``most_kept``, and shorter ones no more."""
    if most_kept == most_tiles:
        return int(np.iinfo(np.uint32).max)
    return int(np.partition(_keys(np.arange(most_tiles)), most_kept - 1)[most_kept - 1])
