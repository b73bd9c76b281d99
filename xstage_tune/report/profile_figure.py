"""Figures of a profile run: E_res against tokens with both predictions (the paper's Figure 11), and spans."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from xstage_tune.base.number_format import duration
from xstage_tune.experiments.timing.result import PointResult, ProfileResult
from xstage_tune.report.distribution import quantile_curve
from xstage_tune.report.drawing import Drawing
from xstage_tune.report.figure import COLOUR_SLOTS, Axis, Figure, Floats, Panel
from xstage_tune.report.profile_tables import converged_tokens

_Value = Callable[[PointResult], float | None]


def sweep_figure(result: ProfileResult) -> Figure:
    """E_res and T_RS against tokens; points were measured, lines are predicted."""
    return Figure(
        title=f"{result.request.workload.name}: residual against tokens",
        subtitle=f"{result.device}, path {result.request.path}",
        panels=(_residual_panel(result), _issue_panel(result)),
    )


def span_figure(
    result: ProfileResult, issue_ns: Mapping[str, Floats], q_loop_ns: Mapping[str, Floats]
) -> Figure:
    """T_RS and the Q-loop of tiles as cumulative distributions.

    Args:
        issue_ns, q_loop_ns: of the recorded launches, by what they are called.
    """
    return Figure(
        title="Spans of the attention's tiles",
        subtitle=f"recording build; {result.device}",
        panels=(
            _distribution("a", "Remote-store span of a tile", "T_RS", issue_ns),
            _distribution("b", "Q-loop of a tile", "G_Qloop", q_loop_ns),
        ),
    )


def _residual_panel(result: ProfileResult) -> Panel:
    drawing = Drawing(_tokens(), Axis("E_res = T_fused - T_FA", "duration_ns", "symlog"))
    measured = _series(result, lambda one: one.residual_ns())
    serial = _series(result, lambda one: one.residual_ns("serial-direct"))
    drawing.add_explained("fused, measured", "points", 0, *measured)
    drawing.add_explained("serial, direct stores: T_serial - T_FA", "hollow", 1, *serial)
    most = max((float(y.max()) for _, y in (measured, serial) if y.size), default=0.0)
    if result.request.predicted:
        closed = _series(result, lambda one: one.compared()["residual_ns"].closed_form)
        simulated = _series(result, lambda one: one.compared()["residual_ns"].simulated)
        coupled = _series(result, lambda one: one.compared()["residual_ns"].completion_coupled)
        drawing.add_explained("X-Stage, equations 18, 19", "line", 0, *closed)
        drawing.add_explained("X-Stage, simulated", "line", 2, *simulated)
        drawing.add_explained("completion-coupled, equation 17", "dashed", 3, *coupled)
        most = max(most, *(float(y.max(initial=0.0)) for _, y in (closed, simulated)))
    _landmark(drawing, result, most)
    return drawing.panel("a", "Residual")


def _issue_panel(result: ProfileResult) -> Panel:
    drawing = Drawing(_tokens(), Axis("T_RS of a tile, median", "duration_ns", "linear"))
    measured = _series(result, lambda one: one.compared()["issue_ns"].measured)
    drawing.add_explained("measured", "points", 0, *measured)
    most = float(measured[1].max(initial=0.0))
    if result.request.predicted:
        closed = _series(result, lambda one: one.compared()["issue_ns"].closed_form)
        drawing.add_explained("equations 3 and 7", "line", 0, *closed)
        drawing.add_explained(
            "simulated", "line", 2, *_series(result, lambda one: one.compared()["issue_ns"].simulated)
        )
        most = max(most, float(closed[1].max(initial=0.0)))
    _landmark(drawing, result, most)
    return drawing.panel("b", "Remote-store span")


def _distribution(key: str, title: str, label: str, samples: Mapping[str, Floats]) -> Panel:
    share_axis = Axis(f"share of tiles up to {label}", "fraction", "linear", (0.0, 1.03))
    drawing = Drawing(Axis(label, "duration_ns", "linear"), share_axis)
    for place, (name, sample) in enumerate(samples.items()):
        share, value_ns = quantile_curve(sample)
        middle, tail = np.quantile(sample, (0.5, 0.95))
        text = f"{name}, median {duration(middle)}, p95 {duration(tail)}"
        x, y = np.concatenate(([0.0], value_ns)), np.concatenate(([0.0], share))
        drawing.add_explained(text, "line", place % COLOUR_SLOTS, x, y)
    return drawing.panel(key, title)


def _series(result: ProfileResult, of: _Value) -> tuple[Floats, Floats]:
    """Tokens at which there is a figure, and the figure; ascending."""
    pairs = sorted((one.case.tokens, value) for one in result.points if (value := of(one)) is not None)
    array = np.array(pairs, np.float64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _landmark(drawing: Drawing, result: ProfileResult, height: float) -> None:
    """M*_ub, where the sweep passes it."""
    at, tokens = converged_tokens(result), [one.case.tokens for one in result.points]
    if at is not None and tokens and min(tokens) <= at <= max(tokens):
        drawing.add_explained(
            "M*_ub, equation 20", "dashed", None, np.array([at, at]), np.array([0.0, height])
        )


def _tokens() -> Axis:
    return Axis("tokens M", "count", "log")
