"""What the simulator needs of a platform: R, Q(K), T0(B), and which producer sits on which port."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xstage_tune.devices.base import StoreFlavour
from xstage_tune.errors import UsageError
from xstage_tune.platforms.schema import Arbitration, CapacityLaw, CapacityPoint, PlatformProfile

NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class DrainModel:
    """The path of K producers.

    Args:
        drain_bytes_per_s: R.
        capacity_bytes: Q(K); infinity where the path never limits.
        issue_bytes: ``[n]`` burst sizes of the T0 curve, ascending.
        issue_ns: ``[n]`` T0 of each.
        group_of_sm: ``[K]`` port of each producer, an index into ``group_share``.
        group_share: ``[ports]`` fraction of R that a port is due.
        unit_of_sm: ``[K]`` unit of each producer, from 0 up: the units of a port share it equally, and
            so do the producers of a unit. By default each producer is its own unit.

    Raises:
        UsageError: a figure is not positive, or a producer is on no port or in no unit.
    """

    drain_bytes_per_s: float
    capacity_bytes: float
    issue_bytes: tuple[float, ...]
    issue_ns: tuple[float, ...]
    group_of_sm: tuple[int, ...]
    group_share: tuple[float, ...] = (1.0,)
    unit_of_sm: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        figures = (self.drain_bytes_per_s, self.capacity_bytes, *self.issue_bytes, *self.issue_ns)
        if not all(figure > 0 for figure in (*figures, *self.group_share)):
            raise UsageError("drain model: R, Q, the T0 curve and the port shares must all be positive")
        if not self.issue_bytes or len(self.issue_bytes) != len(self.issue_ns):
            raise UsageError("drain model: the T0 curve needs as many times as burst sizes, and one at least")
        if any(a >= b for a, b in zip(self.issue_bytes, self.issue_bytes[1:], strict=False)):
            raise UsageError("drain model: the burst sizes of the T0 curve must ascend")
        if not self.group_of_sm or not 0 <= min(self.group_of_sm) <= max(self.group_of_sm) < len(
            self.group_share
        ):
            raise UsageError("drain model: every producer must be on one of the ports")
        if not self.unit_of_sm:
            object.__setattr__(self, "unit_of_sm", tuple(range(self.producers)))
        if set(self.unit_of_sm) != set(range(max(self.unit_of_sm) + 1)) or len(self.unit_of_sm) != self.producers:
            raise UsageError("drain model: every producer must be in one unit, numbered from 0 without gaps")

    @property
    def producers(self) -> int:
        """K."""
        return len(self.group_of_sm)

    def free_issue_ns(self, burst_bytes: ArrayLike) -> NDArray[np.float64]:
        """T0 of a burst: linear between the curve's points.

        Above the curve its last slope goes on. Below, the time falls in proportion to the bytes, so
        that the rate stays that of the smallest size measured.
        """
        size = np.asarray(burst_bytes, np.float64)
        x, y = np.asarray(self.issue_bytes), np.asarray(self.issue_ns)
        inside = np.interp(size, x, y)
        slope = max(0.0, (y[-1] - y[-2]) / (x[-1] - x[-2])) if x.size > 1 else y[-1] / x[-1]
        above = y[-1] + slope * (size - x[-1])
        time: NDArray[np.float64] = np.where(
            size > x[-1], above, np.where(size < x[0], y[0] * size / x[0], inside)
        )
        return time


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
        sm_ids = [i * platform.gpu.sm_count // count for i in range(count)]
    sizes, times = _issue_curve(platform, count, flavour)
    ports, shares, units = _arbiter(platform.name, platform.arbitration, sm_ids)
    return DrainModel(
        drain_bytes_per_s=platform.drain.bytes_per_s,
        capacity_bytes=_capacity_bytes(platform, count, flavour),
        issue_bytes=sizes,
        issue_ns=times,
        group_of_sm=ports,
        group_share=shares,
        unit_of_sm=units,
    )


def _issue_curve(
    platform: PlatformProfile, producers: int, flavour: StoreFlavour
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """T0 against burst size at the measured K nearest to ``producers``; T0 hardly depends on K."""
    points = [point for point in platform.issue if point.flavour == flavour]
    if not points:
        raise UsageError(
            f"platform '{platform.name}' has no T0 (issue) for stores of flavour '{flavour}'",
            "choose a flavour that it was calibrated for, or calibrate again",
        )
    nearest = min({point.producers for point in points}, key=lambda k: abs(np.log(k / producers)))
    curve = {float(point.burst_bytes): point.ns for point in points if point.producers == nearest}
    sizes = tuple(sorted(curve))
    return sizes, tuple(curve[size] for size in sizes)


def _capacity_bytes(platform: PlatformProfile, producers: int, flavour: StoreFlavour) -> float:
    law = next((law for law in platform.capacity_law if law.flavour == flavour), None)
    if law is not None:
        return _capacity_by_law(law, producers)
    points = [point for point in platform.capacity if point.flavour == flavour]
    if not points:
        raise UsageError(
            f"platform '{platform.name}' has no capacity Q for stores of flavour '{flavour}'",
            "calibrate with isolated bursts that reach the knee, or add [[capacity]] to the profile",
        )
    return _capacity_between(points, producers)


def _capacity_by_law(law: CapacityLaw, producers: int) -> float:
    match law.law:
        case "constant":
            return law.scale_bytes
        case "linear":
            return law.scale_bytes * producers
        case "power":
            return float(law.scale_bytes * producers ** (law.exponent or 0.0))
        case "saturating":
            return float(law.scale_bytes * -np.expm1(-producers / (law.producers_scale or np.inf)))


def _capacity_between(points: Sequence[CapacityPoint], producers: int) -> float:
    """Linear in K between measured points; outside them the nearest one's value."""
    by_producers = {point.producers: point.bytes for point in points}
    counts = sorted(by_producers)
    return float(np.interp(producers, counts, [by_producers[k] for k in counts]))


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
