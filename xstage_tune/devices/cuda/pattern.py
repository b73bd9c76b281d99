"""What producers store and owners expect: the numpy twin of ``kernels/calibration/pattern.cuh``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

PIECE_WORDS = 1024
#: Nonces are this far apart, so that no word of one launch equals the same word of another.
NONCE_STEP = 4096


def nonce(launch: int) -> int:
    """The nonce of the ``launch``-th launch of a device; never 0, repeats after 2^20 launches."""
    return ((launch + 1) * NONCE_STEP) & 0xFFFFFFFF


def burst_words(nonce: int, burst_bytes: int) -> NDArray[np.uint32]:
    """Words of one burst, ``[burst_bytes / 4]``; the first word of a piece is to be the burst's number."""
    word = np.arange(burst_bytes // 4, dtype=np.uint32) % np.uint32(PIECE_WORDS)
    return word + np.uint32(nonce)


def count_mismatches(
    destination: NDArray[np.uint8],
    slots: int,
    burst_bytes: int,
    issued: NDArray[np.uint32],
    nonce: int,
    first_slot: int = 0,
    threads: int = 8,
) -> tuple[int, int]:
    """Compare host memory with what ``issued[k]`` bursts of producer ``k`` must have left in its ring.

    Args:
        destination: rings of ``slots`` bursts, one after another, a producer each.
        issued: ``[producers]`` bursts issued by each.
        first_slot: slot of each ring where burst 0 went.

    Returns:
        Bytes checked, and bytes of the 4-byte words that differ.
    """
    expected = burst_words(nonce, burst_bytes)
    rings = destination[: len(issued) * slots * burst_bytes].view(np.uint32)
    rings = rings.reshape(len(issued), slots, burst_bytes // 4)

    def check_ring(producer: int) -> tuple[int, int]:
        bursts = int(issued[producer])
        written = min(bursts, slots)
        first = np.arange(written, dtype=np.int64)  # number of the first burst in each written slot
        last = (first + (bursts - 1 - first) // slots * slots).astype(np.uint32)
        # The ring from `first_slot` to its end, then from its beginning.
        wrap = min(written, slots - first_slot)
        parts = (
            (rings[producer, first_slot : first_slot + wrap], last[:wrap]),
            (rings[producer, : written - wrap], last[wrap:]),
        )
        return written * burst_bytes, 4 * sum(_mismatched_words(*part, expected) for part in parts)

    with ThreadPoolExecutor(threads) as pool:
        outcomes = list(pool.map(check_ring, range(len(issued))))
    return sum(checked for checked, _ in outcomes), sum(wrong for _, wrong in outcomes)


def _mismatched_words(
    seen: NDArray[np.uint32], bursts: NDArray[np.uint32], expected: NDArray[np.uint32]
) -> int:
    """Words of ``seen``, ``[slots, words]``, that are not those of the bursts with these numbers."""
    differs = seen != expected
    differs[:, ::PIECE_WORDS] = seen[:, ::PIECE_WORDS] != bursts[:, None]
    return int(np.count_nonzero(differs))
