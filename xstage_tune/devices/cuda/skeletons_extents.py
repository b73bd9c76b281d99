"""What a skeleton's tiles must leave with their owners: extents of the pattern in rings, and their check."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.devices.cuda.pattern import PIECE_WORDS
from xstage_tune.devices.streams import Ints
from xstage_tune.errors import UsageError

#: The struct of ``kernels/emulation/verify.cu``.
EXTENT = np.dtype(
    [("offset", "<u8"), ("bytes", "<u4"), ("phase", "<u4"), ("tile", "<u4"), ("padding", "<u4")]
)
_WORD_BYTES = 4
_CHUNK_WORDS = 1 << 20
_THREADS = 8


@dataclass(frozen=True, slots=True)
class TileRings:
    """A ring of ``slots`` tiles for each lane, one ring after another, entered at ``first_slot``."""

    slot_bytes: int
    slots: int
    first_slot: int

    @property
    def ring_bytes(self) -> int:
        """Bytes of one lane's ring."""
        return self.slots * self.slot_bytes


def tile_rings(total_bytes: int, lanes: int, slot_bytes: int, launch: int) -> TileRings:
    """Rings that fill ``total_bytes``, entered at another place by each launch.

    Raises:
        UsageError: not even one tile a lane fits.
    """
    slots = total_bytes // lanes // slot_bytes
    if slots == 0:
        raise UsageError(
            f"{lanes} tiles of {slot_bytes} bytes do not fit the {total_bytes >> 20} MiB destination"
        )
    # Odd and large: successive launches start far apart.
    return TileRings(slot_bytes, slots, launch * 2654435761 % slots)


def extents_of(
    rings: TileRings, lane: Ints, place: Ints, nbytes: Ints, phase: Ints | int
) -> NDArray[np.void]:
    """The extents that are left of the tiles with any bytes, ``[n]`` of EXTENT.

    Args:
        lane: ``[tiles]`` ascending.
        place: ``[tiles]`` in the lane's order: the tile's number.
        nbytes: ``[tiles]``.
        phase: ``[tiles]`` where in the pattern the bytes begin.
    """
    some = nbytes > 0
    lane = lane[some]
    count = np.bincount(lane)
    turn = np.arange(lane.size) - np.repeat(np.cumsum(count) - count, count)
    last_lap = turn >= count[lane] - rings.slots
    extents = np.zeros(int(np.count_nonzero(last_lap)), EXTENT)
    slot = (turn + rings.first_slot) % rings.slots
    extents["offset"] = (lane * rings.ring_bytes + slot * rings.slot_bytes)[last_lap]
    extents["bytes"] = nbytes[some][last_lap]
    extents["phase"] = np.broadcast_to(phase, nbytes.shape)[some][last_lap]
    extents["tile"] = place[some][last_lap]
    return extents


def count_extent_mismatches(
    memory: NDArray[np.uint8], extents: NDArray[np.void], nonce: int
) -> tuple[int, int]:
    """Compare host memory with what the extents must hold; bytes checked, and bytes of words that differ."""
    words = memory.view(np.uint32)
    shapes, shape_of = np.unique(extents[["bytes", "phase"]], return_inverse=True)
    jobs = []
    for index, shape in enumerate(shapes):
        alike = extents[shape_of == index]
        step = max(1, _CHUNK_WORDS * _WORD_BYTES // int(shape["bytes"]))
        jobs += [alike[begin : begin + step] for begin in range(0, alike.size, step)]

    def mismatched(alike: NDArray[np.void]) -> int:
        return _WORD_BYTES * _mismatched_words(words, alike, nonce)

    with ThreadPoolExecutor(_THREADS) as pool:
        wrong = sum(pool.map(mismatched, jobs))
    return int(extents["bytes"].sum(dtype=np.int64)), wrong


def _mismatched_words(words: NDArray[np.uint32], alike: NDArray[np.void], nonce: int) -> int:
    """Words that differ in extents of one length and phase."""
    in_piece = (alike["phase"][0] // _WORD_BYTES + np.arange(alike["bytes"][0] // _WORD_BYTES)) % PIECE_WORDS
    expected = (in_piece + nonce).astype(np.uint32)
    first = (alike["offset"] // _WORD_BYTES).astype(np.int64)
    seen = words[first[:, None] + np.arange(in_piece.size)]
    differs = seen != expected
    numbers = in_piece == 0
    differs[:, numbers] = seen[:, numbers] != alike["tile"][:, None]
    return int(np.count_nonzero(differs))
