"""The structs of ``kernels/emulation`` that the host shares, and where a CTA keeps what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.cuda.driver import START
from xstage_tune.families.megamoe.scheduling import SCHEDULER_PARAMETERS

MAX_SMS = 256
NO_LANE = 0xFFFF
VECTOR_BYTES = 16
#: Factor of the golden-ratio sequence that chooses the tiles whose moments are kept.
KEEP_FACTOR = 2654435769

#: Threads of a CTA: the issue role's, a warp each of the mainloop, the signal and the loader role.
THREADS: dict[StoreFlavour, int] = {"st.v4": 256 + 96, "tma": 32 + 96}
#: When a tile raises its counter.
RAISES_NOTHING, RAISES_WHEN_STORED, RAISES_AT_END = 0, 1, 2

TILE_PLAN = np.dtype(
    [("mainloop_cycles", "<u4"), ("slot_offset_cycles", "<u4"), ("store", "<u2"), ("expected", "<u2")]
)
TILE_LINKS = np.dtype([("waits_on", "<u4"), ("signals", "<u4")])
STORE_PLAN = np.dtype(
    [
        ("staging_cycles", "<u4"),
        ("local_bytes", "<u4"),
        ("remote_bytes", "<u4"),
        ("raises", "<u4"),
    ]
)
TILE_MOMENTS = np.dtype(
    [
        (moment, "<u4")
        for moment in ("ready", "begin", "taken", "end", "issue", "accepted", "freed", "padding")
    ]
)
MAINLOOP_TOTALS = np.dtype(
    [(name, "<u8") for name in ("mainloop_cycles", "stall_cycles", "dependency_cycles")]
)
ISSUE_TOTALS = np.dtype(
    [
        ("issue_cycles", "<u8"),
        ("remote_issue_cycles", "<u8"),
        ("completion_cycles", "<u8"),
        ("signal_cycles", "<u8"),
        ("finish_cycle", "<u8"),
        ("tiles", "<u4"),
        ("remote_tiles", "<u4"),
    ]
)
LANE_TOTALS = np.dtype(
    [
        ("mainloop", MAINLOOP_TOTALS),
        ("order_check", "<u8"),
        ("issue", ISSUE_TOTALS),
        ("signal", ISSUE_TOTALS),
    ]
)
FAULT = np.dtype(
    [(name, "<u4") for name in ("raised", "lane", "role", "wait", "tile", "subject", "expected", "seen")]
)
CONTROL = np.dtype([("start", START), ("fault", FAULT)])
SHARED_OFFSETS = np.dtype(
    [
        (name, "<u4")
        for name in (
            "barriers",
            "queue",
            "links",
            "words",
            "stores",
            "plans",
            "listed",
            "first_row",
            "tokens",
            "positions",
            "moments",
        )
    ]
)
SKELETON_ARGUMENTS = np.dtype(
    [
        ("remote", "<u8"),
        ("local", "<u8"),
        ("remote_ring_bytes", "<u8"),
        ("local_ring_bytes", "<u8"),
        ("duration_ns", "<u8"),
        ("control", "<u8"),
        ("lanes", "<u8"),
        ("totals", "<u8"),
        ("moments", "<u8"),
        ("counters", "<u8"),
        ("first_tile", "<u8"),
        ("plans", "<u8"),
        ("listed", "<u8"),
        ("stores", "<u8"),
        ("scheduler", SCHEDULER_PARAMETERS),
        ("shared", SHARED_OFFSETS),
        ("lane_count", "<u4"),
        ("store_plans", "<u4"),
        ("slots", "<u4"),
        ("slot_bytes", "<u4"),
        ("queue_tiles", "<u4"),
        ("remote_slot_bytes", "<u4"),
        ("local_slot_bytes", "<u4"),
        ("first_remote_slot", "<u4"),
        ("first_local_slot", "<u4"),
        ("most_kept", "<u4"),
        ("keep_threshold", "<u4"),
        ("nonce", "<u4"),
        ("dependencies", "<u4"),
        ("some_signal", "<u4"),
        ("coupled", "<u4"),
        ("lane_of_sm", "<u2", (MAX_SMS,)),
    ]
)

_ALIGNMENT = 16
_BARRIER_BYTES = 8
_QUEUED_BYTES = 16
#: Tiles that the loader role may find ahead of those that have slots.
_AHEAD_TILES = 8
_WORD_BYTES = 4
_WORDS = 256  # one a thread of the issue role of st.v4
_POSITIONS_BYTES = 2 * 2 * 64  # two layers of 64 16-bit words


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """What a CTA keeps in shared memory beside its slots, one named term a buffer, in bytes.

    Args:
        slots: S.
        stores: rows of the table of stores.
        tiles: the most of any lane.
        listed: the order is listed, not found by the scheduler.
        experts: of the scheduler; 0 without one.
    """

    slots: int
    stores: int
    tiles: int
    listed: bool
    experts: int

    @property
    def queue_tiles(self) -> int:
        """Room for tiles between their being found and their being stored."""
        return self.slots + _AHEAD_TILES

    def terms(self) -> dict[str, int]:
        """Bytes of each buffer, in their order behind the slots; what is left holds the moments."""
        return {
            "barriers": (2 * self.slots + self.queue_tiles) * _BARRIER_BYTES,
            "queue": self.queue_tiles * _QUEUED_BYTES,
            "links": self.queue_tiles * TILE_LINKS.itemsize,
            "words": _WORDS * _WORD_BYTES,
            "stores": self.stores * STORE_PLAN.itemsize,
            "plans": self.tiles * TILE_PLAN.itemsize,
            "listed": self.tiles * TILE_LINKS.itemsize if self.listed else 0,
            "first_row": (self.experts + 1) * _WORD_BYTES,
            "tokens": self.experts * _WORD_BYTES,
            "positions": _POSITIONS_BYTES,
        }

    def bytes_beside_slots(self) -> int:
        """All of them, aligned."""
        return sum(_aligned(size) for size in self.terms().values())

    def offsets(self, slot_bytes: int) -> dict[str, int]:
        """Where each buffer begins, and the moments behind them."""
        at, offsets = self.slots * slot_bytes, {}
        for name, size in self.terms().items():
            offsets[name] = at
            at += _aligned(size)
        return offsets | {"moments": at}


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
