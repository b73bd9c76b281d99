"""A MoE layer's profile as tables: schedules, stalls of Linear-2, spans; of a sweep one line a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rich.console import RenderableType

from xstage_tune.base.medians import median_interval95, median_or_none
from xstage_tune.base.number_format import ABSENT, difference, duration, share, with_error
from xstage_tune.experiments.emulation.result import error_pct
from xstage_tune.experiments.schedules.prediction import Prediction
from xstage_tune.experiments.schedules.result import LayerResult, PointResult, Stall
from xstage_tune.families.architecture import unmeasured_compute
from xstage_tune.families.megamoe.timing import AT_ONCE, LOCAL, PRODUCTS, SERIAL, LayerSpans
from xstage_tune.families.profiled import Distribution
from xstage_tune.launches.in_turn import Interval
from xstage_tune.report.profile_parts import (
    other_gpu_notes,
    platform_note,
    span_table,
    tflop,
    throttled_notes,
    with_interval,
)
from xstage_tune.report.sentences import workload_sentence
from xstage_tune.report.tables import Column, TableData, number, render_report, table

_SPANS: tuple[tuple[str, Callable[[LayerSpans], Distribution | None]], ...] = (
    ("Linear-1 mainloop", lambda figures: figures.l1),
    ("Linear-2 mainloop", lambda figures: figures.l2),
    ("wait for operands", lambda figures: figures.operand_wait),
    ("wait for a staging slot", lambda figures: figures.slot_wait),
    ("T_RS", lambda figures: figures.issue),
)


def layer_report(result: LayerResult) -> RenderableType:
    """The tables for a terminal."""
    return render_report(layer_tables(result), workload_sentence(result.request.workload))


def layer_tables(result: LayerResult) -> tuple[TableData, ...]:
    """Of a sweep a line a value; else schedules, stalls and spans."""
    if result.request.sweep is not None:
        return (_sweep_table(result),)
    return tuple(one for point in result.points for one in point_tables(result, point))


def point_tables(result: LayerResult, point: PointResult) -> tuple[TableData, ...]:
    """All of one value."""
    return tuple(_point_tables(result, point))


def _point_tables(result: LayerResult, point: PointResult) -> Iterator[TableData]:
    yield _implementations(result, point)
    stalls = [(name, found) for name in (*point.case.names, LOCAL) if (found := point.stall(name))]
    if stalls:
        yield _stall_table(result, point, stalls)
    if point.spans:
        yield _activity_table(point)
        yield _span_table(point)


def _implementations(result: LayerResult, point: PointResult) -> TableData:
    first = point.case.names[0]
    columns: list[Column[str]] = [
        Column("implementation", str),
        number("T", point.time_ns, duration),
        number("spread", point.spread, share),
        number("TFLOP/s", point.flop_per_s, tflop),
        number(f"over {first}", partial(point.over, first), _ratio),
    ]
    if point.predictions:
        columns += [
            number("simulated", lambda one: _latency(point, one, lambda found: found.simulated.latency_ns)),
            number("closed form", lambda one: _latency(point, one, lambda found: found.closed.latency_ns)),
        ]
    timed = [one for one in point.case.timed if point.time_ns(one)]
    notes = (*_point_notes(result, point), *_notes(result))
    return table(_title(result), columns, timed, notes=notes)


def _stall_table(result: LayerResult, point: PointResult, stalls: Sequence[tuple[str, Stall]]) -> TableData:
    """The paper's Table 2 of this GPU."""
    predictions = point.predictions

    def closed(row: tuple[str, Stall], of: Callable[[Prediction], float | None]) -> float | None:
        found = predictions.get(row[0])
        return of(found) if found else None

    def beside(
        measured: Callable[[Stall], float | None], of: Callable[[Prediction], float | None]
    ) -> Callable[[tuple[str, Stall]], str]:
        return lambda row: _predicted(closed(row, of), measured(row[1]))

    columns: list[Column[tuple[str, Stall]]] = [
        Column("stores at once", lambda row: row[0]),
        number("T_RS", lambda row: row[1].issue_ns, duration),
    ]
    if predictions:
        columns += [
            number("closed form", beside(lambda one: one.issue_ns, lambda found: found.closed.issue_ns)),
            number("simulated", beside(lambda one: one.issue_ns, lambda found: found.simulated.issue_ns)),
        ]
    columns.append(number("T_L2", lambda row: row[1].l2_ns, duration))
    if predictions:
        columns.append(number("predicted", beside(lambda one: one.l2_ns, lambda found: found.closed.l2_ns)))
    columns.append(number("T_L1", lambda row: row[1].l1_ns, duration))
    if predictions:
        columns.append(number("predicted", beside(lambda one: one.l1_ns, lambda found: found.closed.l1_ns)))
    columns += [
        number("dt", lambda row: row[1].measured_ns, difference),
        number("equation 15", lambda row: row[1].expected_ns, difference),
    ]
    if predictions:
        columns += [
            number("closed form", lambda row: closed(row, lambda found: found.closed.stall_ns), difference),
            number("simulated", lambda row: closed(row, lambda found: found.simulated.stall_ns), difference),
        ]
    notes = [
        "medians of parts of a tile, each of one consumer, of recording builds whose stores leave at once: "
        "the mechanism without the kernel's pacing",
        "dt: wait for the slot that a Linear-2 part held; equation 15: of that part's own T_RS and of what "
        "its consumer did until it asked for the slot",
    ]
    if predictions:
        notes.append(platform_note(result.request))
        broken = [name for name, found in predictions.items() if not found.closed.rate_ok]
        said = f"broken by {', '.join(broken)}" if broken else "holds for all"
        notes.append(f"rate bound (equation 14): {said}")
    return table("Stalls of Linear-2", columns, stalls, notes=notes)


def _activity_table(point: PointResult) -> TableData:
    """What the Tensor Cores did of a launch, as it runs."""
    columns: list[Column[tuple[str, LayerSpans]]] = [
        Column("as it runs", lambda row: row[0]),
        number("Tensor active", lambda row: row[1].active, share),
        number("waits of an SM", lambda row: row[1].stall_ns, duration),
    ]
    if point.predictions:
        predictions = point.predictions
        columns += [
            number("active, simulated", lambda row: predictions[row[0]].simulated.active, share),
            number("waits, simulated", lambda row: predictions[row[0]].simulated.waits_ns, duration),
        ]
    rows = [(name, point.spans[name]) for name in point.case.names if name in point.spans]
    note = "active: of either consumer a mainloop runs, mean over the SMs; waits: for a slot or operands"
    return table("Tensor Cores", columns, rows, notes=(note,))


def _span_table(point: PointResult) -> TableData:
    rows = [
        (name, what, found)
        for name, figures in point.spans.items()
        if not name.endswith(AT_ONCE)  # the stalls' table has them
        for what, of in _SPANS
        if (found := of(figures)) is not None
    ]
    dropped = sum(figures.dropped for figures in point.spans.values())
    return span_table(
        rows, dropped, "parts of a tile, each of one consumer; recording builds, on a rested GPU"
    )


def _sweep_table(result: LayerResult) -> TableData:
    """A line a value: each schedule's time with the simulator's error, and how they compare."""
    request = result.request
    key = request.sweep.key if request.sweep else ""
    columns: list[Column[PointResult]] = [number(key, lambda point: _shown(result, point))]
    for place, kind in enumerate(request.schedules):
        columns.append(number(kind, partial(_scheduled, place)))
    if {"wave", "interleaved"} <= set(request.schedules):
        columns += [
            number("interleaved over wave", lambda point: _of_ratio(point, "measured")),
            number("simulated", lambda point: _of_ratio(point, "simulated")),
        ]
    if request.serial:
        columns += [
            number("serial", lambda point: point.time_ns(SERIAL), duration),
            number("first over it", lambda point: point.over(SERIAL, point.case.names[0]), _ratio),
        ]
    notes = ["in brackets how far the simulator is above what was measured", *_notes(result)]
    return table(_title(result), columns, result.points, notes=notes)


def _shown(result: LayerResult, point: PointResult) -> str:
    sweep = result.request.sweep
    return ABSENT if sweep is None or point.value is None else sweep.shown(point.value)


def _scheduled(place: int, point: PointResult) -> str:
    name = point.case.names[place]
    measured_ns, found = point.time_ns(name), point.predictions.get(name)
    error = error_pct(found.simulated.latency_ns, measured_ns) if found else None
    return with_error(duration(measured_ns), error)


def _of_ratio(point: PointResult, key: str) -> str:
    ratio = point.interleaved_over_wave()[key]
    return ABSENT if ratio is None else f"{ratio:.3f}x"


def _latency(point: PointResult, name: str, of: Callable[[Prediction], float]) -> str | None:
    found = point.predictions.get(name)
    return None if found is None else _predicted(of(found), point.time_ns(name))


def _predicted(predicted: float | None, measured: float | None) -> str:
    return with_error(duration(predicted), error_pct(predicted, measured))


def _ratio(one: Interval) -> str:
    if one.low <= 0:
        return f"{one.value:.3f}x"
    return f"{one.value:.3f}x [{one.low:.3f}, {one.high:.3f}]"


def _point_notes(result: LayerResult, point: PointResult) -> Iterator[str]:
    exposed = point.beyond_ns(LOCAL, point.control_name)
    if exposed:
        shown = with_interval(median_or_none(exposed), median_interval95(exposed))
        yield f"{point.control_name} takes {shown} longer than the same launch without remote stores"
    overhead = point.recording_overhead_ns()
    if overhead:
        shown = with_interval(median_or_none(overhead), median_interval95(overhead))
        yield f"recording spans adds {shown} to {point.case.names[0]}"
    check = point.checks.get(point.case.names[0])
    if check is not None and check[0].relative_error is not None and not check[0].place:
        yield (
            f"outputs: relative error {check[0].relative_error:.2e} against fp32 on sampled rows; all rows "
            f"of all implementations as those of {point.case.names[0]}, up to rounding"
        )
    if result.request.serial:
        yield (
            f"{PRODUCTS}: both matrix products of every expert by the vendor's library (torch); {SERIAL}: "
            "with SwiGLU between them, then every row by direct stores of all SMs"
        )
    else:
        yield "no serial baseline: torch is not installed, or its products do not take these sizes"


def _notes(result: LayerResult) -> Iterator[str]:
    request = result.request
    yield (
        f"{request.config.tile_label}, {request.config.store_flavour}; launches back to back in CUDA graphs, "
        "until all stores have drained; the rank that receives most, its tokens there already"
    )
    repeats = [len(point.samples_ns.get(point.case.names[0], ())) for point in result.points] or [0]
    yield (
        f"T: median of {min(repeats)} repeats, in which all implementations take turns every few ms at the "
        "same clocks; over: ratio of times in turn, above 1 faster"
        f"{', its 99% interval in brackets' if min(repeats) > 1 else ''}"
    )
    yield from other_gpu_notes(request)
    if request.predicted:
        if request.sweep is not None or not result.points:
            yield platform_note(request)
        yield from filter(None, (unmeasured_compute(request.platform),))
    yield from throttled_notes(result.throttled_launches, result.launches)


def _title(result: LayerResult) -> str:
    return f"{result.request.workload.name}, {result.device}: path {result.request.path}"
