"""A search in one figure: what was evaluated against the bound, and what removed the rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xstage_tune.base.number_format import count, duration, share
from xstage_tune.report.drawing import Drawing
from xstage_tune.report.figure import Axis, Bars, Fill, Lane, LanePanel, Panel, Plate
from xstage_tune.report.study_case import WINNER, WINNER_COLOUR, StudyCase
from xstage_tune.report.tables import Column, Columns, TableData, number, table
from xstage_tune.search.result import Cut, SearchResult

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
        drawing.add_explained(label, "line", WINNER_COLOUR, steps, levels)
    baselines = [one for one in study.chosen() if one.name != WINNER]
    known = {one.config for one in baselines}
    other = np.array([evaluation.config not in known for evaluation in evaluations], np.bool_)
    drawing.add_explained("evaluated", "hollow", WINNER_COLOUR, number[other], objective_ns[other])
    for one in baselines:
        mine = np.array([evaluation.config == one.config for evaluation in evaluations], np.bool_)
        drawing.add_explained(one.label, "points", one.colour, number[mine], objective_ns[mine])
    return drawing.panel("a", "History against the bound")


def _cuts(result: SearchResult) -> LanePanel:
    """A waterfall from the whole space down to what was evaluated."""
    total = left = _space_size(result)
    lanes = [Lane(f"all configs: {total:,}")]
    bars: dict[str, list[tuple[int, int, int]]] = {"all configs": [(0, 0, total)]}
    for cut in result.cuts:
        bars.setdefault(_kind(cut.reason), []).append((len(lanes), left - cut.configs, left))
        lanes.append(Lane(f"{cut.reason}: {cut.configs:,}"))
        left -= cut.configs
    bars["evaluated"] = [(len(lanes), 0, result.evaluations)]
    lanes.append(Lane(f"evaluated: {result.evaluations:,}"))
    styles = {name: (fill, colour) for name, fill, colour in _CUT_STYLES}
    styles |= {"all configs": ("solid", None), "evaluated": ("solid", WINNER_COLOUR)}
    return LanePanel(
        key="b",
        title="What removed the rest",
        x=Axis("configs", "count", "linear"),
        lanes=tuple(lanes),
        bars=tuple(_as_bars(name, *styles[name], places) for name, places in bars.items()),
    )


def _as_bars(name: str, fill: Fill, colour: int | None, places: Sequence[tuple[int, int, int]]) -> Bars:
    lane, begin, end = np.array(places, np.int64).T
    return Bars(name, fill, colour, lane, begin.astype(np.float64), end.astype(np.float64))


def _kind(reason: str) -> str:
    """``infeasible: shared memory`` is of the kind ``infeasible``."""
    return reason.partition(":")[0]


def _space_size(result: SearchResult) -> int:
    return result.evaluations + sum(cut.configs for cut in result.cuts)
