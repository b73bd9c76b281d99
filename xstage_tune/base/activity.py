"""How many of some lanes are active over time, from the intervals in which each is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Series:
    """A quantity over time: ``time_ns[n]`` and ``value[n]``."""

    time_ns: Floats
    value: Floats


def activity(begin_ns: Floats, end_ns: Floats, *, until_ns: float, lanes: int, bins: int) -> Series:
    """Fraction of the lanes that are active, averaged over each of ``bins`` equal parts from 0 to the end.

    Args:
        begin_ns, end_ns: ``[n]`` intervals, of which those of one lane do not overlap.

    Returns:
        ``time_ns`` holds the middle of each part.
    """
    edges = np.linspace(0.0, until_ns, bins + 1)
    active = _time_before(edges, begin_ns) - _time_before(edges, end_ns)
    value = np.diff(active) / (np.diff(edges) * lanes)
    return Series((edges[:-1] + edges[1:]) / 2, value)


def merged(lane: Ints, begin_ns: Floats, end_ns: Floats) -> tuple[Floats, Floats]:
    """Begins and ends of the times in which any interval of a lane runs: none of a lane overlap any more.

    Args:
        lane: ``[n]`` of each interval.
        begin_ns: from 0 on.
    """
    if not lane.size:
        return begin_ns, end_ns
    order = np.lexsort((begin_ns, lane))
    # Lanes are laid end to end, so that the latest end so far is never another lane's.
    apart_ns = (1.0 + float(end_ns.max())) * lane[order]
    begin, end = begin_ns[order] + apart_ns, np.maximum.accumulate(end_ns[order] + apart_ns)
    opens = np.concatenate(([True], begin[1:] > end[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return begin[opens] - apart_ns[opens], end[closes] - apart_ns[closes]


def _time_before(edges: Floats, moments: Floats) -> Floats:
    """Sum over ``moments`` of ``[edge - moment]+``, for each edge."""
    ordered = np.sort(moments)
    total = np.concatenate(([0.0], np.cumsum(ordered)))
    count = np.searchsorted(ordered, edges)
    time: Floats = count * edges - total[count]
    return time
