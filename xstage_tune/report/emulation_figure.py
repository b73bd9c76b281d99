"""Figures of an emulation: a sweep's times and waits, and how long T_RS lasts under each schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter

import numpy as np

from xstage_tune.base.number_format import duration
from xstage_tune.experiments.emulation.cases import WITHOUT_STORES
from xstage_tune.experiments.emulation.result import CaseResult, EmulationResult
from xstage_tune.launches.skeleton_figures import median_of
from xstage_tune.report.distribution import quantile_curve
from xstage_tune.report.drawing import Drawing
from xstage_tune.report.figure import COLOUR_SLOTS, Axis, Figure, Floats, Panel

_SWEPT = {
    "lead": ("lead D, rows", "count", "log"),
    "tokens": ("tokens", "count", "log"),
    "staging_depth": ("staging slots S", "count", "linear"),
    "remote_fraction": ("remote part of the output", "fraction", "linear"),
}
_Value = Callable[[CaseResult], float | None]


def sweep_figure(result: EmulationResult) -> Figure:
    """Times, and what of them is due to the stores, against the swept quantity; points are what ran."""
    second = _residual_panel(result) if result.request.compares_alone else _wait_panel(result)
    key = result.request.sweep.key if result.request.sweep else ""
    return Figure(
        title=f"{result.request.workload.name}: sweep of {key.replace('_', ' ')}",
        subtitle=f"{result.device}, path {result.request.path}",
        panels=(_time_panel(result), second),
    )


def distribution_figure(result: EmulationResult, spans_ns: Mapping[str, Floats]) -> Figure:
    """T_RS of the tiles with remote stores as a cumulative distribution.

    Args:
        spans_ns: of one launch of each case, by its label; without those that store nothing remotely.
    """
    share_axis = Axis("share of tiles up to T_RS", "fraction", "linear", (0.0, 1.03))
    drawing = Drawing(Axis("T_RS", "duration_ns", "linear"), share_axis)
    for place, (label, sample) in enumerate(spans_ns.items()):
        share, value_ns = quantile_curve(sample)
        middle, tail = np.quantile(sample, (0.5, 0.95))
        text = f"{label}, median {duration(middle)}, p95 {duration(tail)}"
        x, y = np.concatenate(([0.0], value_ns)), np.concatenate(([0.0], share))
        drawing.add_explained(text, "line", place % COLOUR_SLOTS, x, y)
    return Figure(
        title="Remote-store span of a tile",
        subtitle=f"first launch of each schedule; {result.device}",
        panels=(drawing.panel("a", "T_RS"),),
    )


def _time_panel(result: EmulationResult) -> Panel:
    drawing = Drawing(_swept(result), Axis("makespan", "duration_ns", "linear"))
    for place, name in enumerate(_names(result)):
        _points(
            drawing, result, name, place, lambda one: one.makespan_ns, lambda one: one.simulated_makespan_ns
        )
    _landmark(drawing, result, max(one.makespan_ns for one in result.cases))
    drawing.explain_marks(line="simulated")
    return drawing.panel("a", "Time of the launch")


def _wait_panel(result: EmulationResult) -> Panel:
    """Waits of the mainloop role: for staging slots and for inputs, mean over the SMs."""
    drawing = Drawing(_swept(result), Axis("wait of an SM", "duration_ns", "linear"))
    most = 0.0
    for place, name in enumerate(_names(result)):
        slots = _series(result, name, _stall_ns)
        inputs = _series(result, name, _dependency_wait_ns)
        drawing.add_explained(name, "points", place % COLOUR_SLOTS, *slots)
        drawing.add(name, "hollow", place % COLOUR_SLOTS, *inputs)
        most = max(most, float(slots[1].max(initial=0.0)), float(inputs[1].max(initial=0.0)))
    _landmark(drawing, result, most)
    drawing.explain_marks(line="", hollow="for inputs; filled: for a staging slot")
    return drawing.panel("b", "Waits of the mainloop role")


def _residual_panel(result: EmulationResult) -> Panel:
    drawing = Drawing(_swept(result), Axis("E_res = T_fused - T_FA", "duration_ns", "symlog"))
    residuals = result.residuals()
    most = max((one.emulated_ns for one in residuals), default=0.0)
    for place, name in enumerate(dict.fromkeys(one.case.name for one in residuals)):
        own = [one for one in residuals if one.case.name == name and one.case.value is not None]
        x = np.array([one.case.value for one in own], np.float64)
        colour = place % COLOUR_SLOTS
        drawing.add_explained(name, "points", colour, x, np.array([one.emulated_ns for one in own]))
        for mark, values in (
            ("line", [one.simulated_ns for one in own]),
            ("dashed", [one.closed_ns for one in own]),
        ):
            if None not in values:
                drawing.add(
                    name, "line" if mark == "line" else "dashed", colour, x, np.array(values, np.float64)
                )
                most = max(most, *(value for value in values if value is not None))
    _landmark(drawing, result, most)
    drawing.explain_marks(line="simulated", dashed="closed form, the steady state")
    return drawing.panel("b", "Residual")


def _stall_ns(one: CaseResult) -> float | None:
    return median_of(one.launches, attrgetter("stall_ns"))


def _dependency_wait_ns(one: CaseResult) -> float | None:
    return median_of(one.launches, attrgetter("dependency_wait_ns"))


def _points(
    drawing: Drawing, result: EmulationResult, name: str, place: int, emulated: _Value, simulated: _Value
) -> None:
    colour = place % COLOUR_SLOTS
    drawing.add_explained(name, "points", colour, *_series(result, name, emulated))
    drawing.add(name, "line", colour, *_series(result, name, simulated))


def _series(result: EmulationResult, name: str, of: _Value) -> tuple[Floats, Floats]:
    """Values of the sweep at which a schedule has a figure, and the figure; ascending."""
    pairs = sorted(
        (one.case.value, figure)
        for one in result.cases
        if one.case.name == name and one.case.value is not None and (figure := of(one)) is not None
    )
    array = np.array(pairs, np.float64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _landmark(drawing: Drawing, result: EmulationResult, height: float) -> None:
    """D_knee or M*_ub, where the sweep passes it."""
    sweep, marks = result.request.sweep, result.landmarks
    if sweep is None:
        return
    name, at = {
        "lead": ("D_knee, equation 16", marks.lead_knee_rows),
        "tokens": ("M*_ub, equation 20", marks.converged_tokens),
    }.get(sweep.key, ("", None))
    if at is not None and min(sweep.values) <= at <= max(sweep.values):
        drawing.add_explained(name, "dashed", None, np.array([at, at]), np.array([0.0, height]))


def _swept(result: EmulationResult) -> Axis:
    assert result.request.sweep is not None
    label, quantity, scale = _SWEPT[result.request.sweep.key]
    return Axis(
        label, "fraction" if quantity == "fraction" else "count", "log" if scale == "log" else "linear"
    )


def _names(result: EmulationResult) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.case.name for one in result.cases if one.case.name != WITHOUT_STORES))
