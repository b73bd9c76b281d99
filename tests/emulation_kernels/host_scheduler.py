"""The kernels' scheduler, compiled for the host."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.host_library import host_library
from xstage_tune.families.megamoe.scheduling import MoeScheduling
from xstage_tune.launches.skeletons import SchedulerTables

COLUMNS = ("layer", "row", "n_tile", "expert", "m_block", "tokens")


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    strict = ("-std=c++17", "-Wall", "-Wextra", "-Werror")
    return host_library(Path(__file__).with_name("scheduler_host.cpp"), *strict)


def take_tiles(scheduling: MoeScheduling) -> list[NDArray[np.void]]:
    """``[SMs]`` arrays of :data:`COLUMNS`: the tiles of each SM in the order of the kernels' scheduler."""
    grid, tables = scheduling.grid, scheduling.tables()
    parameters = _with_addresses(tables)
    room = _room(grid.rows * (grid.l1_tiles + grid.l2_tiles))
    take = _library().take_tiles
    address = ctypes.c_void_p(parameters.ctypes.data)
    taken = []
    for sm in range(grid.sms):
        count = 0
        if sm < grid.instances * grid.cta_group:
            count = take(
                address,
                sm // grid.cta_group,
                sm % grid.cta_group,
                len(room),
                ctypes.c_void_p(room.ctypes.data),
            )
        assert count <= len(room)
        taken.append(room[:count].copy())
    return taken


def take_tickets(scheduling: MoeScheduling, tickets: NDArray[np.uint32]) -> NDArray[np.void]:
    """Tiles of ``tickets`` of the order of one instance, up to the first ticket that has none."""
    tables = scheduling.tables()
    room = _room(len(tickets))
    taken = _library().take_tickets(
        ctypes.c_void_p(_with_addresses(tables).ctypes.data),
        ctypes.c_void_p(tickets.ctypes.data),
        len(tickets),
        ctypes.c_void_p(room.ctypes.data),
    )
    return room[:taken]


def _with_addresses(tables: SchedulerTables) -> NDArray[np.void]:
    for field, array in tables.arrays.items():
        tables.parameters[field] = array.ctypes.data
    return tables.parameters


def _room(tiles: int) -> NDArray[np.void]:
    return np.zeros(tiles, [(name, "<u4") for name in COLUMNS])
