"""A profile run as tables: implementations, predictions, spans; of a sweep one line a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import methodcaller

from rich.console import RenderableType

from xstage_tune.base.number_format import (
    ABSENT,
    byte_count,
    difference,
    duration,
    factor,
    percent,
    rate,
    share,
    with_error,
)
from xstage_tune.experiments.timing.result import NO_RESIDUAL, Compared, PointResult, ProfileResult
from xstage_tune.families.architecture import unmeasured_compute
from xstage_tune.families.attention_a2a.timing import (
    IMPLEMENTATIONS,
    RECORDING,
    SERIAL,
    Implementation,
    SpanFigures,
)
from xstage_tune.families.profiled import Distribution
from xstage_tune.model.checks import NS_PER_S
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.report.profile_parts import (
    other_gpu_notes,
    platform_note,
    span_table,
    tflop,
    throttled_notes,
    with_interval,
)
from xstage_tune.report.sentences import latency_note, workload_sentence
from xstage_tune.report.tables import Column, Columns, TableData, number, render_report, table

Shown = Callable[[float | None], str]
_Compared = tuple[str, Compared, Shown]

_NAMES: dict[Implementation, str] = {
    "attention": "attention alone",
    "all-to-all": "All-to-All alone, direct stores",
    "serial-direct": "serial, direct stores of all SMs",
    "serial-copy": "serial, copy engine",
    "serial-permute": "serial, copies and permute",
    "fused": "fused",
    "fused-received": "fused, signalled and received",
}
_RECEIVED: Implementation = "fused-received"
_RECEIVED_NOTE = (
    "signalled and received: as a call over a group, with a fence, a signal to every rank, the wait for all, "
    "and the copy of this rank's tokens; the other ranks signal when this one does"
)
_SPANS: tuple[tuple[str, Callable[[SpanFigures], Distribution | None]], ...] = (
    ("Q-loop", lambda figures: figures.q_loop),
    ("wait for a staging slot", lambda figures: figures.staging_wait),
    ("T_RS of a tile", lambda figures: figures.issue),
    ("T_RS of 64 rows", lambda figures: figures.warpgroup_issue),
)


def profile_report(result: ProfileResult) -> RenderableType:
    """The tables for a terminal."""
    return render_report(profile_tables(result), workload_sentence(result.request.workload))


def profile_tables(result: ProfileResult) -> tuple[TableData, ...]:
    """Of a sweep a line a value; else every implementation, prediction and span."""
    if result.request.sweep is not None:
        return (
            _sweep_table(result),
            _serial_table(result),
            *_received_tables(result),
            *_recording_tables(result.points),
        )
    return tuple(table for point in result.points for table in point_tables(result, point))


def point_tables(result: ProfileResult, point: PointResult) -> tuple[TableData, ...]:
    """All of one value."""
    tables = [_implementations(result, point)]
    if point.prediction is not None:
        tables.append(_predictions(result, point))
    if point.spans:
        tables.append(_span_table(point))
    return *tables, *_recording_tables([point])


def _implementations(result: ProfileResult, point: PointResult) -> TableData:
    def of_serial(
        figure: Callable[[Implementation], float | None],
    ) -> Callable[[Implementation], float | None]:
        return lambda one: figure(one) if one in SERIAL else None

    columns: Columns[Implementation] = (
        Column("implementation", lambda one: _NAMES[one]),
        number("T", point.time_ns, duration),
        number("spread", point.spread, share),
        number("TFLOP/s", point.flop_per_s, tflop),
        number("beyond T_FA", lambda one: _beyond(point, one)),
        number("H of fused", of_serial(point.hiding_ratio), share),
        number("fused is faster", lambda one: _speedup(point, one) if one in SERIAL else ABSENT),
    )
    timed = [one for one in IMPLEMENTATIONS if point.times_ns(one)]
    notes = [*_point_notes(point), *_exceeding_note([point])]
    notes += [_RECEIVED_NOTE] if _RECEIVED in timed else []
    return table(_title(result), columns, timed, notes=(*notes, *_notes(result)))


def _predictions(result: ProfileResult, point: PointResult) -> TableData:
    found = point.compared()
    quantities: tuple[_Compared, ...] = (
        ("T_RS of a tile", found["issue_ns"], duration),
        ("G_Qloop", found["q_loop_ns"], duration),
        ("dt(M)", found["issue_overhead_ns"], difference),
        ("M*_ub, tokens", found["converged_tokens"], _tokens),
        ("E_res", found["residual_ns"], difference),
        ("H", found["hiding_ratio"], share),
    )
    columns: Columns[_Compared] = (
        Column("predicted", lambda row: row[0]),
        number("measured", lambda row: row[2](row[1].measured)),
        number("closed form", lambda row: _predicted(row[1], row[1].closed_form, row[2])),
        number("simulated", lambda row: _predicted(row[1], row[1].simulated, row[2])),
        number("completion-coupled", lambda row: row[2](row[1].completion_coupled)),
    )
    assert point.prediction is not None
    notes = (
        f"in this tile order the stores of the last round drain in "
        f"{duration(point.prediction.closed.last_drain_ns)}, V/R, behind all Q-loops",
        platform_note(result.request),
        "medians over tiles; dt(M): T_RS less that of the attention alone; M*_ub: equation 20, measured with "
        "the measured sigma; H: against direct stores",
        _coupled_note(result.request.platform),
    )
    return table("Predicted", columns, quantities, notes=notes)


def _span_table(point: PointResult) -> TableData:
    rows = [
        (_NAMES[one], name, found)
        for one, figures in point.spans.items()
        for name, of in _SPANS
        if (found := of(figures)) is not None
    ]
    dropped = sum(figures.dropped for figures in point.spans.values())
    note = "of recording builds, on a rested GPU; T_RS of fused: of tiles with remote rows"
    return span_table(rows, dropped, note)


def _recording_tables(points: Sequence[PointResult]) -> Iterator[TableData]:
    """What it costs to record the spans, a line a value; none of a run that did not time it."""
    if not any(point.times_ns(recording) for point in points for recording in RECORDING.values()):
        return
    columns: list[Column[PointResult]] = [number("tokens", lambda point: point.case.tokens)]
    for one, recording in RECORDING.items():
        columns += _recording_columns(one, recording)
    note = (
        "T of recording builds in turn with those without spans; overhead: beyond those, median of the blocks"
    )
    yield table("What recording spans costs", columns, points, notes=(note,))


def _recording_columns(one: Implementation, recording: Implementation) -> Iterator[Column[PointResult]]:
    yield number(f"{one}, recording", lambda point: point.time_ns(recording), duration)
    yield number("overhead", lambda point: _beyond(point, recording))
    yield number("of it", lambda point: point.recording_overhead(one), share)


def _sweep_table(result: ProfileResult) -> TableData:
    def residual(point: PointResult) -> Compared:
        return point.compared()["residual_ns"]

    def issue(point: PointResult) -> Compared:
        return point.compared()["issue_ns"]

    columns: list[Column[PointResult]] = [
        number("tokens", lambda point: _marked(result, point)),
        number("T_FA", lambda point: point.time_ns("attention"), duration),
        number("TFLOP/s", lambda point: point.flop_per_s("attention"), tflop),
        number("T_fused", lambda point: point.time_ns("fused"), duration),
        number("E_res", lambda point: _beyond(point, "fused")),
        number("of T_FA", lambda point: point.residual_of_attention(), share),
        number("on the sender", lambda point: point.sender_residual_ns(), difference),
    ]
    if result.request.predicted:
        columns += [
            number("closed form", lambda point: residual(point).closed_form, difference),
            number("simulated", lambda point: residual(point).simulated, difference),
            number("completion-coupled", lambda point: residual(point).completion_coupled, difference),
        ]
    columns.append(number("T_RS", lambda point: issue(point).measured, duration))
    if result.request.predicted:
        closed: Column[PointResult] = number(
            "closed form", lambda point: _predicted(issue(point), issue(point).closed_form, duration)
        )
        columns.append(closed)
    return table(_title(result), columns, result.points, notes=(*_sweep_notes(result), *_notes(result)))


def _serial_table(result: ProfileResult) -> TableData:
    """Fused beside each serial version."""
    columns: list[Column[PointResult]] = [
        number("tokens", lambda point: _marked(result, point)),
        *(number(f"H, {_serial_name(one)}", methodcaller("hiding_ratio", one), share) for one in SERIAL),
        *_speedups("fused"),
    ]
    notes = (
        "H: hiding ratio (equation 21), of differences; over: speedup of fused over the serial version, of T",
        *_exceeding_note(result.points),
    )
    return table("Beside the serial versions", columns, result.points, notes=notes)


def _received_tables(result: ProfileResult) -> Iterator[TableData]:
    """What a call over a group takes, a line a value; none of a run that did not time it."""
    if not any(point.times_ns(_RECEIVED) for point in result.points):
        return
    columns: list[Column[PointResult]] = [
        number("tokens", lambda point: point.case.tokens),
        number("T", methodcaller("time_ns", _RECEIVED), duration),
        number("beyond T_FA", lambda point: _beyond(point, _RECEIVED)),
        *_speedups(_RECEIVED),
    ]
    notes = _RECEIVED_NOTE, *_exceeding_note(result.points, _RECEIVED)
    yield table("With signals and receipt", columns, result.points, notes=notes)


def _speedups(of: Implementation) -> Iterator[Column[PointResult]]:
    for serial in SERIAL:
        yield number(f"over {_serial_name(serial)}", partial(_speedup, serial=serial, of=of))


def _speedup(point: PointResult, serial: Implementation, of: Implementation = "fused") -> str:
    shown = factor(point.speedup(serial, of))
    return f"({shown})" if point.exceeds_hiding(serial, of) else shown


def _exceeding_note(points: Sequence[PointResult], of: Implementation = "fused") -> Iterator[str]:
    if any(point.exceeds_hiding(serial, of) for point in points for serial in SERIAL):
        yield "in brackets: more than hiding all of the All-to-All gives: clocks differed, it is no result"


def _serial_name(one: Implementation) -> str:
    return one.removeprefix("serial-")


def _marked(result: ProfileResult, point: PointResult) -> str:
    """Tokens of a point, the first one at or beyond M*_ub marked."""
    tokens, converged = point.case.tokens, converged_tokens(result)
    beyond = [
        one.case.tokens for one in result.points if converged is not None and one.case.tokens >= converged
    ]
    return f"M*_ub <= {tokens}" if beyond and tokens == min(beyond) else str(tokens)


def converged_tokens(result: ProfileResult) -> float | None:
    """M*_ub as predicted for bursts of the most tokens asked for; None of a run that did not come there."""
    values = result.request.values()
    if len(result.points) < len(values):
        return None
    largest = max(result.points, key=lambda point: point.case.tokens)
    return largest.prediction.closed.converged_tokens if largest.prediction else None


def _coupled_note(platform: PlatformProfile) -> str:
    return f"completion-coupled: equation 17 with {latency_note(platform)}"


def _sweep_notes(result: ProfileResult) -> Iterator[str]:
    converged, ends = converged_tokens(result), result.residual_ends_tokens()
    if converged is not None:
        yield f"M*_ub = {converged:,.0f} tokens (equation 20)"
    within = percent(100 * NO_RESIDUAL, 0)
    if ends is not None:
        yield f"measured: from {ends:,} tokens on E_res is surely at most {within} of T_FA"
    elif result.is_whole:
        yield f"measured: E_res does not surely stay below {within} of T_FA in this sweep"
    if result.request.config.hands_stores_over:
        yield "T_RS: what a consumer spends on staging, for others to store; predicted by the GPU's profile"
    yield (
        "on the sender: E_res until the last store is issued, of one recorded launch of either, GPU rested; "
        "it scatters"
    )
    if result.request.predicted:
        yield _coupled_note(result.request.platform)
        yield platform_note(result.request)
        yield from filter(None, (unmeasured_compute(result.request.platform),))


def _point_notes(point: PointResult) -> Iterator[str]:
    exchange_ns, remote = point.time_ns("all-to-all"), point.case.remote_bytes
    if exchange_ns and remote:
        moved = rate(remote / exchange_ns * NS_PER_S)
        yield f"the All-to-All alone moves {byte_count(remote)} to remote ranks at {moved}"
    ideal = point.ideal_speedup()
    if ideal is not None:
        yield f"all of it hidden would be {factor(ideal)} over serial (1 + T_A2A/T_FA)"
    sender_ns, alone_ns = point.sender_residual_ns(), point.time_ns("attention")
    if sender_ns is not None and alone_ns:
        share = percent(100 * sender_ns / alone_ns, 1)
        yield (
            f"on the sender, until its last store is issued, fused takes {difference(sender_ns)} longer "
            f"than the attention alone, {share} of T_FA (one recorded launch of either, GPU rested)"
        )
    check = point.checks.get("attention")
    if check is not None and check[0].relative_error is not None and point.is_right:
        error = f"{check[0].relative_error:.2e}"
        yield f"outputs: relative error {error} against fp32 on sampled tokens; all implementations equal"


def _notes(result: ProfileResult) -> Iterator[str]:
    request = result.request
    yield f"{request.config.label}; launches back to back in CUDA graphs, until all stores have drained"
    yield from other_gpu_notes(request)
    counts = [len(point.beyond_ns("fused")) for point in result.points] or [0]
    fewest, most = min(counts), max(counts)
    made = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    yield {
        "with-receipt": _in_turn_note(made),
        "in-turn": _in_turn_note(made),
        "blocks": "T: median replay, of the attention those around fused; E_res, and beyond T_FA: median of "
        f"{made} blocks, each of the attention, twice the implementation, and the attention",
        "balanced": f"T: median replay; E_res, and beyond T_FA: median of the differences in {made} repeats",
    }[request.replays]
    if any(point.residual_ci95_ns() for point in result.points):
        yield "in brackets behind such a difference: its interval, of at least 95% confidence, in us"
    else:
        yield "too few for an interval, which takes six: what lies within the clocks' drift is not known"
    yield from throttled_notes(result.throttled_launches, result.launches)


def _in_turn_note(made: str) -> str:
    return (
        f"T: median replay, of each alone; E_res, and beyond T_FA: median of {made} blocks, in which the "
        "attention and an implementation take turns every few ms at the same clocks, not of the T shown"
    )


def _title(result: ProfileResult) -> str:
    return f"{result.request.workload.name}, {result.device}: path {result.request.path}"


def _predicted(one: Compared, predicted: float | None, shown: Shown) -> str:
    return with_error(shown(predicted), one.error_pct(predicted))


def _beyond(point: PointResult, implementation: Implementation) -> str:
    """What an implementation takes beyond its reference, with its interval."""
    return with_interval(point.residual_ns(implementation), point.residual_ci95_ns(implementation))


def _tokens(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.0f}"
