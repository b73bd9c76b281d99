"""Earliest of n timers: a winner tree, where setting one costs log2(n) comparisons."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xstage_tune.simulator.jit import event_kernel


class Timers(NamedTuple):
    """``when_ns[i]`` is timer i's due time (infinity: not set); ``winner[1]`` is the earliest timer."""

    when_ns: NDArray[np.float64]  # [leaves], a power of two
    winner: NDArray[np.int64]  # [2 * leaves]: node k has children 2k and 2k + 1, leaves last


def new_timers(due_ns: NDArray[np.float64]) -> Timers:
    """Timers due at ``due_ns[i]``, infinity for one that is not set."""
    leaves = 1 << max(1, (due_ns.size - 1).bit_length())
    when = np.full(leaves, np.inf)
    when[: due_ns.size] = due_ns
    winner = np.zeros(2 * leaves, np.int64)
    winner[leaves:] = np.arange(leaves)
    level = leaves
    while level > 1:
        left, right = winner[level : 2 * level : 2], winner[level + 1 : 2 * level : 2]
        level //= 2
        winner[level : 2 * level] = np.where(when[left] <= when[right], left, right)
    return Timers(when, winner)


@event_kernel
def set_timer(timers: Timers, timer: int, when_ns: float) -> None:
    """Set a timer, or clear it with infinity. Of timers due together the lowest number wins."""
    when, winner = timers.when_ns, timers.winner
    when[timer] = when_ns
    node = (timer + when.shape[0]) >> 1
    while node >= 1:
        left, right = winner[2 * node], winner[2 * node + 1]
        best = left if when[left] <= when[right] else right
        # Above an unchanged winner other than this timer nothing can change.
        if best == winner[node] and best != timer:
            return
        winner[node] = best
        node >>= 1
