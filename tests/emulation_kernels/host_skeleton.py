"""The skeleton's kernel on the CPU: one process for each CTA, one thread for each of its threads.

Roles, barriers, queue, rings and records are those of the GPU; only instructions are replaced, by those of
``host/``.
"""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.host_library import host_library
from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.cuda.extents import count_extent_mismatches
from xstage_tune.cuda.pattern import nonce
from xstage_tune.cuda.skeletons_arguments import add_destination, launch_arguments
from xstage_tune.cuda.skeletons_extents import local_extents, remote_extents, tile_rings
from xstage_tune.cuda.skeletons_layout import CONTROL
from xstage_tune.cuda.skeletons_plan import LaunchPlan, Target, plan_launch, ring_slot_bytes
from xstage_tune.cuda.skeletons_result import Recorded, empty_record
from xstage_tune.cuda.variants import skeleton_variant
from xstage_tune.launches.skeletons import Skeleton

#: The stand-ins' clock.
CYCLES_PER_NS = 2.0
SHARED_BYTES = 227 << 10
_ALIGNMENT = 128
_RING_BYTES = 1 << 20
_GLOBAL_BYTES = 16 << 20
_SECOND_NS = 1e9


@cache
def _library(flavour: StoreFlavour, listed: bool) -> ctypes.CDLL:
    host = Path(__file__).parent / "host"
    macros = (f"-D{name}={value}" for name, value in skeleton_variant(flavour, listed=listed).defines.items())
    includes = ("-include", str(host / "cuda.h"), f"-I{host}")
    return host_library(host / "skeleton_host.cpp", "-std=c++20", "-pthread", *includes, *macros)


class SharedMapping:
    """Memory that the processes of a launch share, as a launch's memory."""

    def __init__(self, nbytes: int = _GLOBAL_BYTES) -> None:
        self._map = mmap.mmap(-1, nbytes)
        self.bytes = np.frombuffer(self._map, np.uint8)
        self._base = self.bytes.ctypes.data
        self._used = 0

    def room(self, nbytes: int) -> int:
        """Zeroed memory; its address."""
        address = self._base + self._used
        self._used += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        assert self._used <= self.bytes.size
        return address

    def put(self, table: NDArray[Any]) -> int:
        """Copy a table there; its address."""
        address = self.room(table.nbytes)
        self.view(address, table.nbytes)[:] = np.ascontiguousarray(table).view(np.uint8).reshape(-1)
        return address

    def view(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """The bytes at an address."""
        return self.bytes[address - self._base : address - self._base + nbytes]


@dataclass(frozen=True)
class HostRun:
    """The outcome of one launch.

    Args:
        checked_bytes, wrong_bytes: of both owners.
    """

    plan: LaunchPlan
    recorded: Recorded
    fault: NDArray[np.void]
    checked_bytes: int
    wrong_bytes: int


def run_on_host(
    skeleton: Skeleton,
    *,
    launch: int = 0,
    most_ns: float = 20 * _SECOND_NS,
    shared_bytes: int = SHARED_BYTES,
    ring_bytes: int = _RING_BYTES,
    sm_count: int | None = None,
) -> HostRun:
    """Run a skeleton on a GPU of ``sm_count`` SMs, by default of as many as it uses."""
    sm_count = sm_count or skeleton.streams.sms
    target = Target(
        sm_count=sm_count,
        shared_bytes=shared_bytes,
        cycles_per_ns=CYCLES_PER_NS,
        most_ns=most_ns,
    )
    plan, memory = plan_launch(skeleton, target), SharedMapping()
    arguments = launch_arguments(plan, memory, most_ns)
    control = memory.room(CONTROL.itemsize)
    arguments["control"] = control
    arguments["nonce"] = nonce(launch)
    owners = {}
    for owner, nbytes in (("remote", plan.remote_bytes), ("local", plan.local_bytes)):
        rings = tile_rings(ring_bytes, plan.lanes, ring_slot_bytes(nbytes), launch)
        address = memory.room(plan.lanes * rings.ring_bytes)
        add_destination(arguments, owner, address, rings)
        owners[owner] = memory.view(address, plan.lanes * rings.ring_bytes), rings
    library = _library(skeleton.flavour, skeleton.scheduling is None)
    bad = library.run_grid(ctypes.c_void_p(arguments.ctypes.data), sm_count)
    assert bad == 0, f"{bad} CTAs crashed or hung"
    seen = memory.view(control, CONTROL.itemsize).view(CONTROL)[0]
    recorded = empty_record(plan, int(seen["start"]["at_ns"]))
    for name in ("lanes", "totals", "moments"):
        rows = getattr(recorded, name)
        if rows.nbytes:
            rows[...] = memory.view(int(arguments[name][0]), rows.nbytes).view(rows.dtype).reshape(rows.shape)
    checks = [
        count_extent_mismatches(
            owners["remote"][0], remote_extents(plan, owners["remote"][1]), nonce(launch)
        ),
        count_extent_mismatches(owners["local"][0], local_extents(plan, owners["local"][1]), nonce(launch)),
    ]
    return HostRun(
        plan=plan,
        recorded=recorded,
        fault=seen["fault"].copy(),
        checked_bytes=sum(checked for checked, _ in checks),
        wrong_bytes=sum(wrong for _, wrong in checks),
    )
