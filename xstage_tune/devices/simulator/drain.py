"""What the simulator needs of a platform: R, Q(K), T0(B), and which producer sits on which port."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from xstage_tune.devices.base import StoreFlavour
from xstage_tune.errors import UsageError
from xstage_tune.platforms.queries import capacity_bytes, issue_ns
from xstage_tune.platforms.schema import Arbitration, PlatformProfile

NS_PER_S = 1e9

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DrainModel:
    """The path of K producers.

    Args:
        drain_bytes_per_s: R.
        capacity_bytes: Q(K); infinity where the path never limits.
        free_issue_ns: T0 of one producer's burst, from burst bytes ``[n]`` to ns ``[n]``.
        group_of_sm: ``[K]`` port of each producer, an index into ``group_share``.
        group_share: ``[ports]`` fraction of R that a port is due.
        unit_of_sm: ``[K]`` unit of each producer, from 0 up: the units of a port share it equally, and
            so do the producers of a unit. By default each producer is its own unit.

    Raises:
        UsageError: a figure is not positive, or a producer is on no port or in no unit.
    """

    drain_bytes_per_s: float
    capacity_bytes: float
    free_issue_ns: Callable[[Floats], Floats]
    group_of_sm: tuple[int, ...]
    group_share: tuple[float, ...] = (1.0,)
    unit_of_sm: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not all(figure > 0 for figure in (self.drain_bytes_per_s, self.capacity_bytes, *self.group_share)):
            raise UsageError("drain model: R, Q and the port shares must be positive")
        if not self.group_of_sm or not set(self.group_of_sm) <= set(range(len(self.group_share))):
            raise UsageError("drain model: every producer must be on one of the ports")
        if not self.unit_of_sm:
            object.__setattr__(self, "unit_of_sm", tuple(range(self.producers)))
        numbered = set(self.unit_of_sm) == set(range(max(self.unit_of_sm) + 1))
        if not numbered or len(self.unit_of_sm) != self.producers:
            raise UsageError("drain model: every producer must be in one unit, numbered from 0 without gaps")

    @property
    def producers(self) -> int:
        """K."""
        return len(self.group_of_sm)

    def free_rate_bytes_per_ns(self, burst_bytes: Floats) -> Floats:
        """Injection rate of bursts without backpressure, ``B / T0(B)``, ``[n]``."""
        rate: Floats = burst_bytes / self.free_issue_ns(burst_bytes)
        return rate


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
        UsageError: the profile has no T0 or no Q of the flavour, or no port for one of the SMs.
    """
    count = platform.gpu.sm_count if producers is None else producers
    if sm_ids is None:
        sm_ids = spread_sm_ids(count, platform.gpu.sm_count).tolist()
    ports, shares, units = _arbiter(platform.name, platform.arbitration, sm_ids)
    return DrainModel(
        drain_bytes_per_s=platform.drain.bytes_per_s,
        capacity_bytes=float(capacity_bytes(platform, flavour, count)),
        free_issue_ns=partial(issue_ns, platform, flavour, count),
        group_of_sm=ports,
        group_share=shares,
        unit_of_sm=units,
    )


def spread_sm_ids(producers: int, sm_count: int) -> NDArray[np.int64]:
    """``[K]`` SM ids spread evenly over the GPU."""
    return np.arange(producers) * sm_count // producers


def _arbiter(
    platform: str, arbitration: Arbitration | None, sm_ids: Sequence[int]
) -> tuple[tuple[int, ...], tuple[float, ...], tuple[int, ...]]:
    """Port of each producer, share of each port, unit of each producer."""
    if arbitration is None:
        return (0,) * len(sm_ids), (1.0,), tuple(range(len(sm_ids)))
    port_of = {sm: port for port, group in enumerate(arbitration.groups) for sm in group.sm_ids}
    missing = sorted(set(sm_ids) - set(port_of))
    if missing:
        raise UsageError(
            f"platform '{platform}': arbitration.groups name no group for SM {missing[0]}",
            "every SM that takes part must be in one group",
        )
    _, units = np.unique([sm // arbitration.unit_sms for sm in sm_ids], return_inverse=True)
    return (
        tuple(port_of[sm] for sm in sm_ids),
        tuple(group.share for group in arbitration.groups),
        tuple(units.tolist()),
    )
