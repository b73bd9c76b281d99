"""A tile goes from the loader role to the mainloop role whole or not at all, whichever word is seen first."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.host_library import host_library

QUEUE_TILES = 11
U32_MAX = 2**32 - 1
#: mainloop_cycles, slot_offset_cycles, signals, at_end.
Tile = tuple[int, int, int, int]
TILES = st.tuples(
    st.integers(0, U32_MAX), st.integers(0, U32_MAX), st.integers(0, 2**30 - 1), st.integers(0, 1)
)


@cache
def _library() -> ctypes.CDLL:
    strict = ("-std=c++17", "-Wall", "-Wextra", "-Werror")
    return host_library(Path(__file__).with_name("queue_host.cpp"), *strict)


def written(place: int, tile: Tile) -> NDArray[np.uint64]:
    """``[2]`` words of the entry."""
    words, fields = np.zeros(2, np.uint64), np.array(tile, np.uint32)
    _library().write_entry(
        ctypes.c_void_p(words.ctypes.data),
        place,
        place // QUEUE_TILES,
        ctypes.c_void_p(fields.ctypes.data),
    )
    return words


def read(words: NDArray[np.uint64], place: int) -> Tile | None:
    fields = np.zeros(4, np.uint32)
    found = _library().read_entry(
        ctypes.c_void_p(words.ctypes.data),
        place,
        place // QUEUE_TILES,
        ctypes.c_void_p(fields.ctypes.data),
    )
    return tuple(fields.tolist()) if found else None


@settings(deadline=None, max_examples=200)
@given(place=st.integers(0, 10**6), tile=TILES, before=TILES)
def test_an_entry_is_taken_when_both_of_its_words_are_there(place: int, tile: Tile, before: Tile) -> None:
    old = written(place - QUEUE_TILES, before) if place >= QUEUE_TILES else np.zeros(2, np.uint64)
    new = written(place, tile)
    assert read(new, place) == tile
    for seen in (old, np.array([new[0], old[1]]), np.array([old[0], new[1]])):
        assert read(seen, place) is None
