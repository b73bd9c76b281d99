"""Which curves a panel shows when a run has more than stay legible."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from xstage_tune.calibration.result import GapCurve, IsolatedCurve

_Curve = TypeVar("_Curve", GapCurve, IsolatedCurve)


def choose_gap_curves(curves: Sequence[GapCurve]) -> list[GapCurve]:
    """The curve of most producers for each flavour, and for the first flavour one of about half as many."""
    chosen: list[GapCurve] = []
    for group in _by_flavour(curves):
        places = {0} if chosen else {0, _mid(group)}
        chosen += [group[place] for place in sorted(places)]
    return chosen


def choose_isolated_curves(curves: Sequence[IsolatedCurve]) -> list[IsolatedCurve]:
    """As :func:`choose_gap_curves`, and also the first flavour's curve of fewest producers."""
    chosen: list[IsolatedCurve] = []
    for group in _by_flavour(curves):
        places = {0} if chosen else {0, _mid(group), len(group) - 1}
        chosen += [group[place] for place in sorted(places)]
    return chosen


def choice_note(chosen: Sequence[_Curve], curves: Sequence[_Curve], rule: str) -> str:
    """Says how many of the measured curves are drawn, and by which rule; empty when all are."""
    return "" if len(chosen) == len(curves) else f"{len(chosen)} of {len(curves)} curves shown: {rule}"


def producer_bands(producers: NDArray[np.int64], most: int) -> list[tuple[int, int]]:
    """The distinct producer counts in at most ``most`` contiguous bands, as (first, last)."""
    distinct = np.unique(producers)
    parts = np.array_split(distinct, min(most, distinct.size)) if distinct.size else []
    return [(int(part[0]), int(part[-1])) for part in parts]


def _by_flavour(curves: Iterable[_Curve]) -> list[list[_Curve]]:
    """The curves that have points, by flavour in order of appearance, each list from the largest down."""
    groups: dict[str, list[_Curve]] = {}
    for curve in curves:
        if curve.issue_ns.size:
            groups.setdefault(curve.flavour, []).append(curve)
    return [sorted(group, key=_size, reverse=True) for group in groups.values()]


def _mid(curves: Sequence[_Curve]) -> int:
    """Place in ``curves`` (largest first) of the one, other than the first, nearest to half its producers."""
    half = curves[0].producers / 2
    distance = [abs(math.log(curve.producers / half)) for curve in curves]
    return min(range(1, len(curves)), key=distance.__getitem__, default=0)


def _size(curve: GapCurve | IsolatedCurve) -> tuple[int, int]:
    return curve.producers, curve.burst_bytes if isinstance(curve, GapCurve) else 0
