"""Figures of a study: configs on the platform's law, the search and its cuts, spans, residuals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from xstage_tune.audit.run import Audit
from xstage_tune.base.number_format import byte_count, count, duration, percent, rate, share
from xstage_tune.estimates.bursts import BurstTerms
from xstage_tune.estimates.schedule import visible_after
from xstage_tune.experiments.study import Case, Residuals
from xstage_tune.families.workload import Workload
from xstage_tune.model import burst_gap
from xstage_tune.report.figure import Axis, Bars, Drawing, Fill, Floats, Panel, Plate, Track, TrackPanel
from xstage_tune.report.tables import Column, Columns, TableData, number, table
from xstage_tune.search.result import Cut, SearchResult
from xstage_tune.search.study_case import WINNER, WINNER_PLACE, Chosen, StudyCase

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
        drawing.add(f"law of {owner.label}", "line", owner.chosen.place, gaps_ns, owner.issue_ns(gaps_ns))
        name = "bend" if owner.chosen.paces_stores else "G*"
        corner = np.array([owner.bend_ns])
        drawing.add(f"{name} of {owner.label}", "corner", owner.chosen.place, corner, owner.issue_ns(corner))
        label = f"{_burst_label(burst)}, {name} = {duration(corner[0])}"
        drawing.explain(label, "corner", owner.chosen.place)
    for point in points:
        at = np.array([point.gap_ns])
        label = f"{point.label}, G = {duration(point.gap_ns)}"
        drawing.add_explained(label, "points", point.chosen.place, at, point.issue_ns(at))
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
            owner.chosen.place,
            gaps_ns,
            owner.coupled_period_ns(gaps_ns),
        )
        drawing.add(
            f"max law of {owner.label}", "line", owner.chosen.place, gaps_ns, owner.period_ns(gaps_ns)
        )
        label = f"{_burst_label(burst)}, V/R = {duration(burst.drain_ns.value)}"
        drawing.explain(label, "line", owner.chosen.place)
    for point in points:
        at = np.array([point.gap_ns])
        period_ns = point.period_ns(at)
        label = f"{point.label}, {duration(period_ns[0])}"
        drawing.add_explained(label, "points", point.chosen.place, at, period_ns)
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


_CUT_STYLES: tuple[tuple[str, Fill, int | None], ...] = (
    ("infeasible", "pale", None),
    ("bounded", "solid", 3),
    ("ranked last", "solid", 4),
)


def history_plate(study: StudyCase) -> Plate:
    """The history beside the cuts."""
    result = study.result
    return Plate(
        title="Search history and cuts",
        subtitle=f"{result.evaluations:,} configs on {result.device}; {result.sampler}, seed {result.seed}",
        panels=(_history(study), _cuts(result)),
    )


def cuts_table(result: SearchResult) -> TableData:
    """What removed configs before they ran, with the numbers behind it."""
    total = _space_size(result)
    columns: Columns[Cut] = (
        Column("cut", lambda cut: cut.reason),
        number("configs", lambda cut: cut.configs, count),
        number("share", lambda cut: cut.configs / max(1, total), share),
        Column("numbers", lambda cut: cut.detail),
    )
    rows = (*result.cuts, Cut("evaluated", result.evaluations, ""))
    return table(f"What removed the other {total - result.evaluations:,} configs", columns, rows)


def _history(study: StudyCase) -> Panel:
    result, evaluations = study.result, study.evaluations
    # A stall may be zero, which a logarithmic axis cannot show.
    axis = Axis(
        f"{result.objective} of a config", "duration_ns", "log" if result.objective == "latency" else "linear"
    )
    drawing = Drawing(Axis("evaluation", "count", "linear"), axis)
    objective_ns = np.array([evaluation.objective_ns for evaluation in evaluations])
    number = np.arange(1.0, objective_ns.size + 1)
    if result.bound_ns > 0:
        edges = np.array([0.0, number.size + 1.0])
        label = f"lower bound, {duration(result.bound_ns)}"
        drawing.add_explained(label, "dashed", None, edges, np.full(2, result.bound_ns))
    if number.size:
        best_ns = np.minimum.accumulate(objective_ns)
        steps, levels = np.repeat(number, 2)[1:], np.repeat(best_ns, 2)[:-1]
        label = f"best so far, {duration(best_ns[-1])}"
        drawing.add_explained(label, "line", WINNER_PLACE, steps, levels)
    baselines = [one for one in study.chosen() if one.name != WINNER]
    known = {one.config for one in baselines}
    other = np.array([evaluation.config not in known for evaluation in evaluations], np.bool_)
    drawing.add_explained("evaluated", "hollow", WINNER_PLACE, number[other], objective_ns[other])
    for one in baselines:
        mine = np.array([evaluation.config == one.config for evaluation in evaluations], np.bool_)
        drawing.add_explained(one.label, "points", one.place, number[mine], objective_ns[mine])
    return drawing.panel("a", "History against the bound")


def _cuts(result: SearchResult) -> TrackPanel:
    """A waterfall from the whole space down to what was evaluated."""
    total = left = _space_size(result)
    tracks = [Track(f"all configs: {total:,}")]
    bars: dict[str, list[tuple[int, int, int]]] = {"all configs": [(0, 0, total)]}
    for cut in result.cuts:
        bars.setdefault(_kind(cut.reason), []).append((len(tracks), left - cut.configs, left))
        tracks.append(Track(f"{cut.reason}: {cut.configs:,}"))
        left -= cut.configs
    bars["evaluated"] = [(len(tracks), 0, result.evaluations)]
    tracks.append(Track(f"evaluated: {result.evaluations:,}"))
    styles = {name: (fill, colour) for name, fill, colour in _CUT_STYLES}
    styles |= {"all configs": ("solid", None), "evaluated": ("solid", WINNER_PLACE)}
    return TrackPanel(
        key="b",
        title="What removed the rest",
        x=Axis("configs", "count", "linear"),
        tracks=tuple(tracks),
        bars=tuple(_as_bars(name, *styles[name], places) for name, places in bars.items()),
    )


def _as_bars(name: str, fill: Fill, colour: int | None, places: Sequence[tuple[int, int, int]]) -> Bars:
    track, begin, end = np.array(places, np.int64).T
    return Bars(name, fill, colour, track, begin.astype(np.float64), end.astype(np.float64))


def _kind(reason: str) -> str:
    """``infeasible: shared memory`` is of the kind ``infeasible``."""
    return reason.partition(":")[0]


def _space_size(result: SearchResult) -> int:
    return result.evaluations + sum(cut.configs for cut in result.cuts)


#: Points of a drawn distribution; its quantiles are exact at these.
_QUANTILES = 400


def distribution_plate(cases: Sequence[Case]) -> Plate:
    """T_RS as a cumulative distribution, and the staging stall as one of what exceeds it."""
    return Plate(
        title="Remote-store span and staging stall of a tile",
        subtitle="over all tiles of a launch; simulated",
        panels=(_spans(cases), _stalls(cases)),
    )


def quantile_curve(sample: Floats) -> tuple[Floats, Floats]:
    """Evenly spaced shares from 0 to 1, and the value that this share of ``sample`` does not exceed."""
    share = np.linspace(0.0, 1.0, min(_QUANTILES, max(2, sample.size)))
    return share, np.quantile(sample, share)


def _spans(cases: Sequence[Case]) -> Panel:
    share_axis = Axis("share of tiles up to T_RS", "fraction", "linear", (0.0, 1.03))
    drawing = Drawing(Axis("T_RS", "duration_ns", "linear"), share_axis)
    for case in cases:
        spans_ns = case.spans_ns()
        if spans_ns.size:
            share, value_ns = quantile_curve(spans_ns)
            from_zero = np.concatenate(([0.0], value_ns))
            shares = np.concatenate(([0.0], share))
            drawing.add_explained(_label(case, spans_ns), "line", case.place, from_zero, shares)
    return drawing.panel("a", "Remote-store span")


def _stalls(cases: Sequence[Case]) -> Panel:
    share_axis = Axis("share of mainloops that wait longer", "fraction", "linear")
    drawing = Drawing(Axis("wait for a staging slot", "duration_ns", "linear"), share_axis)
    for case in cases:
        stalls_ns = case.run.stall_ns
        waits = stalls_ns > 0
        if not waits.any():
            drawing.explain(f"{case.label}, none waits", "line", case.place)
            continue
        share, value_ns = quantile_curve(stalls_ns[waits])
        from_zero = np.concatenate(([0.0], value_ns))
        longer = waits.mean() * np.concatenate(([1.0], 1.0 - share))
        label = f"{case.label}, {percent(100 * waits.mean(), 1)} wait, mean {duration(stalls_ns.mean())}"
        drawing.add_explained(label, "line", case.place, from_zero, longer)
    return drawing.panel("b", "Staging stall")


def _label(case: Case, sample_ns: Floats) -> str:
    median_ns, tail_ns = np.quantile(sample_ns, (0.5, 0.95))
    return f"{case.label}, median {duration(median_ns)}, p95 {duration(tail_ns)}"


_XSTAGE_COLOUR, _COUPLED_COLOUR = 0, 1
_TOKENS = Axis("tokens M", "count", "log")


def residual_plate(workload: Workload, simulated: Residuals, predicted: Residuals) -> Plate:
    """E_res and E_res/T_FA against M: predictions as lines, simulations as points."""
    return Plate(
        title="What the All-to-All leaves exposed",
        subtitle=f"{workload.name} at other sequence lengths; its own is {workload.token_count:,} tokens",
        panels=(
            _panel("a", "Residual", Axis("E_res = T_fused - T_FA", "duration_ns", "symlog"), simulated,
                   predicted, relative=False),
            _panel("b", "Residual of attention time", Axis("E_res / T_FA", "fraction", "log"), simulated,
                   predicted, relative=True),
        ),
    )  # fmt: skip


def _panel(
    key: str, title: str, y: Axis, simulated: Residuals, predicted: Residuals, *, relative: bool
) -> Panel:
    drawing = Drawing(_TOKENS, y)
    for name, colour, of in (
        ("X-Stage", _XSTAGE_COLOUR, attrgetter("xstage_ns")),
        ("completion-coupled", _COUPLED_COLOUR, attrgetter("coupled_ns")),
    ):
        line, points = (
            (of(each) / each.alone_ns if relative else of(each)) for each in (predicted, simulated)
        )
        drawing.add_explained(f"{name}, predicted", "line", colour, predicted.tokens, line)
        drawing.add_explained(f"{name}, simulated", "points", colour, simulated.tokens, points)
    return drawing.panel(key, title)
