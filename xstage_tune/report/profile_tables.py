"""A profile run as tables: implementations, predictions, spans; of a sweep one line a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from xstage_tune.base.number_format import (
    ABSENT,
    byte_count,
    duration,
    factor,
    percent,
    rate,
    signed_percent,
)
from xstage_tune.experiments.timing.result import NO_RESIDUAL, Beside, PointResult, ProfileResult
from xstage_tune.families.architecture import unmeasured_compute
from xstage_tune.families.attention_a2a.timing import (
    IMPLEMENTATIONS,
    RECORDING,
    SERIAL,
    Distribution,
    Implementation,
    SpanFigures,
)
from xstage_tune.model.checks import NS_PER_S
from xstage_tune.platforms.loader import is_current
from xstage_tune.report.study_words import latency_words, other_gpu_words, workload_words
from xstage_tune.report.tables import Column, TableData, render_table

Shown = Callable[[float | None], str]

_TERA = 1e12
_WORDS: dict[Implementation, str] = {
    "attention": "attention alone",
    "all-to-all": "All-to-All alone, direct stores",
    "serial-direct": "serial, direct stores of all SMs",
    "serial-copy": "serial, copy engine",
    "serial-permute": "serial, copies and permute",
    "fused": "fused",
}
_SPANS: tuple[tuple[str, Callable[[SpanFigures], Distribution | None]], ...] = (
    ("Q-loop", lambda figures: figures.q_loop),
    ("wait for a staging slot", lambda figures: figures.staging_wait),
    ("T_RS of a tile", lambda figures: figures.issue),
    ("T_RS of 64 rows", lambda figures: figures.warpgroup_issue),
)


def profile_report(result: ProfileResult) -> RenderableType:
    """The tables for a terminal."""
    parts: list[RenderableType] = [Text(workload_words(result.request.workload)), Text()]
    for table in profile_tables(result):
        parts += [render_table(table), Text()]
    return Group(*parts)


def profile_tables(result: ProfileResult) -> tuple[TableData, ...]:
    """Of a sweep a line a value; else every implementation, prediction and span."""
    if result.request.sweep is not None:
        return _sweep_table(result), _serial_table(result), *_recording_tables(result.points)
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
    rows = tuple(
        (
            _WORDS[one],
            duration(point.time_ns(one)),
            _share(point.spread(one)),
            _tflop(point.flop_per_s(one)),
            _beyond(point, one),
            _share(point.hiding_ratio(one)) if one in SERIAL else ABSENT,
            factor(point.speedup(one)) if one in SERIAL else ABSENT,
        )
        for one in IMPLEMENTATIONS
        if point.times_ns(one)
    )
    columns = (
        Column("implementation"), Column("T", "right"), Column("spread", "right"),
        Column("TFLOP/s", "right"), Column("beyond T_FA", "right"), Column("H of fused", "right"),
        Column("fused is faster", "right"),
    )  # fmt: skip
    return TableData(_title(result), columns, rows, (*_point_notes(point), *_notes(result)))


def _predictions(result: ProfileResult, point: PointResult) -> TableData:
    quantities: tuple[tuple[str, str, Shown], ...] = (
        ("issue_ns", "T_RS of a tile", duration),
        ("q_loop_ns", "G_Qloop", duration),
        ("issue_overhead_ns", "dt(M)", _difference),
        ("converged_tokens", "M*_ub, tokens", _tokens),
        ("residual_ns", "E_res", _difference),
        ("hiding_ratio", "H", _share),
    )
    found = point.compared()
    rows = tuple(
        (
            words,
            shown(found[key].measured),
            _beside(found[key], found[key].closed_form, shown),
            _beside(found[key], found[key].simulated, shown),
            shown(found[key].completion_coupled),
        )
        for key, words, shown in quantities
    )
    columns = (
        Column("predicted"), Column("measured", "right"), Column("closed form", "right"),
        Column("simulated", "right"), Column("completion-coupled", "right"),
    )  # fmt: skip
    assert point.prediction is not None
    notes = (
        f"in this tile order the stores of the last round drain in "
        f"{duration(point.prediction.closed.last_drain_ns)}, V/R, behind all Q-loops",
        _platform_note(result),
        "medians over tiles; dt(M): T_RS less that of the attention alone; M*_ub: equation 20, measured with "
        "the measured sigma; H: against direct stores",
        _coupled_note(),
    )
    return TableData("Predicted", columns, rows, notes)


def _span_table(point: PointResult) -> TableData:
    rows = []
    for one, figures in point.spans.items():
        for name, of in _SPANS:
            found = of(figures)
            if found is None:
                continue
            times = (found.mean_ns, found.p50_ns, found.p90_ns, found.p99_ns, found.max_ns)
            rows.append((_WORDS[one], name, f"{found.count:,}", *map(duration, times)))
    columns = (
        Column("spans of"), Column("what"), Column("spans", "right"), Column("mean", "right"),
        Column("p50", "right"), Column("p90", "right"), Column("p99", "right"), Column("max", "right"),
    )  # fmt: skip
    dropped = sum(figures.dropped for figures in point.spans.values())
    notes = ["of recording builds, on a rested GPU; T_RS of fused: of tiles with remote rows"]
    if dropped:
        notes.append(f"{dropped:,} spans found no room in shared memory")
    return TableData("Spans", columns, tuple(rows), tuple(notes))


def _recording_tables(points: Sequence[PointResult]) -> Iterator[TableData]:
    """What it costs to record the spans, a line a value; none of a run that did not time it."""
    if not any(point.times_ns(recording) for point in points for recording in RECORDING.values()):
        return
    rows = tuple(
        (
            str(point.case.tokens),
            *(
                cell
                for one, recording in RECORDING.items()
                for cell in (
                    duration(point.time_ns(recording)),
                    _beyond(point, recording),
                    _share(point.recording_overhead(one)),
                )
            ),
        )
        for point in points
    )
    columns = (
        Column("tokens", "right"),
        Column("attention, recording", "right"), Column("overhead", "right"), Column("of it", "right"),
        Column("fused, recording", "right"), Column("overhead", "right"), Column("of it", "right"),
    )  # fmt: skip
    note = (
        "T of recording builds in turn with those without spans; overhead: beyond those, median of the blocks"
    )
    yield TableData("What recording spans costs", columns, rows, (note,))


def _sweep_table(result: ProfileResult) -> TableData:
    rows = tuple(tuple(_sweep_row(result, point)) for point in result.points)
    columns = [
        Column("tokens", "right"), Column("T_FA", "right"), Column("TFLOP/s", "right"),
        Column("T_fused", "right"), Column("E_res", "right"), Column("of T_FA", "right"),
        Column("on the sender", "right"),
    ]  # fmt: skip
    if result.request.predicted:
        columns += [Column(head, "right") for head in ("closed form", "simulated", "completion-coupled")]
    columns.append(Column("T_RS", "right"))
    if result.request.predicted:
        columns.append(Column("closed form", "right"))
    return TableData(_title(result), tuple(columns), rows, (*_sweep_notes(result), *_notes(result)))


def _serial_table(result: ProfileResult) -> TableData:
    """Fused beside each serial version."""
    rows = tuple(
        (
            _value(result, point),
            *(_share(point.hiding_ratio(one)) for one in SERIAL),
            *(factor(point.speedup(one)) for one in SERIAL),
        )
        for point in result.points
    )
    names = [one.removeprefix("serial-") for one in SERIAL]
    columns = (
        Column("tokens", "right"),
        *(Column(f"H, {name}", "right") for name in names),
        *(Column(f"over {name}", "right") for name in names),
    )
    notes = (
        "H: hiding ratio (equation 21), of differences; over: speedup of fused over the serial version, of T",
    )
    return TableData("Beside the serial versions", columns, rows, notes)


def _sweep_row(result: ProfileResult, point: PointResult) -> Iterator[str]:
    found = point.compared()
    residual, issue = found["residual_ns"], found["issue_ns"]
    yield _value(result, point)
    yield duration(point.time_ns("attention"))
    yield _tflop(point.flop_per_s("attention"))
    yield duration(point.time_ns("fused"))
    yield _beyond(point, "fused")
    yield _share(point.residual_of_attention())
    yield _difference(point.sender_residual_ns())
    if result.request.predicted:
        yield _difference(residual.closed_form)
        yield _difference(residual.simulated)
        yield _difference(residual.completion_coupled)
    yield duration(issue.measured)
    if result.request.predicted:
        yield _beside(issue, issue.closed_form, duration)


def _value(result: ProfileResult, point: PointResult) -> str:
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


def _coupled_note() -> str:
    return f"completion-coupled: equation 17 with {latency_words()}"


def _platform_note(result: ProfileResult) -> str:
    platform, recorded = result.request.platform, ""
    if result.request.platform_recorded:
        recorded = ", the one recorded"
        if not is_current(platform):
            recorded += f", which is not {platform.name} as it is now (--platform {platform.name})"
    return (
        f"predicted from platform {platform.name}{recorded}, nothing refitted; in brackets how far a "
        "prediction is above what was measured"
    )


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
        yield _coupled_note()
        yield _platform_note(result)
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
            f"on the sender, until its last store is issued, fused takes {_difference(sender_ns)} longer "
            f"than the attention alone, {share} of T_FA (one recorded launch of either, GPU rested)"
        )
    check = point.checks.get("attention")
    if check is not None and check[0].relative_error is not None and point.is_right:
        error = f"{check[0].relative_error:.2e}"
        yield f"outputs: relative error {error} against fp32 on sampled tokens; all implementations equal"


def _notes(result: ProfileResult) -> Iterator[str]:
    request = result.request
    yield f"{request.config.label}; launches back to back in CUDA graphs, until all stores have drained"
    if request.other_gpu:
        yield other_gpu_words(request.platform, request.other_gpu)
    counts = [len(point.beyond_ns("fused")) for point in result.points] or [0]
    fewest, most = min(counts), max(counts)
    made = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    yield {
        "in-turn": "T: median replay, of each alone; E_res, and beyond T_FA: median of "
        f"{made} blocks, in which the attention and an implementation take turns every few ms at the same "
        "clocks, not of the T shown",
        "blocks": "T: median replay, of the attention those around fused; E_res, and beyond T_FA: median of "
        f"{made} blocks, each of the attention, twice the implementation, and the attention",
        "balanced": f"T: median replay; E_res, and beyond T_FA: median of the differences in {made} repeats",
    }[request.replays]
    if any(point.residual_ci95_ns() for point in result.points):
        yield "in brackets behind such a difference: its interval, of at least 95% confidence, in us"
    else:
        yield "too few for an interval, which takes six: what lies within the clocks' drift is not known"
    if result.throttled_launches:
        yield (
            f"the GPU's clocks were held down in {result.throttled_launches} of {result.launches} launches: "
            "times of those are of a GPU at its limits"
        )


def _title(result: ProfileResult) -> str:
    return f"{result.request.workload.name}, {result.device}: path {result.request.path}"


def _beside(one: Beside, predicted: float | None, shown: Shown) -> str:
    error = one.error_pct(predicted)
    return shown(predicted) + (f" [{signed_percent(error)}]" if error is not None else "")


def _beyond(point: PointResult, implementation: Implementation) -> str:
    """What an implementation takes beyond its reference, with its interval."""
    interval = _interval(point.residual_ci95_ns(implementation))
    return _difference(point.residual_ns(implementation)) + interval


def _difference(time_ns: float | None) -> str:
    """A difference of two times, without the noise of its last digits."""
    return duration(None if time_ns is None else round(time_ns, 3) + 0.0)


def _interval(ci95_ns: tuple[float, float] | None) -> str:
    """In us, behind a figure."""
    if ci95_ns is None:
        return ""
    largest_ns = max(map(abs, ci95_ns))
    decimals = 3 if largest_ns < 1e3 else 2 if largest_ns < 100e3 else 0
    return " [" + ", ".join(f"{bound / 1e3:.{decimals}f}" for bound in ci95_ns) + "]"


def _share(value: float | None) -> str:
    return ABSENT if value is None else percent(100 * value, 1)


def _tflop(flop_per_s: float | None) -> str:
    return ABSENT if flop_per_s is None else f"{flop_per_s / _TERA:.1f}"


def _tokens(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.0f}"
