"""Extents of the pattern in an owner's memory, and the check of those in host memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from xstage_tune.cuda.pattern import PIECE_WORDS

#: The struct of ``kernels/emulation/verify.cu``: what a tile left, the pattern from ``phase`` on.
EXTENT = np.dtype(
    [("offset", "<u8"), ("bytes", "<u4"), ("phase", "<u4"), ("tile", "<u4"), ("padding", "<u4")]
)
_WORD_BYTES = 4
_CHUNK_WORDS = 1 << 20
_THREADS = 8


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
