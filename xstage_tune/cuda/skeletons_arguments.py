"""The arguments of a skeleton's launch, in whatever memory it reads."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.spans import LANE_DTYPE
from xstage_tune.cuda.skeletons_extents import TileRings
from xstage_tune.cuda.skeletons_layout import LANE_TOTALS, SKELETON_ARGUMENTS, TILE_MOMENTS
from xstage_tune.cuda.skeletons_plan import LaunchPlan

_COUNTER_BYTES = 4


class LaunchMemory(Protocol):
    """Where a launch finds its tables and leaves its records."""

    def put(self, table: NDArray[Any]) -> int:
        """Copy a table there; its address."""
        ...

    def room(self, nbytes: int) -> int:
        """Zeroed memory; its address."""
        ...


def launch_arguments(plan: LaunchPlan, memory: LaunchMemory, most_launch_ns: float) -> NDArray[np.void]:
    """All arguments but the destinations, the control block and the nonce.

    ``lanes``, ``totals`` and ``moments`` are the addresses of what the launch will record.
    """
    skeleton = plan.skeleton
    arguments = np.zeros(1, SKELETON_ARGUMENTS)
    values: dict[str, int | NDArray[np.uint16]] = {
        "duration_ns": int(most_launch_ns),
        "lanes": memory.room(plan.lanes * LANE_DTYPE.itemsize),
        "totals": memory.room(plan.lanes * LANE_TOTALS.itemsize),
        "moments": memory.room(max(1, plan.lanes * plan.most_kept) * TILE_MOMENTS.itemsize),
        "counters": memory.room(max(1, skeleton.streams.counters) * _COUNTER_BYTES),
        "first_tile": memory.put(plan.first_tile),
        "plans": memory.put(plan.plans),
        "listed": 0 if plan.listed is None else memory.put(plan.listed),
        "stores": memory.put(plan.stores),
        "lane_count": plan.lanes,
        "store_plans": plan.stores.size,
        "slots": skeleton.staging_slots,
        "slot_bytes": plan.slot_bytes,
        "queue_tiles": plan.queue_tiles,
        "most_kept": plan.most_kept,
        "keep_threshold": plan.keep_threshold,
        "dependencies": skeleton.streams.counters > 0,
        "some_signal": plan.some_signal,
        "coupled": skeleton.completion_coupled,
        "lane_of_sm": plan.lane_of_sm(),
    }
    for name, value in values.items():
        arguments[name] = value
    for name, offset in plan.offsets.items():
        arguments["shared"][name] = offset
    _add_scheduler(arguments, plan, memory)
    return arguments


def add_destination(arguments: NDArray[np.void], owner: str, address: int, rings: TileRings) -> None:
    """Say where one owner's bytes go; ``owner`` is ``remote`` or ``local``."""
    arguments[owner] = address
    arguments[f"{owner}_ring_bytes"] = rings.ring_bytes
    arguments[f"{owner}_slot_bytes"] = rings.slot_bytes
    arguments[f"first_{owner}_slot"] = rings.first_slot


def _add_scheduler(arguments: NDArray[np.void], plan: LaunchPlan, memory: LaunchMemory) -> None:
    tables = plan.scheduler
    if tables is None:
        return
    arguments["scheduler"] = tables.parameters
    for field, array in tables.arrays.items():
        arguments["scheduler"][field] = memory.put(array)
