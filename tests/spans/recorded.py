"""Buffers as ``xstage/span.cuh`` fills them, by the header itself, compiled for the CPU."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import numpy as np

from tests.host_library import host_library

_SPAN = np.dtype(
    [("lane", "<u4"), ("name", "<u4"), ("index", "<u4"), ("begin_ns", "<u8"), ("end_ns", "<u8")], align=True
)
#: (lane, name, index, begin ns, end ns); those of lane 0 nest.
SPANS = (
    (0, 1, 0, 1_100, 1_300),
    (0, 2, 0, 1_400, 1_450),
    (0, 255, 5, 1_050, 1_500),
    (2, 1, 1, 1_000, 2_000),
    (2, 1, 2, 3_000, 3_500),
    (2, 1, 3, 4_000, 4_500),
    (2, 1, 4, 5_000, 5_500),
)  # fmt: skip


@cache
def library() -> ctypes.CDLL:
    return host_library(Path(__file__).parent / "recorder_host.cpp")


def recorded(lanes: int = 4, capacity: int = 3, *, staged: bool = False) -> np.ndarray:
    """A buffer with :data:`SPANS`, of which lane 2 has one more than there is room for."""
    size = library().bytes
    size.restype = ctypes.c_uint64
    memory = np.zeros(size(lanes, capacity), np.uint8)
    spans = np.array(list(SPANS), _SPAN)
    pointers = (ctypes.c_void_p(memory.ctypes.data), ctypes.c_void_p(spans.ctypes.data))
    library().record(pointers[0], lanes, capacity, pointers[1], len(spans), staged)
    return memory
