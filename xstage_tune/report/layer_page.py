"""The page of a MoE layer's profile and its figures: schedules, Tensor Cores over time, spans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from xstage_tune.base.number_format import duration, percent
from xstage_tune.base.spans import SpanTable
from xstage_tune.experiments.schedules.result import LayerResult, PointResult
from xstage_tune.families.megamoe.span_figures import first_consumers, part_stalls, tensor_activity
from xstage_tune.families.megamoe.timing import AT_ONCE, LAYERS, LOCAL, SERIAL
from xstage_tune.report.calibration_page import launches_table, run_table
from xstage_tune.report.distributions import distribution_panel
from xstage_tune.report.emulation_page import swept_axis
from xstage_tune.report.figure import COLOUR_SLOTS, Axis, Drawing, Figure, Floats, Panel, Plate, TrackPanel
from xstage_tune.report.layer_tables import layer_tables, point_tables
from xstage_tune.report.page import Block, render_page
from xstage_tune.report.profile_parts import profile_lead
from xstage_tune.report.sentences import platform_sentence
from xstage_tune.report.timeline import Window, sm_tracks, span_bars, window_axis
from xstage_tune.store.launches import StoredLaunch
from xstage_tune.store.models import Run

_BINS = 160
_SHOWN_SMS = 3
_TILES_IN_WINDOW = 12
#: The window begins so far into the launch: past its start, and where its tail has not begun.
_WINDOW_AT = 0.45
_KEYS = "abcdefgh"


def render_layer(run: Run, result: LayerResult, launches: Sequence[StoredLaunch]) -> str:
    """The page of ``run``.

    Raises:
        StoreError: spans are damaged, or the database failed.
    """
    title = f"Profile of {result.request.workload.name}"
    lead = profile_lead(
        run, result, result.request.config.tile_label, [_answer(point) for point in result.points[-1:]]
    )
    return render_page(title, tuple(_blocks(run, result, launches)), lead)


def _answer(point: PointResult) -> str:
    times = {name: time_ns for name in point.case.names if (time_ns := point.time_ns(name)) is not None}
    if not times:
        return ""
    fastest = min(times, key=lambda name: times[name])
    words = f"Fastest: {fastest}, {duration(times[fastest])}."
    ratio, serial = point.interleaved_over_wave()["measured"], point.over(SERIAL, fastest)
    if ratio is not None:
        words += f" The wave takes {ratio:.3f}x the time of the interleaved schedule."
    if serial is not None:
        words += f" The layer without fusion takes {serial.value:.3f}x the fastest."
    return words


def _blocks(run: Run, result: LayerResult, launches: Sequence[StoredLaunch]) -> Iterator[Block]:
    asked = (platform_sentence(result.request.platform),) if result.request.predicted else ()
    if result.request.sweep is not None:
        yield Block(
            heading="Sweep",
            paragraphs=asked,
            figure=sweep_figure(result),
            caption="Points were measured; lines are simulated from the calibrated platform alone.",
            tables=layer_tables(result),
        )
        for point in result.points:
            yield Block(heading=point.case.label, tables=point_tables(result, point))
    else:
        yield Block(heading="Schedules", paragraphs=asked, tables=layer_tables(result))
        yield from _span_blocks(result, _tables(launches))
    yield Block(heading="Run", tables=(run_table(run, launches), launches_table(launches)))


def _tables(launches: Sequence[StoredLaunch]) -> dict[str, SpanTable]:
    """Spans of the recorded launches that have some, by implementation."""
    tables = {}
    for launch in launches:
        point = launch.point_as(LAYERS)
        if point.what == "spans":
            table = launch.table()
            if len(table.spans):
                tables[point.implementation] = table
    return tables


def _span_blocks(result: LayerResult, tables: Mapping[str, SpanTable]) -> Iterator[Block]:
    if not result.points or not tables:
        return
    point = result.points[0]
    shown = {name: tables[name] for name in point.case.names if name in tables}
    if shown:
        yield Block(
            heading="Tensor Cores over time",
            figure=activity_figure(result, shown),
            caption="An SM is active while a mainloop of either of its consumers runs.",
        )
        yield Block(
            heading="Timelines",
            figure=_timelines(result, shown),
            caption="The first consumer of the same SMs, and who stores its tiles.",
        )
    slots = point.case.config.staging_depth
    stalls = {
        name.removesuffix(AT_ONCE): part_stalls(table, slots)
        for name, table in tables.items()
        if name.endswith(AT_ONCE) or name == LOCAL
    }
    stored = {name: found for name, found in stalls.items() if found.issue_ns.size}
    if stored:
        yield Block(
            heading="Span distributions",
            figure=Figure(
                title="Linear-2 parts whose stores leave at once",
                subtitle=f"recording build; {result.device}",
                panels=(
                    distribution_panel(
                        "a", "Remote-store span", "T_RS", {k: v.issue_ns for k, v in stored.items()}, "parts"
                    ),
                    distribution_panel(
                        "b", "Wait for the slot", "dt", {k: v.stall_ns for k, v in stored.items()}, "parts"
                    ),
                ),
            ),
            caption=f"'{LOCAL}' is the control of T_RS: the same stores to the GPU's own memory.",
        )


def activity_figure(result: LayerResult, tables: Mapping[str, SpanTable]) -> Figure:
    """Fraction of the SMs whose Tensor Cores are at work, over each launch: the paper's Figure 9."""
    series = {name: tensor_activity(table, _BINS) for name, table in tables.items()}
    longest_ns = max(float(one.time_ns[-1]) for one in series.values())
    time = Axis("time after the launch", "duration_ns", "linear", (0.0, 1.02 * longest_ns))
    panels = []
    for place, (name, one) in enumerate(series.items()):
        drawing = Drawing(time, Axis("SMs active", "fraction", "linear", (0.0, 1.06)))
        mean = percent(100 * float(one.value.mean()), 1)
        drawing.add_explained(
            f"a mainloop runs, mean {mean}", "area", place % COLOUR_SLOTS, one.time_ns, one.value
        )
        panels.append(drawing.panel(_KEYS[place], name, strip=True))
    return Figure("Tensor Core activity", f"means over {_BINS} parts; {result.device}", tuple(panels))


def _timelines(result: LayerResult, tables: Mapping[str, SpanTable]) -> Plate:
    panels = tuple(
        _tracks(key, name, table) for key, (name, table) in zip(_KEYS, tables.items(), strict=False)
    )
    return Plate("What a few SMs did", f"one launch of each schedule; {result.device}", panels)


def _tracks(key: str, name: str, table: SpanTable) -> TrackPanel:
    told = first_consumers(table)
    lanes = told.table.lanes
    launch_ns = float(table.end_ns().max())
    tile_ns = launch_ns / max(1, int(np.diff(told.first).max()))
    length_ns = min(launch_ns, _TILES_IN_WINDOW * tile_ns)
    window = Window(min(_WINDOW_AT * launch_ns, launch_ns - length_ns), length_ns)
    with_spans = np.flatnonzero(lanes["recorded"])
    places = np.linspace(0, with_spans.size - 1, min(_SHOWN_SMS, with_spans.size)).astype(np.int64)
    sms = with_spans[places].tolist()
    return TrackPanel(
        key=key,
        title=name,
        x=window_axis(window),
        tracks=sm_tracks(sms),
        bars=span_bars(told.table, told.first, told.linear2, window, sms),
        note=f"from {duration(window.begin_ns)} on, of a launch of {duration(launch_ns)}",
    )


_Value = Callable[[PointResult], float | None]


def sweep_figure(result: LayerResult) -> Figure:
    """Time against the swept quantity, of every schedule; points were measured, lines are simulated."""
    key = result.request.sweep.key if result.request.sweep else ""
    return Figure(
        title=f"{result.request.workload.name}: sweep of {key.replace('_', ' ')}",
        subtitle=f"{result.device}, path {result.request.path}",
        panels=(_time_panel(result, key),),
    )


def _time_panel(result: LayerResult, key: str) -> Panel:
    drawing = Drawing(swept_axis(key), Axis("T", "duration_ns", "log" if key == "tokens" else "linear"))
    for place, kind in enumerate(result.request.schedules):
        colour = place % COLOUR_SLOTS
        drawing.add_explained(kind, "points", colour, *_series(result, _measured(place)))
        drawing.add(kind, "line", colour, *_series(result, _simulated(place)))
    if result.request.serial:
        drawing.add_explained(SERIAL, "hollow", None, *_series(result, lambda one: one.time_ns(SERIAL)))
    drawing.explain_marks(line="simulated")
    return drawing.panel("a", "Time of the launch")


def _measured(place: int) -> _Value:
    return lambda point: point.time_ns(point.case.names[place])


def _simulated(place: int) -> _Value:
    def of(point: PointResult) -> float | None:
        found = point.predictions.get(point.case.names[place])
        return found.simulated.latency_ns if found else None

    return of


def _series(result: LayerResult, of: _Value) -> tuple[Floats, Floats]:
    """Values of the sweep at which there is a figure, and the figure; ascending."""
    pairs = sorted(
        (point.value, value)
        for point in result.points
        if point.value is not None and (value := of(point)) is not None
    )
    array = np.array(pairs, np.float64).reshape(-1, 2)
    return array[:, 0], array[:, 1]
