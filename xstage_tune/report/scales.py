"""From data to axes: the range shown, the place of a value in it, and ticks at round values with units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from xstage_tune.base.number_format import BYTE_UNITS, DURATION_UNITS, Unit, plain, unit_for
from xstage_tune.report.figure import Axis, Floats, Panel, Quantity

_UNITS: dict[Quantity, Sequence[Unit]] = {
    "duration_ns": DURATION_UNITS,
    "bytes": BYTE_UNITS,
    "count": (Unit("", 1.0),),
    "fraction": (Unit("%", 0.01),),
}
_MARGIN = 0.04  # of the range shown, beyond the outermost point
#: The most that a symlog axis shows is so many times its linear part: smaller values are next to nothing.
_MOST_OF_LINEAR_PART = 1e5


class Tick(NamedTuple):
    """A labelled value on an axis."""

    value: float
    label: str


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis with its range ``low < high``; a ``symlog`` one is linear up to ``linear_to`` from zero."""

    axis: Axis
    low: float
    high: float
    linear_to: float = 0.0

    def fraction(self, values: Floats) -> Floats:
        """Place of each value along the axis: 0 at ``low``, 1 at ``high``; same shape as ``values``."""
        low, high, places = self.low, self.high, values
        if self.axis.scale == "log":
            low, high, places = math.log(low), math.log(high), np.log(values)
        if self.axis.scale == "symlog":
            low, high = _symlog(np.array([low, high]), self.linear_to).tolist()
            places = _symlog(values, self.linear_to)
        return np.asarray((places - low) / (high - low), dtype=np.float64)

    def ticks(self, most: int) -> tuple[Tick, ...]:
        """At most ``most`` (at least 2) ticks at round values inside the range."""
        units = _UNITS[self.axis.quantity]
        if self.axis.scale == "log":
            values = _log_values(self.low, self.high, most, binary=self.axis.quantity == "bytes")
            if len(values) >= 2:
                return tuple(Tick(value, _with_unit(value, units)) for value in values)
        if self.axis.scale == "symlog":
            values = _symlog_values(self.low, self.high, self.linear_to, most)
            return tuple(Tick(value, _signed_with_unit(value, units)) for value in values)
        unit = unit_for(self.high, units)
        whole = self.axis.quantity == "count"
        values, decimals = _linear_values(self.low / unit.size, self.high / unit.size, most, whole=whole)
        if whole:
            return tuple(Tick(value, f"{value:,.0f}") for value in values)
        suffix = f" {unit.symbol}" if self.axis.scale == "log" else ""
        return tuple(Tick(value * unit.size, plain(value, decimals) + suffix) for value in values)

    @property
    def title(self) -> str:
        """The axis label, with the unit that its tick labels leave out."""
        if self.axis.scale == "symlog":
            return f"{self.axis.label}, linear below {_with_unit(self.linear_to, _UNITS[self.axis.quantity])}"
        symbol = unit_for(self.high, _UNITS[self.axis.quantity]).symbol
        return f"{self.axis.label} ({symbol})" if symbol and self.axis.scale == "linear" else self.axis.label


def panel_scales(panel: Panel) -> tuple[Scale, Scale]:
    """The x and y scales that show every point of ``panel``."""
    return (
        axis_scale(panel.x, [series.x for series in panel.series]),
        axis_scale(panel.y, [series.y for series in panel.series]),
    )


def axis_scale(axis: Axis, parts: Sequence[Floats]) -> Scale:
    """The scale that shows all of ``parts``, or the limits that ``axis`` asks for."""
    if axis.limits is not None:
        return Scale(axis, *axis.limits)
    values = np.concatenate([*parts, np.empty(0)])
    if axis.scale == "log":
        low, high = (float(values.min()), float(values.max())) if values.size else (1.0, 10.0)
        margin = max((high / low) ** _MARGIN, 1.0 if high > low * 1.5 else 1.5)
        return Scale(axis, low / margin, high * margin)
    if axis.scale == "symlog":
        return _symlog_scale(axis, values)
    low, high = min(0.0, float(values.min(initial=0.0))), float(values.max(initial=0.0))
    return Scale(axis, low, high + _MARGIN * (high - low) if high > low else low + 1.0)


def _symlog_scale(axis: Axis, values: Floats) -> Scale:
    """Linear up to the power of ten below the least that is not zero, but over a few decades at most.

    Nor below a thousandth of the smallest unit, which labels do not tell from zero.
    """
    sizes = np.abs(values[values != 0])
    most = float(sizes.max(initial=1.0))
    finest = 1e-3 * min(unit.size for unit in _UNITS[axis.quantity])
    least = max(float(sizes.min(initial=most)), most / _MOST_OF_LINEAR_PART, finest)
    linear_to = 10.0 ** math.floor(math.log10(least))
    ends = _symlog(
        np.array([min(0.0, float(values.min(initial=0.0))), float(values.max(initial=0.0))]), linear_to
    )
    margin = _MARGIN * max(float(ends[1] - ends[0]), 1.0)
    low, high = ends[0] - margin * (ends[0] < 0), ends[1] + margin
    return Scale(axis, _from_symlog(float(low), linear_to), _from_symlog(float(high), linear_to), linear_to)


def _symlog(values: Floats, linear_to: float) -> Floats:
    """Places in decades: one from zero to ``linear_to``, and one for each tenfold beyond it."""
    part = np.abs(values) / linear_to
    return np.sign(values) * np.where(part <= 1, part, 1 + np.log10(np.maximum(part, 1)))


def _from_symlog(place: float, linear_to: float) -> float:
    size = abs(place)
    return math.copysign(linear_to * (size if size <= 1 else 10 ** (size - 1)), place)


def _symlog_values(low: float, high: float, linear_to: float, most: int) -> list[float]:
    """Zero, and powers of ten from ``linear_to`` on to either side, every so many of them."""
    decades = [math.floor(math.log10(max(abs(end), linear_to) / linear_to) + 1e-9) for end in (low, high)]
    for step in range(1, max(decades) + 2):
        sizes = [linear_to * 10.0**power for power in range(0, max(decades) + 1, step)]
        values = [*(-size for size in reversed(sizes)), 0.0, *sizes]
        inside = [value for value in values if low * (1 + 1e-9) <= value <= high * (1 + 1e-9)]
        if len(inside) <= most:
            return inside
    return [0.0]


def _linear_values(low: float, high: float, most: int, *, whole: bool) -> tuple[list[float], int]:
    """Multiples of 1, 2 or 5 times a power of ten within [low, high], and the decimals they need."""
    exponent = math.floor(math.log10((high - low) / most))
    if whole:
        exponent = max(exponent, 0)
    steps = ((mantissa * 10.0**power, power) for power in (exponent, exponent + 1) for mantissa in (1, 2, 5))
    indices, step, power = next(
        (indices, step, power) for step, power in steps if len(indices := _multiples(step, low, high)) <= most
    )
    return [index * step for index in indices], max(-power, 0)


def _multiples(step: float, low: float, high: float) -> range:
    """The integers n with low <= n * step <= high, up to rounding."""
    return range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)


def _log_values(low: float, high: float, most: int, *, binary: bool) -> list[float]:
    """Powers of two (``binary``) or of ten in [low, high]; 1-2-5 or 1-3 multiples where decades are few."""
    if not binary:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        for mantissas in ((1, 2, 5), (1, 3)):
            fine = [mantissa * 10.0**power for power in range(first, last + 1) for mantissa in mantissas]
            inside = [value for value in fine if low <= value <= high]
            if len(inside) <= most:
                return inside
    base = 2.0 if binary else 10.0
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    step = max(1, math.ceil((last - first + 1) / most))
    aligned = [power for power in range(first, last + 1) if power % step == 0]
    powers = aligned if len(aligned) >= 2 else range(first, last + 1, step)
    return [base**power for power in powers]


def _signed_with_unit(value: float, units: Sequence[Unit]) -> str:
    return "0" if value == 0 else ("-" if value < 0 else "") + _with_unit(abs(value), units)


def _with_unit(value: float, units: Sequence[Unit]) -> str:
    unit = unit_for(value, units)
    if not unit.symbol:
        return f"{value:,.10g}"
    return f"{plain(value / unit.size, 3)} {unit.symbol}".replace(" %", "%")
