"""What a family makes of a config: tiles, ready to run on a simulator or as a skeleton."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.launches.skeletons import TileScheduling
from xstage_tune.launches.streams import Floats, Streams


@dataclass(frozen=True, slots=True)
class GivenTimes:
    """Tile times that are known, in ns; None leaves one to the compute model.

    Args:
        l1_ns, l2_ns: mainloops of MegaMoE's tiles, both or neither.
        q_ns: the Q-loop of attention.
        epilogue_ns: what the issue role spends on a full tile beyond its stores.
    """

    l1_ns: float | None = None
    l2_ns: float | None = None
    q_ns: float | None = None
    epilogue_ns: float | None = None


@dataclass(frozen=True, slots=True)
class FusedLaunch:
    """A config made ready to run.

    Args:
        streams: the tiles of each SM of the GPU, of some maybe none; ``staging_ns`` is the epilogue, without
            any store.
        local_bytes: ``[n]`` what each tile stores to the GPU's own memory.
        staging_slots: S.
        flavour: of the stores.
        load_cover_ns: how long a mainloop goes on with the operands in its pipeline's stages.
        scheduling: of a family whose order a device finds by itself; None where it is listed.
        linear2: ``[n]`` whether a tile is of Linear-2; None for attention.
    """

    streams: Streams
    local_bytes: Floats
    staging_slots: int
    flavour: StoreFlavour
    load_cover_ns: float
    scheduling: TileScheduling | None = None
    linear2: NDArray[np.bool_] | None = None
