"""What the simulator needs of a platform: R, Q(K), T0(B), and which producer sits on which port."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.launches.sm_ids import spread_sm_ids
from xstage_tune.platforms.queries import capacity_bytes, issue_ns
from xstage_tune.platforms.rooms import shared_room_bytes, sm_room_bytes
from xstage_tune.platforms.schema import Arbitration, PlatformProfile

NS_PER_S = 1e9
WEIGHT_STEP = 0.05

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DrainModel:
    """The path of K producers.

    Args:
        drain_bytes_per_s: R.
        capacity_bytes: Q(K); infinity where the path never limits.
        own_room_bytes: part of Q(K) that is one producer's own; what is left is shared by all.
        sm_room_bytes: part of that which is inside the producer's SM.
        free_issue_ns: T0 of one producer's burst, from burst bytes ``[n]`` to ns ``[n]``.
        branch_of_sm: ``[K]`` branch of each producer, an index into ``branch_share``.
        branch_share: ``[branches]`` fraction of R that a branch is due.
        port_of_sm: ``[K]`` port of each producer, from 0 up; its producers share it equally. By default
            each producer has its own port.
        port_weight: ``[ports]`` in proportion to which the ports of a branch share it; by default equal.

    Raises:
        UsageError: a figure is not positive, or a producer is on no branch or behind no port.
    """

    drain_bytes_per_s: float
    capacity_bytes: float
    free_issue_ns: Callable[[Floats], Floats]
    branch_of_sm: tuple[int, ...]
    branch_share: tuple[float, ...] = (1.0,)
    port_of_sm: tuple[int, ...] = ()
    port_weight: tuple[float, ...] = ()
    own_room_bytes: float = 0.0
    sm_room_bytes: float = 0.0

    def __post_init__(self) -> None:
        figures = (self.drain_bytes_per_s, self.capacity_bytes, *self.branch_share, *self.port_weight)
        if not all(figure > 0 for figure in figures):
            raise UsageError("drain model: R, Q, branch shares and port weights must be positive")
        if not 0 <= self.own_room_bytes * self.producers <= self.capacity_bytes:
            raise UsageError("drain model: the producers' own rooms must be part of Q")
        if not 0 <= self.sm_room_bytes <= self.own_room_bytes:
            raise UsageError("drain model: an SM's room must be part of its producer's own")
        if not self.branch_of_sm or not set(self.branch_of_sm) <= set(range(len(self.branch_share))):
            raise UsageError("drain model: every producer must be on one of the branches")
        if not self.port_of_sm:
            object.__setattr__(self, "port_of_sm", tuple(range(self.producers)))
        ports = max(self.port_of_sm) + 1
        if set(self.port_of_sm) != set(range(ports)) or len(self.port_of_sm) != self.producers:
            raise UsageError("drain model: every producer must have one port, numbered from 0 without gaps")
        if not self.port_weight:
            object.__setattr__(self, "port_weight", (1.0,) * ports)
        if len(self.port_weight) != ports:
            raise UsageError(f"drain model: {ports} ports have {len(self.port_weight)} weights")

    @property
    def delays_loads(self) -> bool:
        """Whether the operands of a mainloop wait behind what its SM has stored."""
        return self.own_room_bytes > 0

    @property
    def producers(self) -> int:
        """K."""
        return len(self.branch_of_sm)

    @property
    def shared_room_bytes(self) -> float:
        """Part of Q(K) that is no producer's own."""
        return self.capacity_bytes - self.own_room_bytes * self.producers

    @property
    def outside_part(self) -> float:
        """Part of what waits in a full own room that has left its SM."""
        return 1.0 - self.sm_room_bytes / self.own_room_bytes if self.own_room_bytes > 0 else 0.0


def drain_model(
    platform: PlatformProfile,
    *,
    producers: int | None = None,
    flavour: StoreFlavour = "st.v4",
    sm_ids: Sequence[int] | None = None,
) -> DrainModel:
    """The path of a calibrated platform as K producers see it.

    Args:
        platform: the profile.
        producers: K; all SMs by default.
        flavour: whose T0 and Q to take.
        sm_ids: ``[K]`` SM of each producer, for the arbitration; by default K of them spread evenly.

    Raises:
        UsageError: the profile has no T0 or no Q of the flavour, or no group for one of the SMs.
    """
    count = platform.gpu.sm_count if producers is None else producers
    if sm_ids is None:
        sm_ids = spread_sm_ids(count, platform.gpu.sm_count).tolist()
    capacity = float(capacity_bytes(platform, flavour, count))
    own_room_bytes = max(0.0, capacity - shared_room_bytes(platform, flavour)) / count
    one_port = DrainModel(
        drain_bytes_per_s=platform.drain.bytes_per_s,
        capacity_bytes=capacity,
        own_room_bytes=own_room_bytes,
        sm_room_bytes=min(own_room_bytes, sm_room_bytes(platform, flavour)),
        free_issue_ns=partial(issue_ns, platform, flavour, count),
        branch_of_sm=(0,) * count,
    )
    if platform.arbitration is None:
        return one_port
    return _arbitrated(one_port, platform.name, platform.arbitration, sm_ids)


def _arbitrated(
    path: DrainModel, platform: str, arbitration: Arbitration, sm_ids: Sequence[int]
) -> DrainModel:
    """The path with its producers behind the ports of their SMs."""
    groups = arbitration.groups
    group_of = {sm: index for index, group in enumerate(groups) for sm in group.sm_ids}
    missing = sorted(set(sm_ids) - set(group_of))
    if missing:
        raise UsageError(
            f"platform '{platform}': arbitration.groups name no group for SM {missing[0]}",
            "every SM that takes part must be in one group",
        )
    # A branch's weight counts its idle ports too: what they leave goes to the others of the branch.
    _, branch_of = np.unique([group.branch for group in groups], return_inverse=True)
    share = np.array([group.share for group in groups])
    branch_share = np.bincount(branch_of, share)
    weight = share / (branch_share / np.bincount(branch_of))[branch_of]
    present, port_of_sm = np.unique([group_of[sm] for sm in sm_ids], return_inverse=True)
    return replace(
        path,
        branch_of_sm=tuple(branch_of[present][port_of_sm].tolist()),
        branch_share=tuple(branch_share.tolist()),
        port_of_sm=tuple(port_of_sm.tolist()),
        port_weight=tuple(_rounded_weight(weight[present]).tolist()),
    )


def _rounded_weight(weight: Floats) -> Floats:
    """Port weights to a twentieth: measured ones of equal ports differ by noise, at most a few percent,
    and every distinct weight costs the event loop a set of flow classes."""
    return np.maximum(np.round(weight / WEIGHT_STEP), 1.0) * WEIGHT_STEP
