"""The four panels of a calibration, as data: gap sweep, its periods, isolated bursts, drain rate.

They follow Figure 3 of the X-Stage paper. Where a run has more curves than stay legible, a few are
chosen by a fixed rule and the panel's note says so; panel (d) shows every point.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.base.number_format import byte_count, duration, rate
from xstage_tune.calibration.result import CalibrationResult, DrainPoints, GapCurve, IsolatedCurve
from xstage_tune.model import burst_gap
from xstage_tune.platforms.schema import CapacityPoint, PlatformProfile
from xstage_tune.report.figure import COLOUR_SLOTS, Axis, Drawing, Figure, Floats, Panel

_GAP = Axis("gap G", "duration_ns", "linear")
_GAP_RULE = "largest K of each flavour, and one of about half"
_ISOLATED_RULE = "largest K of each flavour, one of about half, and the smallest"
_VOLUME = Axis("burst volume V = K*B", "bytes", "log")


def calibration_figure(result: CalibrationResult) -> Figure:
    """The four panels of ``result``."""
    platform = result.platform
    drain = rate(platform.drain.bytes_per_s, platform.drain.ci95)
    return Figure(
        title=f"Remote-store drain of {platform.name}",
        subtitle=f"{platform.gpu.name}, path {platform.path}, R = {drain}",
        panels=(
            _issue_panel(result),
            _period_panel(result),
            _isolated_panel(result),
            _drain_panel(result),
        ),
    )


def _issue_panel(result: CalibrationResult) -> Panel:
    """(a) T_iss against the gap, equation 3 through it, and the local control."""
    drawing = Drawing(_GAP, Axis("issue time T_iss", "duration_ns", "log"))
    bytes_per_s = result.platform.drain.bytes_per_s
    chosen = choose_gap_curves(result.gap_curves)
    for colour, curve in enumerate(chosen):
        label = _curve_label(result, curve.flavour, curve.producers, curve.burst_bytes)
        law = GapLaw(curve, bytes_per_s)
        grid_ns = law.grid_ns()
        drawing.add(f"{label}, equation 3", "line", colour, grid_ns, law.issue_ns(grid_ns))
        drawing.add(f"{label}, local control", "cross", colour, curve.local_gap_ns, curve.local_issue_ns)
        drawing.add(f"{label}, measured", "points", colour, curve.gap_ns, curve.issue_ns)
        if law.recovers:
            corner_ns = np.array([law.recovery_gap_ns])
            drawing.add(f"{label}, G*", "corner", colour, corner_ns, law.issue_ns(corner_ns))
            label += f", G* = {duration(law.recovery_gap_ns)}"
        drawing.explain(label, "points", colour)
    drawing.explain_marks(line="max(T0, V/R - G), eq. 3", corner="G*", cross="local control")
    return drawing.panel("a", "Issue time against gap", choice_note(chosen, result.gap_curves, _GAP_RULE))


def _period_panel(result: CalibrationResult) -> Panel:
    """(b) Period against the gap, the max law through it, and the completion-coupled sum."""
    drawing = Drawing(_GAP, Axis("period T_iss + G", "duration_ns", "linear"))
    bytes_per_s = result.platform.drain.bytes_per_s
    chosen = choose_gap_curves(result.gap_curves)
    for colour, curve in enumerate(chosen):
        label = _curve_label(result, curve.flavour, curve.producers, curve.burst_bytes)
        law = GapLaw(curve, bytes_per_s)
        grid_ns = law.grid_ns()
        coupled_ns = law.completion_coupled_period_ns(grid_ns)
        drawing.add(f"{label}, completion-coupled", "dashed", colour, grid_ns, coupled_ns)
        drawing.add(f"{label}, max law", "line", colour, grid_ns, law.period_ns(grid_ns))
        drawing.add(f"{label}, measured", "points", colour, curve.gap_ns, curve.period_ns)
        drawing.explain(f"{label}, V/R = {duration(law.drain_ns)}", "points", colour)
    drawing.explain_marks(line="max(T0 + G, V/R)", dashed="completion-coupled, G + V/R")
    return drawing.panel("b", "Period against gap", choice_note(chosen, result.gap_curves, _GAP_RULE))


def _isolated_panel(result: CalibrationResult) -> Panel:
    """(c) T_iss of isolated bursts against their volume, equation 7 through it, and the knees."""
    drawing = Drawing(_VOLUME, Axis("isolated issue time T_iss", "duration_ns", "log"))
    chosen = choose_isolated_curves(result.isolated_curves)
    for colour, curve in enumerate(chosen):
        label = _curve_label(result, curve.flavour, curve.producers)
        capacity = _capacity(result.platform, curve)
        volume, law_ns, knee = isolated_law(curve, capacity, result.platform.drain.bytes_per_s)
        drawing.add(f"{label}, equation 7", "line", colour, volume, law_ns)
        drawing.add_split(
            label,
            colour,
            curve.volume_bytes,
            curve.issue_ns,
            apart=curve.held_out,
            names=("fitted", "held out"),
        )
        if knee is not None:
            drawing.add(f"{label}, knee", "corner", colour, volume[knee : knee + 1], law_ns[knee : knee + 1])
        drawing.explain(label + _capacity_text(capacity), "points", colour)
    drawing.explain_marks(line="max(T0, (V - Q)/R), eq. 7", corner="knee", hollow="held out of the fit")
    return drawing.panel("c", "Isolated bursts", choice_note(chosen, result.isolated_curves, _ISOLATED_RULE))


def _drain_panel(result: CalibrationResult) -> Panel:
    """(d) Zero-gap period against the volume for every (K, B), and the line V/R."""
    drawing = Drawing(_VOLUME, Axis("zero-gap period", "duration_ns", "log"))
    bytes_per_s = result.platform.drain.bytes_per_s
    volumes = np.concatenate([np.empty(0), *(points.volume_bytes for points in result.drain_points)])
    if volumes.size:
        ends = np.array([volumes.min(), volumes.max()])
        drained_ns = burst_gap.drain_ns(volume_bytes=ends, drain_bytes_per_s=bytes_per_s)
        drawing.add("V/R", "line", None, ends, drained_ns)
    for colour, (label, points, inside) in enumerate(_bands(result)):
        drawing.add_split(
            label,
            colour,
            points.volume_bytes[inside],
            points.period_ns[inside],
            apart=~points.drain_dominated[inside],
            names=("drain-dominated", "issue-dominated"),
        )
        drawing.explain(label, "points", colour)
    drawing.explain_marks(line=f"V/R, R = {rate(bytes_per_s)}", hollow="issue-dominated, not fitted")
    return drawing.panel("d", "Zero-gap period against volume", "")


def _capacity(platform: PlatformProfile, curve: IsolatedCurve) -> CapacityPoint | None:
    """Q of the curve's flavour and producers, if the fit has it."""
    for capacity in platform.capacity:
        if (capacity.flavour, capacity.producers) == (curve.flavour, curve.producers):
            return capacity
    return None


def _capacity_text(capacity: CapacityPoint | None) -> str:
    if capacity is None:
        return ""
    relation = "=" if capacity.knee_reached else ">="
    return f", Q {relation} {byte_count(capacity.bytes)}"


def _bands(result: CalibrationResult) -> Iterator[tuple[str, DrainPoints, NDArray[np.bool_]]]:
    """Label, points and members of each band of producers, over all flavours."""
    several = len(result.drain_points) > 1
    for points in result.drain_points:
        for low, high in producer_bands(points.producers, COLOUR_SLOTS // len(result.drain_points)):
            span = f"K = {low}" if low == high else f"K = {low} to {high}"
            label = f"{points.flavour} {span}" if several else span
            yield label, points, (points.producers >= low) & (points.producers <= high)


def _curve_label(
    result: CalibrationResult, flavour: StoreFlavour, producers: int, burst_bytes: int | None = None
) -> str:
    """``K = 132, B = 8 KiB``, led by the flavour when the result has several."""
    several = len({issue.flavour for issue in result.platform.issue}) > 1
    burst = "" if burst_bytes is None else f", B = {byte_count(burst_bytes)}"
    return f"{flavour + ' ' if several else ''}K = {producers}{burst}"


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


_GRID_POINTS = 240  # along a curve; its corner is added exactly


class GapLaw:
    """The laws of sections 3.2 to 3.5 for one gap sweep, with the T0 that the fit predicted with."""

    def __init__(self, curve: GapCurve, drain_bytes_per_s: float) -> None:
        self._last_gap_ns = float(curve.gap_ns.max())
        self._path = {
            "volume_bytes": float(curve.producers * curve.burst_bytes),
            "drain_bytes_per_s": drain_bytes_per_s,
        }
        # At the largest gap equation 3 is at T0, or on the branch V/R - G that it never left: either
        # way its least value reproduces the law over the gaps that were swept.
        self._free_issue_ns = float(curve.predicted_issue_ns.min())
        self.drain_ns = float(burst_gap.drain_ns(**self._path))
        self.recovery_gap_ns = float(
            burst_gap.recovery_gap_ns(free_issue_ns=self._free_issue_ns, **self._path)
        )

    @property
    def recovers(self) -> bool:
        """True when G* is inside the sweep, so that its corner was seen."""
        return 0.0 < self.recovery_gap_ns < self._last_gap_ns

    def grid_ns(self) -> Floats:
        grid = np.linspace(0.0, self._last_gap_ns, _GRID_POINTS)
        return np.union1d(grid, [self.recovery_gap_ns]) if self.recovers else grid

    def issue_ns(self, gap_ns: Floats) -> Floats:
        return burst_gap.issue_ns(gap_ns=gap_ns, free_issue_ns=self._free_issue_ns, **self._path)

    def period_ns(self, gap_ns: Floats) -> Floats:
        return burst_gap.steady_period_ns(gap_ns=gap_ns, free_issue_ns=self._free_issue_ns, **self._path)

    def completion_coupled_period_ns(self, gap_ns: Floats) -> Floats:
        return burst_gap.completion_coupled_period_ns(gap_ns=gap_ns, **self._path)


def isolated_law(
    curve: IsolatedCurve, capacity: CapacityPoint | None, drain_bytes_per_s: float
) -> tuple[Floats, Floats, int | None]:
    """Equation 7 as fitted: volumes in ascending order, issue times, and the index of the knee among them.

    T0 is the fit's between the points up to the knee, and from there on the last of them; the knee is
    where that meets ``(V - Q)/R``. Without a knee in the sweep, the predicted points and None.
    """
    order = np.argsort(curve.volume_bytes)
    volume, law_ns = curve.volume_bytes[order], curve.predicted_issue_ns[order]
    if capacity is None or not capacity.knee_reached:
        return volume, law_ns, None
    path = {"drain_bytes_per_s": drain_bytes_per_s, "capacity_bytes": capacity.bytes}
    waiting_ns = burst_gap.isolated_issue_ns(free_issue_ns=0.0, volume_bytes=volume, **path)
    # A profile's numbers are rounded, the predicted times are not.
    free = waiting_ns < law_ns * (1 - 1e-6)
    if not free[0] or free.all():
        return volume, law_ns, None
    below = int(np.argmin(free))  # volumes up to the knee
    knee_bytes = capacity.bytes + drain_bytes_per_s * law_ns[below - 1] / 1e9
    grid = np.union1d(np.geomspace(volume[0], volume[-1], _GRID_POINTS), [*volume, knee_bytes])
    free_ns = np.interp(grid, volume[:below], law_ns[:below])
    law = burst_gap.isolated_issue_ns(free_issue_ns=free_ns, volume_bytes=grid, **path)
    return grid, law, int(np.searchsorted(grid, knee_bytes))
