"""State of a launch under way in the pipeline's event loop, by tile and by role."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xstage_tune.simulator.fluid import Fluid
from xstage_tune.simulator.timers import Timers

# Mainloop role.
TO_BEGIN = 0  # its timer: start of the kernel, or a counter that becomes visible
ON_COUNTER = 1
TO_SLOT = 2  # its timer: the offset at which the tile needs a slot
ON_SLOT = 3
TO_END = 4  # its timer: end of the mainloop
# Issue role.
IDLE = 0
STAGING = 1  # its timer: end of the staging part
STORING = 2  # in the path; its timer, where SMs have rooms of their own: T0 is over
ADMITTING = 3  # T0 is over, and the tile's last byte has no room yet
PASSING = 4  # accepted, and waits until its bytes are in the shared room
COMPLETING = 5  # its timer: own bytes have drained

NO_BURST = -1
NO_TILE = -1


class Tiles(NamedTuple):
    """Tiles of all SMs, those of one SM contiguous and in its order; ``[n]`` unless said.

    What an SM stores goes through its own room in parts: the local bytes of tile t are part 2t, its remote
    bytes part 2t + 1.
    """

    first: NDArray[np.int64]  # [SMs + 1]
    mainloop_ns: NDArray[np.float64]
    slot_offset_ns: NDArray[np.float64]
    staging_ns: NDArray[np.float64]
    burst: NDArray[np.int64]  # [2n] kind of a part, an index into those of ``Fluid``; or NO_BURST
    admitted_at: NDArray[np.float64]  # bytes that have left its SM's own room when its last one has room
    waits_on: NDArray[np.int32]  # counter, or NO_COUNTER
    signals: NDArray[np.int32]  # counter, or NO_COUNTER
    signals_at_end: NDArray[np.bool_]  # signal at the mainloop's end, else when stored


class Times(NamedTuple):
    """What happened to each tile, ``[n]``, in ns; NaN for a tile never reached."""

    ready: NDArray[np.float64]  # the mainloop role turned to the tile
    begin: NDArray[np.float64]  # its counter was complete
    stall: NDArray[np.float64]  # length of the wait for a slot
    starved: NDArray[np.float64]  # length of the wait, inside the mainloop, for operands
    end: NDArray[np.float64]  # end of the mainloop
    issue: NDArray[np.float64]  # the issue role turned to the tile
    accepted: NDArray[np.float64]  # its last store was accepted
    drained: NDArray[np.float64]  # its last remote byte had drained
    freed: NDArray[np.float64]  # its slot was free again
    raised: NDArray[np.float64]  # its counter was raised; NaN for one that raises none when stored


class Roles(NamedTuple):
    """Where the roles are, ``[SMs]`` unless said."""

    mainloop: NDArray[np.int8]
    issue: NDArray[np.int8]
    current: NDArray[np.int64]  # tile of the mainloop role
    storing: NDArray[np.int64]  # tile of the issue role; those in [storing, current) have ended
    raising: NDArray[np.int64]  # stored tile whose counter is to be raised, or NO_TILE
    free_slots: NDArray[np.int64]
    stalled_at: NDArray[np.float64]  # since when ON_SLOT
    running_at: NDArray[np.float64]  # since when TO_SLOT or TO_END
    backlog_at: NDArray[np.float64]  # when the first burst was issued of those in the SM's own room
    starved_at: NDArray[np.float64]  # due time of a mainloop's timer that found it without operands, else NaN
    offered: NDArray[np.int64]  # parts of its tiles from here on are yet to be issued
    passing: NDArray[np.int64]  # part at the head of the SM's own room
    missing: NDArray[np.int64]  # [counters] signals to come
    visible_at: NDArray[np.float64]  # [counters] when a complete counter is seen
    waiting: NDArray[np.int64]  # [counters] first SM that waits
    next_waiting: NDArray[np.int64]


class Rules(NamedTuple):
    """How roles interact."""

    raise_ns: float  # from a stored tile's last byte leaving its SM to its counter's being raised
    signal_ns: float  # from there to its being seen by other SMs
    completion_coupled: bool
    completion_latency_ns: float
    load_cover_ns: float  # how long a mainloop does with the operands that it has; infinity for a spin


class Pipeline(NamedTuple):
    """One launch under way."""

    tiles: Tiles
    times: Times
    roles: Roles
    timers: Timers  # of SM i: i its mainloop role's, SMs + i its issue role's, 2 SMs + i its signal role's
    fluid: Fluid
    rules: Rules
