"""Cache locality of weights: what a step of tiles loads from memory, and how much of that shows.

A *step* is the tiles that all SMs compute at the same place of their orders. Rows of an expert share its
weight tiles, so a step reads each once, from memory if it is new or has left the cache.
Every function raises :class:`ValueError` for a negative, NaN or infinite argument.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from xstage_tune.model.checks import NS_PER_S, Floats, nonnegative, positive, positive_part


def lost_fraction(*, cache_bytes: ArrayLike, working_set_bytes: ArrayLike) -> Floats:
    """``[1 - cache / working set]+``: the probability that what was loaded has left the cache meanwhile."""
    kept = nonnegative("cache_bytes", cache_bytes) / positive("working_set_bytes", working_set_bytes)
    return positive_part(1.0 - kept)


def distinct_weight_tiles(*, step_tiles: ArrayLike, row_tiles: ArrayLike, rows: ArrayLike) -> Floats:
    """Weight tiles that a step of ``step_tiles`` tiles reads, where experts have ``rows`` rows.

    Those of one row, or where rows are few those of all the experts that the step spans.
    """
    step = nonnegative("step_tiles", step_tiles)
    return np.maximum(np.minimum(nonnegative("row_tiles", row_tiles), step), step / positive("rows", rows))


def load_ns(*, loaded_bytes: ArrayLike, memory_bytes_per_s: ArrayLike) -> Floats:
    """Time of a step's loads at the whole GPU's bandwidth: the least that the step takes."""
    rate = positive("memory_bytes_per_s", memory_bytes_per_s)
    return nonnegative("loaded_bytes", loaded_bytes) / rate * NS_PER_S


def exposed_load_ns(
    *, loaded_bytes: ArrayLike, memory_bytes_per_s: ArrayLike, mainloop_ns: ArrayLike
) -> Floats:
    """What a step's loads add to its mainloops: those hide them as long as they last."""
    loads = load_ns(loaded_bytes=loaded_bytes, memory_bytes_per_s=memory_bytes_per_s)
    return positive_part(loads - nonnegative("mainloop_ns", mainloop_ns))


def tile_load_ns(
    *, weight_tile_bytes: ArrayLike, rows: ArrayLike, sms: ArrayLike, memory_bytes_per_s: ArrayLike
) -> Floats:
    """A tile's part of its weights' load, which ``rows`` rows share, at its SM's part of the bandwidth."""
    share = nonnegative("weight_tile_bytes", weight_tile_bytes) / positive("rows", rows)
    return load_ns(
        loaded_bytes=share,
        memory_bytes_per_s=positive("memory_bytes_per_s", memory_bytes_per_s) / positive("sms", sms),
    )
