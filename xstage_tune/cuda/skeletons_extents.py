"""What a skeleton's tiles must leave with their owners: extents of the pattern, in rings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError
from xstage_tune.cuda.extents import EXTENT
from xstage_tune.cuda.skeletons_plan import LaunchPlan
from xstage_tune.launches.streams import Ints


@dataclass(frozen=True, slots=True)
class TileRings:
    """A ring of ``slots`` tiles for each lane, one ring after another, entered at ``first_slot``."""

    slot_bytes: int
    slots: int
    first_slot: int

    @property
    def ring_bytes(self) -> int:
        """Bytes of one lane's ring."""
        return self.slots * self.slot_bytes


def tile_rings(total_bytes: int, lanes: int, slot_bytes: int, launch: int) -> TileRings:
    """Rings that fill ``total_bytes``, entered at another place by each launch.

    Raises:
        UsageError: not even one tile a lane fits.
    """
    slots = total_bytes // lanes // slot_bytes
    if slots == 0:
        raise UsageError(
            f"{lanes} tiles of {slot_bytes} bytes do not fit the {total_bytes >> 20} MiB destination"
        )
    # Odd and large: successive launches start far apart.
    return TileRings(slot_bytes, slots, launch * 2654435761 % slots)


def remote_extents(plan: LaunchPlan, rings: TileRings) -> NDArray[np.void]:
    """What the remote owner must find: the first bytes of each tile."""
    return _extents(plan, rings, plan.remote_bytes, np.zeros_like(plan.remote_bytes))


def local_extents(plan: LaunchPlan, rings: TileRings) -> NDArray[np.void]:
    """What the GPU must find in its own memory: the bytes behind the remote ones."""
    return _extents(plan, rings, plan.local_bytes, plan.remote_bytes)


def _extents(plan: LaunchPlan, rings: TileRings, nbytes: Ints, phase: Ints) -> NDArray[np.void]:
    """Of each lane, those of its tiles with any bytes that no later lap has overwritten."""
    some = nbytes > 0
    lane = plan.lane_of_tile[some]
    count = np.bincount(lane, minlength=plan.lanes)
    turn = np.arange(lane.size) - np.repeat(np.cumsum(count) - count, count)
    left = turn >= count[lane] - rings.slots
    slot = (turn + rings.first_slot) % rings.slots
    extents = np.zeros(int(np.count_nonzero(left)), EXTENT)
    extents["offset"] = (lane * rings.ring_bytes + slot * rings.slot_bytes)[left]
    extents["bytes"] = nbytes[some][left]
    extents["phase"] = phase[some][left]
    extents["tile"] = plan.place_of_tile[some][left]
    return extents
