"""Where configs of a workload stand on the platform's law: equations 1 to 5 at their own burst and gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xstage_tune.audit.bursts import BurstTerms
from xstage_tune.audit.run import Audit
from xstage_tune.model import burst_gap
from xstage_tune.report.drawing import Drawing
from xstage_tune.report.figure import Axis, Floats, Panel, Plate
from xstage_tune.report.format import byte_count, duration, rate
from xstage_tune.report.study_case import Chosen

_GAP = Axis("gap G", "duration_ns", "linear")
_GRID_POINTS = 240
_BEYOND = 1.15  # how far the law is drawn beyond the last point


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """An audited config."""

    chosen: Chosen
    audit: Audit

    @property
    def gap_ns(self) -> float:
        return self.audit.gap_ns.value

    @property
    def label(self) -> str:
        return self.chosen.label


def operating_plate(points: Sequence[OperatingPoint]) -> Plate:
    """Issue time and period against the gap for each distinct burst, and each config's place on them."""
    drain = points[0].audit.burst.drain_bytes_per_s.value
    return Plate(
        title="The kernel on the platform's law",
        subtitle=f"steady state, closed forms; {points[0].audit.platform.name}, R = {rate(drain)}",
        panels=(_issue_panel(points), _period_panel(points)),
    )


def _issue_panel(points: Sequence[OperatingPoint]) -> Panel:
    drawing = Drawing(_GAP, Axis("issue time T_iss", "duration_ns", "linear"))
    for owner in _distinct_bursts(points):
        burst = owner.audit.burst
        gaps_ns = _gaps(points, burst)
        drawing.add(f"law of {owner.label}", "line", owner.chosen.colour, gaps_ns, _issue_ns(burst, gaps_ns))
        corner = np.array([burst.recovery_gap_ns.value])
        drawing.add(f"G* of {owner.label}", "corner", owner.chosen.colour, corner, _issue_ns(burst, corner))
        drawing.explain(f"{_burst_label(burst)}, G* = {duration(corner[0])}", "corner", owner.chosen.colour)
    for point in points:
        at = np.array([point.gap_ns])
        label = f"{point.label}, G = {duration(point.gap_ns)}"
        drawing.add_explained(label, "points", point.chosen.colour, at, _issue_ns(point.audit.burst, at))
    drawing.explain_marks(line="max(T0, V/R - G), eq. 3")
    return drawing.panel("a", "Issue time against gap")


def _period_panel(points: Sequence[OperatingPoint]) -> Panel:
    drawing = Drawing(_GAP, Axis("period T_iss + G", "duration_ns", "linear"))
    for owner in _distinct_bursts(points):
        burst = owner.audit.burst
        gaps_ns = _gaps(points, burst)
        coupled_ns = burst_gap.completion_coupled_period_ns(
            gap_ns=gaps_ns,
            volume_bytes=burst.volume_bytes.value,
            drain_bytes_per_s=burst.drain_bytes_per_s.value,
        )
        period_ns = gaps_ns + _issue_ns(burst, gaps_ns)
        drawing.add(f"completion-coupled, {owner.label}", "dashed", owner.chosen.colour, gaps_ns, coupled_ns)
        drawing.add(f"max law of {owner.label}", "line", owner.chosen.colour, gaps_ns, period_ns)
        label = f"{_burst_label(burst)}, V/R = {duration(burst.drain_ns.value)}"
        drawing.explain(label, "line", owner.chosen.colour)
    for point in points:
        at = np.array([point.gap_ns])
        period_ns = at + _issue_ns(point.audit.burst, at)
        label = f"{point.label}, {duration(period_ns[0])}"
        drawing.add_explained(label, "points", point.chosen.colour, at, period_ns)
    drawing.explain_marks(line="max(T0 + G, V/R)", dashed="completion-coupled, G + V/R")
    return drawing.panel("b", "Period against gap")


def _distinct_bursts(points: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """The first point of each distinct (K, B, T0)."""
    first: dict[tuple[float, ...], OperatingPoint] = {}
    for point in points:
        burst = point.audit.burst
        key = (burst.producers, burst.burst_bytes.value, burst.free_issue_ns.value)
        first.setdefault(key, point)
    return list(first.values())


def _gaps(points: Sequence[OperatingPoint], burst: BurstTerms) -> Floats:
    corner_ns = burst.recovery_gap_ns.value
    last_ns = _BEYOND * max([burst.drain_ns.value, *(point.gap_ns for point in points)])
    return np.union1d(np.linspace(0.0, last_ns, _GRID_POINTS), [corner_ns])


def _issue_ns(burst: BurstTerms, gap_ns: Floats) -> Floats:
    return burst_gap.issue_ns(
        gap_ns=gap_ns,
        free_issue_ns=burst.free_issue_ns.value,
        volume_bytes=burst.volume_bytes.value,
        drain_bytes_per_s=burst.drain_bytes_per_s.value,
    )


def _burst_label(burst: BurstTerms) -> str:
    return f"K = {burst.producers}, B = {byte_count(burst.burst_bytes.value)}"
