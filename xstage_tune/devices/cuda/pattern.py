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
    ring_bytes: int,
    burst_bytes: int,
    issued: NDArray[np.uint32],
    nonce: int,
    threads: int = 8,
) -> tuple[int, int]:
    """Compare host memory with what ``issued[k]`` bursts of producer ``k`` must have left in its ring.

    Args:
        destination: ``[producers * ring_bytes]``, the rings one after another.
        issued: ``[producers]`` bursts issued by each.

    Returns:
        Bytes checked, and bytes of the 4-byte words that differ.
    """
    expected = burst_words(nonce, burst_bytes)
    slots = ring_bytes // burst_bytes

    def check_ring(producer: int) -> tuple[int, int]:
        bursts = int(issued[producer])
        written = min(bursts, slots)
        ring = destination[producer * ring_bytes :][: written * burst_bytes]
        seen = ring.view(np.uint32).reshape(written, burst_bytes // 4)
        differs = seen != expected
        slot = np.arange(written, dtype=np.int64)
        last = slot + (bursts - 1 - slot) // slots * slots  # the last lap that reached this slot
        differs[:, ::PIECE_WORDS] = seen[:, ::PIECE_WORDS] != last.astype(np.uint32)[:, None]
        return ring.nbytes, 4 * int(np.count_nonzero(differs))

    with ThreadPoolExecutor(threads) as pool:
        outcomes = list(pool.map(check_ring, range(len(issued))))
    return sum(checked for checked, _ in outcomes), sum(wrong for _, wrong in outcomes)
