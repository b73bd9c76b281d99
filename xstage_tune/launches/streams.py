"""What every SM of a launch does, in order: the tiles of persistent CTAs, whoever runs them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: In ``waits_on`` and ``signals``: none.
NO_COUNTER = -1


@dataclass(frozen=True, slots=True)
class Streams:
    """The tiles of a launch in the order of each SM: what the pipeline executes.

    Columns are ``[n]``; the tiles of SM i are rows ``first[i]`` to ``first[i + 1]``, in its order.

    Args:
        first: ``[SMs + 1]``.
        mainloop_ns: length of each mainloop.
        staging_ns: time of the issue role before the remote stores (fixed cost, local stores).
        remote_bytes: what the tile stores through the path; 0 for nothing.
        slot_offset_ns: how far into its mainloop a tile gets without a staging slot.
        waits_on: counter that must be complete before the mainloop begins, -1 for none.
        signals: counter that the tile signals once, -1 for none.
        signals_at_end: True: it signals when its mainloop ends (its inputs are read); False: when its
            stores have left its SM (its outputs are written).
        counters: number of counters. A counter is complete when all tiles that signal it have.
        paced_ns: least time that a tile's remote stores are spread over, for kernels that hold them back; by
            default 0 for every tile.

    Raises:
        UsageError: a length, size or counter is out of range.
    """

    first: Ints
    mainloop_ns: Floats
    staging_ns: Floats
    remote_bytes: Floats
    slot_offset_ns: Floats
    waits_on: NDArray[np.int32]
    signals: NDArray[np.int32]
    signals_at_end: NDArray[np.bool_]
    counters: int
    paced_ns: Floats = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        n = self.tiles
        if self.paced_ns.size == 0:
            object.__setattr__(self, "paced_ns", np.zeros(n))
        for name in ("mainloop_ns", "staging_ns", "remote_bytes", "slot_offset_ns", "paced_ns"):
            column = getattr(self, name)
            if column.shape != (n,) or not (np.isfinite(column) & (column >= 0)).all():
                raise UsageError(f"tile streams: {name} must be {n} finite values, none negative")
        if (self.slot_offset_ns > self.mainloop_ns).any():
            raise UsageError("tile streams: slot_offset_ns must not exceed mainloop_ns")
        for name in ("waits_on", "signals"):
            column = getattr(self, name)
            if column.shape != (n,) or (n and not -1 <= column.min() <= column.max() < self.counters):
                raise UsageError(f"tile streams: {name} must name one of {self.counters} counters or be -1")

    @property
    def sms(self) -> int:
        return len(self.first) - 1

    @property
    def tiles(self) -> int:
        return int(self.first[-1])

    def sm_of_tile(self) -> Ints:
        """``[n]`` SM of each tile."""
        return np.repeat(np.arange(self.sms), np.diff(self.first))


def independent_streams(
    first: Ints,
    mainloop_ns: Floats,
    *,
    staging_ns: Floats | float = 0.0,
    remote_bytes: Floats | float = 0.0,
    slot_offset_ns: Floats | float = 0.0,
) -> Streams:
    """Streams whose tiles do not depend on each other; scalars hold for every tile."""
    n = int(first[-1])

    def column(value: Floats | float) -> Floats:
        return np.ascontiguousarray(np.broadcast_to(np.asarray(value, np.float64), n))

    return Streams(
        first=np.asarray(first, np.int64),
        mainloop_ns=column(mainloop_ns),
        staging_ns=column(staging_ns),
        remote_bytes=column(remote_bytes),
        slot_offset_ns=column(slot_offset_ns),
        waits_on=np.full(n, NO_COUNTER, np.int32),
        signals=np.full(n, NO_COUNTER, np.int32),
        signals_at_end=np.zeros(n, np.bool_),
        counters=0,
    )
