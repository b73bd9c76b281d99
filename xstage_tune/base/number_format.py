"""Numbers as engineers read them: one value, one unit, the digits that the interval supports.

Every function takes SI base units or nanoseconds as its name says and returns ASCII text, so that
output survives pipes, ``grep`` and terminals without Unicode. A value that is absent or not
finite prints as :data:`ABSENT`, never as ``nan``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

#: Stands for a number that is not known.
ABSENT = "-"

_SIGNIFICANT_DIGITS = 4
_MAX_DECIMALS = 4


class Unit(NamedTuple):
    """A unit symbol and its size in the base unit."""

    symbol: str
    size: float


#: Base unit: nanosecond.
DURATION_UNITS = (Unit("ns", 1.0), Unit("us", 1e3), Unit("ms", 1e6), Unit("s", 1e9))
#: Base unit: byte.
BYTE_UNITS = (Unit("B", 1.0), Unit("KiB", 2.0**10), Unit("MiB", 2.0**20), Unit("GiB", 2.0**30))
#: Base unit: byte per second; decimal, as links and drain rates are quoted.
RATE_UNITS = (Unit("MB/s", 1e6), Unit("GB/s", 1e9))

Interval = tuple[float, float]


def duration(ns: float | None, ci95: Interval | None = None) -> str:
    """A time given in ns, e.g. ``530.2 ns`` or ``19.42 us [19.40, 19.45]``."""
    return _quantity(ns, DURATION_UNITS, ci95)


def byte_count(count: float | None, ci95: Interval | None = None) -> str:
    """A size in bytes, e.g. ``32 KiB`` or ``4.21 MiB [4.15, 4.26]``."""
    return _quantity(count, BYTE_UNITS, ci95, trim=True)


def rate(bytes_per_s: float | None, ci95: Interval | None = None) -> str:
    """A rate in bytes/s, e.g. ``52.61 GB/s [52.58, 52.64]``."""
    return _quantity(bytes_per_s, RATE_UNITS, ci95)


def percent(value_pct: float | None, decimals: int = 2) -> str:
    """A value already in percent, e.g. ``1.37%``; what rounds to nothing has no sign."""
    if value_pct is None or _absent(value_pct):
        return ABSENT
    return f"{round(value_pct, decimals) + 0.0:.{decimals}f}%"


def signed_percent(value_pct: float) -> str:
    """An error, e.g. ``+1.4%``; what rounds to nothing has no sign, and one that is no number is absent."""
    if _absent(value_pct):
        return ABSENT
    rounded = round(value_pct, 1)
    return f"{rounded:+.1f}%" if rounded else "0.0%"


def share(fraction: float | None) -> str:
    """A part of one in percent, e.g. ``12.3%``."""
    return percent(None if fraction is None else 100 * fraction, 1)


def with_error(shown: str, error_pct: float | None) -> str:
    """A predicted figure and how far it is above what it predicts, e.g. ``19.42 us [+1.4%]``."""
    return shown if error_pct is None else f"{shown} [{signed_percent(error_pct)}]"


def difference(time_ns: float | None) -> str:
    """A difference of two times in ns, without the noise of its last digits."""
    return duration(None if time_ns is None else round(time_ns, 3) + 0.0)


def count(number: float) -> str:
    """A number of things, e.g. ``65,536``."""
    return f"{number:,.0f}"


def factor(value: float | None) -> str:
    """A ratio to a reference, e.g. ``0.92x``."""
    return ABSENT if _absent(value) else f"{value:.2f}x"


def id_ranges(ids: Iterable[int], separator: str = ",") -> str:
    """Integer ids as ranges in ascending order: ``0-5,12``; :data:`ABSENT` when there are none."""
    runs: list[list[int]] = []
    for number in sorted(set(ids)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    if not runs:
        return ABSENT
    return separator.join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def unit_for(magnitude: float, units: Sequence[Unit]) -> Unit:
    """The largest of ``units`` in which ``magnitude``, as printed, is at least one; else the smallest."""
    for unit in reversed(units[1:]):
        if float(f"{abs(magnitude) / unit.size:.{_SIGNIFICANT_DIGITS}g}") >= 1.0:
            return unit
    return units[0]


def plain(number: float, decimals: int) -> str:
    """``number`` in fixed point without trailing zeros: ``2.5``, ``10``; never ``-0``."""
    text = f"{number:.{decimals}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _quantity(
    value: float | None, units: Sequence[Unit], ci95: Interval | None, *, trim: bool = False
) -> str:
    """``value`` in the unit that suits it, with ``ci95`` in the same unit; ``trim`` drops trailing zeros."""
    if value is None or _absent(value):
        return ABSENT
    unit = unit_for(value, units)
    scaled = value / unit.size
    if ci95 is None or _absent(ci95[0]) or _absent(ci95[1]):
        decimals = _decimals(scaled)
        number = plain(scaled, decimals) if trim or scaled == 0 else f"{scaled:.{decimals}f}"
        return f"{number} {unit.symbol}"
    low, high = (bound / unit.size for bound in ci95)
    decimals = _interval_decimals(scaled, (high - low) / 2)
    return f"{scaled:.{decimals}f} {unit.symbol} [{low:.{decimals}f}, {high:.{decimals}f}]"


def _absent(value: float | None) -> bool:
    return value is None or not math.isfinite(value)


def _exponent(value: float) -> int:
    """Decimal exponent of ``value`` once rounded to the digits we print; 0 for zero."""
    return int(f"{abs(value):.{_SIGNIFICANT_DIGITS - 1}e}".split("e")[1]) if value else 0


def _decimals(value: float) -> int:
    return min(max(_SIGNIFICANT_DIGITS - 1 - _exponent(value), 0), _MAX_DECIMALS)


def _interval_decimals(value: float, half_width: float) -> int:
    """Decimals for the half width to one digit, two if it begins with 1, and three figures of the value.

    At most one figure more than a value without an interval has: an interval of repeated identical
    readings is no precision.
    """
    if half_width <= 0:
        return _decimals(value)
    needed = max(-_exponent(half_width / 2), _SIGNIFICANT_DIGITS - 2 - _exponent(value))
    return min(max(needed, 0), _decimals(value) + 1, _MAX_DECIMALS)


def counted(count: int, noun: str) -> str:
    """``1 rank``, ``8 ranks``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
