"""The page of an emulation and its figures: schedules beside their predictions, sweeps, spans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from xstage_tune.base.number_format import duration, percent
from xstage_tune.base.spans import SpanKind, SpanTable
from xstage_tune.experiments.emulation.cases import WITHOUT_STORES, launch_of
from xstage_tune.experiments.emulation.result import CaseResult, EmulationResult
from xstage_tune.families.launch import FusedLaunch
from xstage_tune.launches.skeleton_figures import median_of
from xstage_tune.launches.skeletons import SKELETONS
from xstage_tune.report.calibration_page import launches_table, run_sentence, run_table
from xstage_tune.report.distributions import distribution_panel
from xstage_tune.report.emulation_tables import emulation_tables
from xstage_tune.report.figure import COLOUR_SLOTS, Axis, Drawing, Figure, Floats, Panel, Plate, TrackPanel
from xstage_tune.report.page import Block, render_page
from xstage_tune.report.sentences import platform_sentence, workload_sentence
from xstage_tune.report.timeline import Window, sm_tracks, span_bars, window_axis
from xstage_tune.store.launches import StoredLaunch
from xstage_tune.store.models import Run

_SHOWN_SMS = 3
_TILES_IN_WINDOW = 12
#: The window begins so far into the launch: past its start, and where its tail has not begun.
_WINDOW_AT = 0.45


def render_emulation(run: Run, result: EmulationResult, launches: Sequence[StoredLaunch]) -> str:
    """The page of ``run``.

    Raises:
        StoreError: spans are damaged, or the database failed.
    """
    title = f"Emulation of {result.request.workload.name}"
    return render_page(title, tuple(_blocks(run, result, launches)), _lead(run, result))


def _lead(run: Run, result: EmulationResult) -> tuple[str, ...]:
    """What was found, in words."""
    request = result.request
    what = (
        f"{len(result.cases)} cases of {workload_sentence(request.workload)} "
        f"Each ran {request.repeats} times as a skeleton on {result.device_name} ({result.device}), with "
        "real roles, staging, order and stores, and spins in place of mainloops."
    )
    answers = [run_sentence(run)]
    remote = [one for one in result.cases if one.case.remote]
    if remote:
        fastest = min(remote, key=lambda one: one.makespan_ns)
        answers.append(f"Fastest: {fastest.case.label}, {duration(fastest.makespan_ns)}.")
    ratio = result.interleaved_over_wave(result.values()[0])["emulated"]
    if ratio is not None and request.sweep is None:
        answers.append(f"The wave takes {ratio:.3f}x the time of the interleaved schedule.")
    return what, " ".join(answers)


def _blocks(run: Run, result: EmulationResult, launches: Sequence[StoredLaunch]) -> Iterator[Block]:
    asked = (platform_sentence(result.request.platform),) if result.request.predicted else ()
    yield Block(heading="Schedules", paragraphs=asked, tables=emulation_tables(result))
    if result.request.sweep is not None:
        yield Block(
            heading="Sweep",
            figure=sweep_figure(result),
            caption="Points ran; lines are predicted from the calibrated platform alone.",
        )
    else:
        yield from _span_blocks(result, _first_tables(launches))
    yield Block(heading="Run", tables=(run_table(run, launches), launches_table(launches)))


def _first_tables(launches: Sequence[StoredLaunch]) -> dict[str, SpanTable]:
    """Spans of the first launch of each skeleton that has some."""
    tables: dict[str, SpanTable] = {}
    for launch in launches:
        label = launch.point_as(SKELETONS).label
        if label not in tables:
            table = launch.table()
            if len(table.spans):
                tables[label] = table
    return tables


def _span_blocks(result: EmulationResult, tables: dict[str, SpanTable]) -> Iterator[Block]:
    shown = [
        _Shown(one, tables[one.case.label], launch_of(one.case, result.request))
        for one in result.cases
        if one.case.label in tables and one.case.remote
    ]
    if not shown:
        return
    active = (
        f"Tensor Cores are active {percent(100 * each.result.launches[0].tensor_active, 1)} of the launch "
        f"under {each.result.case.label}."
        for each in shown[:2]
    )
    yield Block(
        heading="Timelines",
        figure=_timelines(result, shown[:2]),
        caption=" ".join(("The same SMs under either schedule.", *active)),
    )
    spans_ns = {each.result.case.label: each.issue_ns() for each in shown}
    stored = {label: sample for label, sample in spans_ns.items() if sample.size}
    if stored:
        yield Block(
            heading="Span distributions",
            figure=distribution_figure(result, stored),
            caption="How long the stores of a tile with remote bytes occupy the issue role, waits included.",
        )


@dataclass(frozen=True, slots=True)
class _Shown:
    """A case, the spans of one of its launches, and its tiles."""

    result: CaseResult
    table: SpanTable
    launch: FusedLaunch

    def issue_ns(self) -> Floats:
        """T_RS of the tiles with remote bytes whose spans were kept."""
        streams, spans = self.launch.streams, self.table.spans
        issued = spans["kind"] == SpanKind.ISSUE
        tile = streams.first[spans["lane"][issued]] + spans["index"][issued]
        duration_ns: Floats = self.table.duration_ns()[issued][streams.remote_bytes[tile] > 0]
        return duration_ns

    def tracks(self, key: str) -> TrackPanel:
        """What a few SMs with spans did in a window of some tiles."""
        makespan_ns, streams = self.result.makespan_ns, self.launch.streams
        length_ns = min(makespan_ns, _TILES_IN_WINDOW * float(np.median(streams.mainloop_ns)))
        window = Window(min(_WINDOW_AT * makespan_ns, makespan_ns - length_ns), length_ns)
        with_spans = np.flatnonzero(self.table.lanes["recorded"])
        places = np.linspace(0, with_spans.size - 1, min(_SHOWN_SMS, with_spans.size)).astype(np.int64)
        sms = with_spans[places].tolist()
        return TrackPanel(
            key=key,
            title=self.result.case.label,
            x=window_axis(window),
            tracks=sm_tracks(sms),
            bars=span_bars(self.table, streams.first, self.launch.linear2, window, sms),
            note=f"from {duration(window.begin_ns)} on, of a launch of {duration(makespan_ns)}",
        )


def _timelines(result: EmulationResult, shown: Sequence[_Shown]) -> Plate:
    panels = tuple(each.tracks(key) for key, each in zip("ab", shown, strict=False))
    return Plate("What a few SMs did", f"first launch of each schedule; {result.device}", panels)


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
    return Figure(
        title="Remote-store span of a tile",
        subtitle=f"first launch of each schedule; {result.device}",
        panels=(distribution_panel("a", "T_RS", "T_RS", spans_ns),),
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
    return swept_axis(result.request.sweep.key)


def swept_axis(key: str) -> Axis:
    """Of a quantity that is swept."""
    label, quantity, scale = _SWEPT[key]
    return Axis(
        label, "fraction" if quantity == "fraction" else "count", "log" if scale == "log" else "linear"
    )


def _names(result: EmulationResult) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.case.name for one in result.cases if one.case.name != WITHOUT_STORES))
