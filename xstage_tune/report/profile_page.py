"""The page of a profile run and its figures: fused beside serial and beside its predictions, spans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from xstage_tune.base.number_format import duration, factor, percent
from xstage_tune.experiments.timing.result import PointResult, ProfileResult
from xstage_tune.families.attention_a2a.spans import tile_spans
from xstage_tune.families.attention_a2a.timing import ATTENTIONS
from xstage_tune.report.calibration_page import launches_table, run_table
from xstage_tune.report.distributions import distribution_panel
from xstage_tune.report.figure import Axis, Drawing, Figure, Floats, Panel
from xstage_tune.report.page import Block, render_page
from xstage_tune.report.profile_parts import profile_lead
from xstage_tune.report.profile_tables import converged_tokens, point_tables, profile_tables
from xstage_tune.report.sentences import platform_sentence
from xstage_tune.store.launches import StoredLaunch
from xstage_tune.store.models import Run


def render_profile(run: Run, result: ProfileResult, launches: Sequence[StoredLaunch]) -> str:
    """The page of ``run``.

    Raises:
        StoreError: spans are damaged, or the database failed.
    """
    title = f"Profile of {result.request.workload.name}"
    lead = profile_lead(
        run, result, f"Config {result.request.config.label}", [_answer(point) for point in result.points[-1:]]
    )
    return render_page(title, tuple(_blocks(run, result, launches)), lead)


def _answer(point: PointResult) -> str:
    residual_ns, share = point.residual_ns(), point.residual_of_attention()
    speedup, hiding = point.speedup("serial-direct"), point.hiding_ratio("serial-direct")
    if residual_ns is None or share is None:
        return ""
    faster = ""
    if speedup is not None and hiding is not None:
        hidden = percent(100 * hiding, 1)
        faster = f"; {factor(speedup)} over serial with direct stores, {hidden} of whose All-to-All it hides"
    return (
        f"At {point.case.tokens:,} tokens the fused kernel takes {duration(point.time_ns('fused'))}, E_res "
        f"{duration(round(residual_ns, 3))} ({percent(100 * share)} of T_FA, {_surely(point)}){faster}."
    )


def _surely(point: PointResult) -> str:
    """E_res as far as it is known."""
    interval_ns, compared = point.residual_ci95_ns(), len(point.beyond_ns("fused"))
    if interval_ns is None:
        return f"median of {compared}, too few for an interval"
    low, high = (duration(round(bound, 3)) for bound in interval_ns)
    return f"95% interval {low} to {high}"


def _blocks(run: Run, result: ProfileResult, launches: Sequence[StoredLaunch]) -> Iterator[Block]:
    asked = (platform_sentence(result.request.platform),) if result.request.predicted else ()
    if result.request.sweep is not None:
        yield Block(
            heading="Sweep",
            paragraphs=asked,
            figure=sweep_figure(result),
            caption="Points were measured; lines are predicted from the calibrated platform alone.",
            tables=profile_tables(result),
        )
        for point in result.points:
            yield Block(heading=f"{point.case.tokens:,} tokens", tables=point_tables(result, point))
    else:
        yield Block(heading="Implementations", paragraphs=asked, tables=profile_tables(result))
        figure = _spans_of(result, launches)
        if figure is not None:
            yield Block(
                heading="Span distributions",
                figure=figure,
                caption="The attention alone stores locally: it is the control of T_RS, and its Q-loop is G.",
            )
    yield Block(heading="Run", tables=(run_table(run, launches), launches_table(launches)))


def _spans_of(result: ProfileResult, launches: Sequence[StoredLaunch]) -> Figure | None:
    """Distributions of the recorded launches; None of a run that came to none."""
    issue_ns: dict[str, Floats] = {}
    q_loop_ns: dict[str, Floats] = {}
    for launch in launches:
        point = launch.point_as(ATTENTIONS)
        if point.what != "spans":
            continue
        remote = point.implementation == "fused"
        tiles = tile_spans(launch.table(), result.points[0].case, remote=remote)
        stores = tiles.issue_ns[tiles.remote] if tiles.remote.any() else tiles.issue_ns
        if tiles.remote.size:
            issue_ns[point.implementation] = stores
            q_loop_ns[point.implementation] = tiles.q_loop_ns.mean(axis=1)
    return span_figure(result, issue_ns, q_loop_ns) if issue_ns else None


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
            distribution_panel("a", "Remote-store span of a tile", "T_RS", issue_ns),
            distribution_panel("b", "Q-loop of a tile", "G_Qloop", q_loop_ns),
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
