"""Backpressure of a finite run of tiles, where equations 3 to 13 are of an endless one.

A launch is a sequence of runs of tiles that store remotely, each begun on a path that has drained before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from xstage_tune.model.checks import Floats, nonnegative, positive_part


def run_stall_ns(
    *,
    tiles: ArrayLike,
    slots: ArrayLike,
    gap_ns: ArrayLike,
    span_ns: ArrayLike,
    drain_ns: ArrayLike,
    room_ns: ArrayLike,
) -> Floats:
    """Stall of a run of n tiles on an SM: ``[(n - S)*(p - G) - room]+``, ``p = max(G, T_RS, V/R)``.

    Every tile takes G of work and is then stored, behind S staging slots. Its period is p once slots and path
    are full. The first S tiles wait for nothing, and the next ones fill what room the path has.

    Of CTAs in step it is exact for two slots where V/R limits, and off by at most one gap for each slot more.
    With one slot work and stores alternate too, which is not in it. Where T_RS limits, room does not help,
    and it is too low by at most ``room_ns``. The form is that of a schedule skeleton measured on an H200;
    equations 11 and 13 are its limit of many tiles.

    Args:
        tiles: n; need not be whole, as a mean over SMs.
        slots: S, tiles that may be computed and not yet stored.
        gap_ns: G, work between two tiles' stores: T_L2, or that of equation 12.
        span_ns: T_RS, how long a tile is stored without backpressure; 0 where that is never the limit.
        drain_ns: V/R (equation 1) of a burst of one tile of every SM.
        room_ns: Q/R, or the time that the path drained before the run where that is less.

    Raises:
        ValueError: an argument is negative, NaN or infinite.
    """
    gap = nonnegative("gap_ns", gap_ns)
    limit = np.maximum(nonnegative("span_ns", span_ns), nonnegative("drain_ns", drain_ns))
    waiting = positive_part(nonnegative("tiles", tiles) - nonnegative("slots", slots))
    return positive_part(waiting * (np.maximum(gap, limit) - gap) - nonnegative("room_ns", room_ns))
