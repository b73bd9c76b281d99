"""T0(K, B) and Q(K) of a platform between and beyond its calibrated points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xstage_tune.base.errors import UsageError
from xstage_tune.model.checks import Floats, positive

if TYPE_CHECKING:
    from xstage_tune.base.fabric import StoreFlavour
    from xstage_tune.platforms.schema import CapacityLaw, IssuePoint, PlatformProfile


def issue_ns(
    profile: PlatformProfile, flavour: StoreFlavour, producers: float, burst_bytes: ArrayLike
) -> Floats:
    """T0: issue time without backpressure of bursts of ``burst_bytes`` by each of ``producers``.

    Linear between calibrated points, first in burst bytes and then in producers, and never falling as
    bursts grow. Beyond the points:

    - bursts above the largest one continue the line through the last two points;
    - bursts below the smallest one continue the line through the first two, but stay at or above the
      smallest point scaled by bytes, so that T0 remains positive;
    - with a single point T0 is proportional to bytes (a constant issue rate per producer);
    - producers outside the calibrated counts take the nearest count's curve (T0 hardly depends on K).

    Args:
        burst_bytes: B, scalar or array; the result has its shape.

    Raises:
        UsageError: the profile has no issue point of this flavour.
        ValueError: an argument is not positive.
    """
    points = [point for point in profile.issue if point.flavour == flavour]
    if not points:
        flavours = sorted({point.flavour for point in profile.issue})
        raise UsageError(
            f"platform '{profile.name}' has no issue times for store flavour '{flavour}'",
            f"it has {', '.join(flavours)}; calibrate with --store-flavour {flavour}",
        )
    size = positive("burst_bytes", burst_bytes)
    count = float(positive("producers", producers))
    counts = sorted({point.producers for point in points})
    position = float(np.interp(count, counts, range(len(counts))))
    low = int(position)

    def curve(at: int) -> Floats:
        return _issue_curve([point for point in points if point.producers == counts[at]], size)

    return curve(low) if position == low else curve(low) + (position - low) * (curve(low + 1) - curve(low))


def capacity_bytes(profile: PlatformProfile, flavour: StoreFlavour, producers: ArrayLike) -> Floats:
    """Q(K): bytes that K producers may have outstanding.

    The profile's law where it has one. Otherwise linear between the knees that were reached; below
    the fewest producers in proportion to K, above the most constant: both err to a smaller capacity,
    since Q grows with K and less than linearly.

    Args:
        producers: K, scalar or array; the result has its shape.

    Raises:
        UsageError: the profile has neither a law nor a reached knee of this flavour.
        ValueError: an argument is not positive.
    """
    for law in profile.capacity_law:
        if law.flavour == flavour:
            return capacity_law_bytes(law, producers)
    reached = (point for point in profile.capacity if point.flavour == flavour and point.knee_reached)
    knees = sorted(reached, key=lambda point: point.producers)
    if not knees:
        raise UsageError(
            f"platform '{profile.name}' has no outstanding capacity Q for store flavour '{flavour}'",
            f"calibrate it: xstage-tune calibrate --path {profile.path} --store-flavour {flavour}",
        )
    at = [0.0, *(point.producers for point in knees)]
    return np.interp(positive("producers", producers), at, [0.0, *(point.bytes for point in knees)])


def capacity_law_bytes(law: CapacityLaw, producers: ArrayLike) -> Floats:
    """Q(K) by one of the laws that :class:`~xstage_tune.platforms.schema.CapacityLaw` defines.

    Raises:
        ValueError: a count is not positive.
    """
    count = positive("producers", producers)
    if law.law == "saturating" and law.producers_scale is not None:
        fill = -np.expm1(-count / law.producers_scale)
    elif law.law == "power" and law.exponent is not None:
        fill = count**law.exponent
    else:
        fill = count if law.law == "linear" else np.ones_like(count)
    return law.scale_bytes * fill


def _issue_curve(points: Sequence[IssuePoint], size: Floats) -> Floats:
    """T0 of one producer count over burst bytes."""
    points = sorted(points, key=lambda point: point.burst_bytes)
    at = np.array([point.burst_bytes for point in points], dtype=np.float64)
    ns = np.maximum.accumulate([point.ns for point in points])
    proportional: Floats = ns[0] * size / at[0]
    if at.size == 1:
        return proportional
    first, last = (ns[1] - ns[0]) / (at[1] - at[0]), (ns[-1] - ns[-2]) / (at[-1] - at[-2])
    below = np.maximum(ns[0] + first * (size - at[0]), proportional)
    above = ns[-1] + last * (size - at[-1])
    curve: Floats = np.select([size < at[0], size > at[-1]], [below, above], np.interp(size, at, ns))
    return curve


def preferred_flavour(platform: PlatformProfile) -> StoreFlavour:
    """The store flavour that the platform has times for; register stores where it has both."""
    flavours = {point.flavour for point in platform.issue}
    return "st.v4" if "st.v4" in flavours else "tma"
