"""Where configs of a workload stand on the platform's law: equations 1 to 5 at their own burst and gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xstage_tune.audit.run import Audit
from xstage_tune.base.number_format import byte_count, duration, rate
from xstage_tune.estimates.bursts import BurstTerms
from xstage_tune.estimates.schedule import visible_after
from xstage_tune.model import burst_gap
from xstage_tune.report.drawing import Drawing
from xstage_tune.report.figure import Axis, Floats, Panel, Plate
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

    def issue_ns(self, gap_ns: Floats) -> Floats:
        """Equation 3 at other gaps, of which paced stores take the same part as of its own."""
        burst = self.audit.burst
        pace = gap_ns / self.gap_ns if self.chosen.paces_stores else np.ones_like(gap_ns)
        return burst_gap.issue_ns(
            gap_ns=gap_ns,
            free_issue_ns=burst.free_issue_ns.value * pace,
            volume_bytes=burst.volume_bytes.value,
            drain_bytes_per_s=burst.drain_bytes_per_s.value,
        )

    @property
    def bend_ns(self) -> float:
        """The gap at which equation 3 bends: G*, but of paced stores, whose T0 grows with the gap, sooner."""
        burst = self.audit.burst
        if not self.chosen.paces_stores:
            return burst.recovery_gap_ns.value
        return burst.drain_ns.value / (1.0 + burst.free_issue_ns.value / self.gap_ns)

    def period_ns(self, gap_ns: Floats) -> Floats:
        """T_iss + G; where others store beside the next mainloop, the longest of G, T_iss and V/R."""
        if not self.chosen.hands_stores_over:
            return gap_ns + self.issue_ns(gap_ns)
        return np.maximum(np.maximum(gap_ns, self.audit.burst.drain_ns.value), self.issue_ns(gap_ns))

    def coupled_period_ns(self, gap_ns: Floats) -> Floats:
        """The same of an issuer that waits for completion; T_lat counts where others store."""
        burst = self.audit.burst
        if self.chosen.hands_stores_over:
            return np.maximum(gap_ns, visible_after(burst).value)
        return burst_gap.completion_coupled_period_ns(
            gap_ns=gap_ns,
            volume_bytes=burst.volume_bytes.value,
            drain_bytes_per_s=burst.drain_bytes_per_s.value,
        )


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
        gaps_ns = _gaps(points, owner)
        drawing.add(f"law of {owner.label}", "line", owner.chosen.colour, gaps_ns, owner.issue_ns(gaps_ns))
        name = "bend" if owner.chosen.paces_stores else "G*"
        corner = np.array([owner.bend_ns])
        drawing.add(f"{name} of {owner.label}", "corner", owner.chosen.colour, corner, owner.issue_ns(corner))
        label = f"{_burst_label(burst)}, {name} = {duration(corner[0])}"
        drawing.explain(label, "corner", owner.chosen.colour)
    for point in points:
        at = np.array([point.gap_ns])
        label = f"{point.label}, G = {duration(point.gap_ns)}"
        drawing.add_explained(label, "points", point.chosen.colour, at, point.issue_ns(at))
    paced = "; paced stores: T0 is the pace" if any(point.chosen.paces_stores for point in points) else ""
    drawing.explain_marks(line=f"max(T0, V/R - G), eq. 3{paced}")
    return drawing.panel("a", "Issue time against gap")


def _period_panel(points: Sequence[OperatingPoint]) -> Panel:
    drawing = Drawing(_GAP, Axis("period", "duration_ns", "linear"))
    for owner in _distinct_bursts(points):
        burst = owner.audit.burst
        gaps_ns = _gaps(points, owner)
        drawing.add(
            f"completion-coupled, {owner.label}",
            "dashed",
            owner.chosen.colour,
            gaps_ns,
            owner.coupled_period_ns(gaps_ns),
        )
        drawing.add(
            f"max law of {owner.label}", "line", owner.chosen.colour, gaps_ns, owner.period_ns(gaps_ns)
        )
        label = f"{_burst_label(burst)}, V/R = {duration(burst.drain_ns.value)}"
        drawing.explain(label, "line", owner.chosen.colour)
    for point in points:
        at = np.array([point.gap_ns])
        period_ns = point.period_ns(at)
        label = f"{point.label}, {duration(period_ns[0])}"
        drawing.add_explained(label, "points", point.chosen.colour, at, period_ns)
    drawing.explain_marks(
        line=_laws(points, "max(T0 + G, V/R)", "max(G, V/R)"),
        dashed=f"completion-coupled, {_laws(points, 'G + V/R', 'max(G, V/R + T_lat)')}",
    )
    return drawing.panel("b", "Period against gap")


def _distinct_bursts(points: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """The first point of each distinct (K, B, T0) and way of storing."""
    first: dict[tuple[float, ...], OperatingPoint] = {}
    for point in points:
        burst = point.audit.burst
        ways = (point.chosen.hands_stores_over, point.chosen.paces_stores)
        key = (burst.producers, burst.burst_bytes.value, burst.free_issue_ns.value, *ways)
        first.setdefault(key, point)
    return list(first.values())


def _gaps(points: Sequence[OperatingPoint], owner: OperatingPoint) -> Floats:
    """Gaps at which to draw a law: evenly, and where it bends."""
    burst = owner.audit.burst
    last_ns = _BEYOND * max([burst.drain_ns.value, *(point.gap_ns for point in points)])
    return np.union1d(np.linspace(0.0, last_ns, _GRID_POINTS), [owner.bend_ns, burst.recovery_gap_ns.value])


def _laws(points: Sequence[OperatingPoint], own: str, handed_over: str) -> str:
    """Which law lines show: of configs that store themselves, and of those whose stores others issue."""
    found = {point.chosen.hands_stores_over for point in points}
    named = [own] if False in found else []
    if True in found:
        named.append(f"handed over: {handed_over}" if named else handed_over)
    return "; ".join(named)


def _burst_label(burst: BurstTerms) -> str:
    return f"K = {burst.producers}, B = {byte_count(burst.burst_bytes.value)}"
