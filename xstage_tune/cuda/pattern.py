"""What producers store and owners expect: the numpy twin of ``kernels/common/pattern.cuh``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

PIECE_WORDS = 1024
#: Nonces are this far apart, so that no word of one launch equals the same word of another.
NONCE_STEP = 4096
_LEAST_TASK_BYTES = 1 << 20


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

    def check_rings(some: slice) -> tuple[int, int]:
        bursts = issued[some].astype(np.int64)[:, None]
        written = min(int(bursts.max()), slots)
        first = np.arange(written)  # number of the first burst in each written slot
        last = first + (bursts - 1 - first) // slots * slots
        # The rings from `first_slot` to their end, then from their beginning.
        wrap = min(written, slots - first_slot)
        parts = (
            (rings[some, first_slot : first_slot + wrap], slice(wrap)),
            (rings[some, : written - wrap], slice(wrap, written)),
        )
        wrong = sum(
            _mismatched_words(seen, last[:, at].astype(np.uint32), expected, (first < bursts)[:, at])
            for seen, at in parts
        )
        return int(np.minimum(bursts, slots).sum()) * burst_bytes, 4 * wrong

    tasks = _tasks(len(issued), int(np.minimum(issued, slots).sum()) * burst_bytes, threads)
    if len(tasks) == 1:
        return check_rings(tasks[0])
    with ThreadPoolExecutor(len(tasks)) as pool:
        outcomes = list(pool.map(check_rings, tasks))
    return sum(checked for checked, _ in outcomes), sum(wrong for _, wrong in outcomes)


def _tasks(rings: int, nbytes: int, threads: int) -> list[slice]:
    """Neighbouring rings for each thread; few bytes are not worth a second one."""
    count = max(1, min(threads, rings, nbytes // _LEAST_TASK_BYTES))
    ends = np.linspace(0, rings, count + 1).astype(int)
    return [slice(int(begin), int(end)) for begin, end in pairwise(ends)]


def _mismatched_words(
    seen: NDArray[np.uint32],
    bursts: NDArray[np.uint32],
    expected: NDArray[np.uint32],
    written: NDArray[np.bool_],
) -> int:
    """Words of the ``written`` slots of ``seen``, ``[rings, slots, words]``, that are not their bursts'."""
    differs = seen != expected
    differs[..., ::PIECE_WORDS] = seen[..., ::PIECE_WORDS] != bursts[..., None]
    if not written.all():
        differs &= written[..., None]
    return int(np.count_nonzero(differs))
