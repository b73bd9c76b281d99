"""An emulation as tables: every schedule beside what was predicted of it; of a sweep one line a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter

from rich.console import Group, RenderableType
from rich.text import Text

from xstage_tune.base.number_format import ABSENT, duration, factor, percent, signed_percent
from xstage_tune.experiments.emulation.cases import WITHOUT_STORES
from xstage_tune.experiments.emulation.request import EmulationRequest
from xstage_tune.experiments.emulation.result import CaseResult, EmulationResult, Residual, error_pct
from xstage_tune.families.architecture import unmeasured_compute
from xstage_tune.families.launch import GivenTimes
from xstage_tune.launches.skeleton_figures import LaunchFigures, median_of
from xstage_tune.report.study_words import latency_words, other_gpu_words, workload_words
from xstage_tune.report.tables import Column, TableData, render_table

Figure = Callable[[LaunchFigures], float | None]


def emulation_report(result: EmulationResult) -> RenderableType:
    """The tables for a terminal."""
    parts = [render_table(table) for table in emulation_tables(result)]
    return Group(Text(workload_words(result.request.workload)), Text(), *_spaced(parts))


def emulation_tables(result: EmulationResult) -> tuple[TableData, ...]:
    """Of one value of everything, a line a schedule; of a sweep, a line a value."""
    if result.request.sweep is not None:
        return (_sweep_table(result),)
    tables = [_schedules(result), _predictions(result)]
    if result.residuals():
        tables.append(_residuals(result))
    return tuple(tables)


def _spaced(parts: list[RenderableType]) -> Iterator[RenderableType]:
    for part in parts:
        yield part
        yield Text()


def _schedules(result: EmulationResult) -> TableData:
    """What was measured of each schedule."""
    first = result.cases[0].makespan_ns if result.cases else 0.0
    rows = tuple(
        (
            one.case.label,
            duration(one.makespan_ns),
            percent(100 * one.spread),
            factor(first / one.makespan_ns) if one.makespan_ns else ABSENT,
            *(_time(one, attrgetter(f"issue_{name}_ns")) for name in ("mean", "p50", "p90", "p99")),
            _time(one, attrgetter("stall_ns")),
            _time(one, attrgetter("dependency_wait_ns")),
            percent(100 * (median_of(one.launches, attrgetter("tensor_active")) or 0.0), 1),
        )
        for one in result.cases
    )
    columns = (
        Column("schedule"), Column("makespan", "right"), Column("spread", "right"),
        Column("first over it", "right"), Column("T_RS mean", "right"), Column("p50", "right"),
        Column("p90", "right"), Column("p99", "right"), Column("stall of an SM", "right"),
        Column("dependency wait", "right"), Column("Tensor active", "right"),
    )  # fmt: skip
    return TableData(_title(result), columns, rows, _notes(result))


def _predictions(result: EmulationResult) -> TableData:
    """Emulated beside the simulator and the closed forms."""
    rows: list[tuple[str, ...]] = [
        (
            one.case.label,
            duration(one.makespan_ns),
            _beside(one.simulated_makespan_ns, one.makespan_ns),
            _beside(one.closed_makespan_ns, one.makespan_ns),
            duration(one.issue_mean_ns),
            _beside(one.simulated_issue_mean_ns, one.issue_mean_ns),
            _beside(one.closed.issue_ns if one.closed else None, one.issue_mean_ns),
        )
        for one in result.cases
    ]
    sections = frozenset[int]()
    ratios = result.interleaved_over_wave()
    if ratios["emulated"] is not None:
        sections = frozenset({len(rows)})
        shown = (_ratio(ratios[name]) for name in ("emulated", "simulated", "closed_form"))
        rows.append(("interleaved over wave", *shown, "", "", ""))
    columns = [
        Column("predicted"), Column("makespan", "right"), Column("simulated", "right"),
        Column("closed form", "right"), Column("T_RS mean", "right"), Column("simulated", "right"),
        Column("closed form", "right"),
    ]  # fmt: skip
    as_kernels = [one.as_kernel_ns for one in result.cases]
    if any(as_kernels):
        columns.append(Column("as a kernel", "right"))
        shown_as = [*(ABSENT if ns is None else duration(ns) for ns in as_kernels), ""]
        rows = [(*row, cell) for row, cell in zip(rows, shown_as, strict=False)]
    notes = [
        f"from platform {result.request.platform.name}; in brackets how far a prediction is above what ran",
        "closed form: the steady state, of bursts that stay aligned; CTAs of a finite run drift apart",
        "T_RS: with epilogue and local stores; audit has the remote ones alone",
    ]
    if result.request.completion_coupled:
        notes.append(
            f"equation 17 with {latency_words()}; it leaves out that a run of bursts begins with free "
            "staging slots and a drained path"
        )
    if any(as_kernels):
        notes.append(
            "a skeleton loads nothing and hands tiles over; as a kernel: simulated with operands that wait "
            "behind its stores, and no hand-over, until all stores have arrived; search compares that"
        )
    if result.device == "simulator":
        notes.append("the device is the simulator, so it has no prediction of its own to stand beside")
    return TableData("Predicted", tuple(columns), tuple(rows), tuple(notes), sections)


def _residuals(result: EmulationResult) -> TableData:
    """E_res of attention's tile orders."""
    rows = tuple(
        (
            one.case.label,
            *map(_difference, (one.emulated_ns, one.simulated_ns, one.closed_ns)),
        )
        for one in result.residuals()
    )
    columns = (
        Column("residual E_res"), Column("emulated", "right"), Column("simulated", "right"),
        Column(_residual_equation(result.request), "right"),
    )  # fmt: skip
    return TableData("Against the launch without remote stores", columns, rows)


def _sweep_table(result: EmulationResult) -> TableData:
    if result.request.compares_alone:
        return _attention_sweep(result)
    return _moe_sweep(result)


def _moe_sweep(result: EmulationResult) -> TableData:
    """A line a value: each schedule's time with the simulator's error; their ratio, or the waits of one."""
    names = tuple(dict.fromkeys(one.case.name for one in result.cases))
    ratio = {"wave", "interleaved"} <= set(names)
    waits = len(names) == 1
    predicted = _has_simulated(result)
    rows = []
    for value in result.values():
        cells = [_value(result, value)]
        for name in names:
            one = result.of(name, value)
            cells.append(_with_error(one) if one else ABSENT)
        if ratio:
            both = result.interleaved_over_wave(value)
            cells += [_ratio(both["emulated"]), *([_ratio(both["simulated"])] if predicted else [])]
        only = result.of(names[0], value)
        if waits and only is not None:
            figures = ("issue_mean_ns", "stall_ns", "dependency_wait_ns")
            cells += [_time(only, attrgetter(figure)) for figure in figures]
        rows.append(tuple(cells))
    heads = [str(result.request.sweep.key if result.request.sweep else ""), *names]
    heads += ["interleaved over wave", *(["simulated"] if predicted else [])] if ratio else []
    heads += ["T_RS mean", "stall of an SM", "dependency wait"] if waits else []
    columns = tuple(Column(head, "right") for head in heads)
    return TableData(_title(result), columns, tuple(rows), (_bracket_note(result), *_notes(result)))


def _attention_sweep(result: EmulationResult) -> TableData:
    """A line a value: T_FA, and of each tile order E_res as emulated, simulated and by the equation."""
    residuals = {(one.case.name, one.case.value): one for one in result.residuals()}
    names = tuple(dict.fromkeys(name for name, _ in residuals))
    predicted = _has_simulated(result)
    rows = []
    for value in result.values():
        alone = result.of(WITHOUT_STORES, value)
        cells = [_value(result, value), duration(alone.makespan_ns) if alone else ABSENT]
        for name in names:
            one: Residual | None = residuals.get((name, value))
            shown = (one.emulated_ns, one.simulated_ns, one.closed_ns) if one else (None,) * 3
            cells += [_difference(time_ns) for at, time_ns in enumerate(shown) if predicted or at != 1]
            fused = result.of(name, value)
            cells.append(duration(fused.issue_mean_ns) if fused else ABSENT)
        rows.append(tuple(cells))
    heads = [str(result.request.sweep.key if result.request.sweep else ""), "T_FA"]
    for name in names:
        heads += [f"{name}: E_res", *(["simulated"] if predicted else [])]
        heads += [_residual_equation(result.request), "T_RS mean"]
    columns = tuple(Column(head, "right") for head in heads)
    return TableData(_title(result), columns, tuple(rows), _notes(result))


def _has_simulated(result: EmulationResult) -> bool:
    return any(one.simulated for one in result.cases)


def _title(result: EmulationResult) -> str:
    request = result.request
    coupled = ", completion-coupled" if request.completion_coupled else ""
    where = f"{result.device_name}, simulated" if result.device == "simulator" else result.device
    return f"{request.workload.name}, {where}: path {request.path}, {request.flavour}{coupled}"


def _notes(result: EmulationResult) -> tuple[str, ...]:
    request, marks = result.request, result.landmarks
    notes = [f"{request.config.tile_label}; medians of {request.repeats} repeats in rotated order"]
    if request.other_gpu:
        notes.append(other_gpu_words(request.platform, request.other_gpu))
    if (unmeasured := unmeasured_compute(request.platform)) and request.given == GivenTimes():
        notes.append(unmeasured)
    if request.compares_alone:
        notes.append("until the last store is accepted; a kernel ends when it has arrived (profile, search)")
        if request.config.paces_stores:
            notes.append(
                "T_RS: of the issue role, which stores a tile at once; this kernel spreads it over the next "
                "Q-loop"
            )
    if not request.dependencies:
        notes.append("Linear-2 ran as if its inputs were ready")
    if marks.lead_knee_rows is not None and request.sweep and request.sweep.key == "lead":
        notes.append(f"D_knee = {marks.lead_knee_rows:.1f} rows (equation 16)")
    if marks.converged_tokens is not None and request.sweep and request.sweep.key == "tokens":
        notes.append(f"M*_ub = {marks.converged_tokens:,.0f} tokens (equation 20)")
    if result.throttled_launches:
        notes.append(f"the GPU's clocks were held down in {result.throttled_launches} launches")
    return tuple(notes)


def _value(result: EmulationResult, value: float | None) -> str:
    """A value of the sweep, the first one at or beyond the landmark marked."""
    sweep = result.request.sweep
    if sweep is None or value is None:
        return ABSENT
    marks = {
        "lead": ("D_knee", result.landmarks.lead_knee_rows),
        "tokens": ("M*_ub", result.landmarks.converged_tokens),
    }
    name, at = marks.get(sweep.key, ("", None))
    beyond = [one for one in sweep.values if at is not None and one >= at]
    return f"{name} <= {sweep.shown(value)}" if beyond and value == min(beyond) else sweep.shown(value)


def _bracket_note(result: EmulationResult) -> str:
    if result.device == "simulator":
        return "the device is the simulator: nothing is predicted beside it"
    return f"in brackets how far the simulator, on platform {result.request.platform.name}, is above what ran"


def _residual_equation(request: EmulationRequest) -> str:
    return "equation 17" if request.completion_coupled else "equations 18, 19"


def _difference(time_ns: float | None) -> str:
    """A difference of two times, without the noise of its last digits."""
    return duration(None if time_ns is None else round(time_ns, 3) + 0.0)


def _time(one: CaseResult, of: Figure) -> str:
    return duration(median_of(one.launches, of))


def _with_error(one: CaseResult) -> str:
    error = error_pct(one.simulated_makespan_ns, one.makespan_ns)
    return duration(one.makespan_ns) + (f" [{signed_percent(error)}]" if error is not None else "")


def _beside(predicted: float | None, emulated: float | None) -> str:
    error = error_pct(predicted, emulated)
    return duration(predicted) + (f" [{signed_percent(error)}]" if error is not None else "")


def _ratio(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3f}x"
