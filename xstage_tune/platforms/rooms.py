"""Where outstanding bytes wait: in one room that all SMs share, and in rooms of fewer of them.

What waits in front of the shared room waits in front of everything else that the SM sends: its local stores,
and the loads of its operands. So a kernel that computes meanwhile has less than Q(K) of room.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from xstage_tune.platforms.queries import capacity_bytes

if TYPE_CHECKING:
    from xstage_tune.base.fabric import StoreFlavour
    from xstage_tune.platforms.schema import CapacityPoint, PlatformProfile

#: Fewer knees than this cannot tell a shared room from others.
_FEWEST_KNEES = 3
#: SMs of a texture processing cluster, which share its way to the crossbar.
_SMS_OF_A_PAIR = 2


def tells_shared_room(platform: PlatformProfile, flavour: StoreFlavour) -> bool:
    """Whether the profile has knees enough for :func:`shared_room_bytes` to tell."""
    return len({point.producers for point in _reached(platform, flavour)}) >= _FEWEST_KNEES


def shared_room_bytes(platform: PlatformProfile, flavour: StoreFlavour) -> float:
    """The part of Q that does not grow with the producers; infinity where the profile cannot tell.

    An SM's stores pass buffers of the SM, of its pair, of its port and of the path. K producers, which the
    hardware spreads over ports and pairs first, so have

        Q(K) = shared + min(K, ports)*port + min(K, pairs)*pair + K*own,

    whose four sizes, none negative, are fitted to the calibrated knees (on an H200's host path within 1.5%,
    with shared, port and pair rooms alike for both flavours).
    """
    if not tells_shared_room(platform, flavour):
        return math.inf
    reached = _reached(platform, flavour)
    from scipy.optimize import nnls  # not before it is needed: it takes as long to load as an audit

    producers = np.array([point.producers for point in reached], np.float64)
    capacity = np.array([point.bytes for point in reached])
    pairs = platform.gpu.sm_count / _SMS_OF_A_PAIR
    rooms = [np.ones_like(producers), np.minimum(producers, pairs), producers]
    if platform.arbitration is not None:
        rooms.append(np.minimum(producers, len(platform.arbitration.groups)))
    sizes, _ = nnls(np.column_stack(rooms) / capacity[:, None], np.ones_like(capacity))
    return float(sizes[0])


def _reached(platform: PlatformProfile, flavour: StoreFlavour) -> list[CapacityPoint]:
    return [point for point in platform.capacity if point.flavour == flavour and point.knee_reached]


def sm_room_bytes(platform: PlatformProfile, flavour: StoreFlavour) -> float:
    """The part of Q(K)/K that is inside an SM: what register stores can have outstanding beyond bulk copies.

    A bulk copy leaves nothing behind in its SM but the shared memory that it has yet to read, register stores
    wait in the load/store unit. So the two differ by its room, with all SMs as producers (on an H200 8 KB on
    the host path and on NVLink). 0 for bulk copies, and where only one of the two was calibrated.
    """
    if flavour == "tma" or {point.flavour for point in platform.capacity} != {"st.v4", "tma"}:
        return 0.0
    sms = platform.gpu.sm_count
    registers, copies = (float(capacity_bytes(platform, one, sms)) for one in ("st.v4", "tma"))
    return max(0.0, registers - copies) / sms
