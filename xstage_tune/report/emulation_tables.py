"""An emulation as tables: every schedule beside what was predicted of it; of a sweep one line a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from operator import attrgetter

from rich.console import RenderableType

from xstage_tune.base.number_format import ABSENT, difference, duration, factor, percent, share, with_error
from xstage_tune.experiments.emulation.cases import WITHOUT_STORES
from xstage_tune.experiments.emulation.request import EmulationRequest
from xstage_tune.experiments.emulation.result import CaseResult, EmulationResult, Residual, error_pct
from xstage_tune.families.architecture import unmeasured_compute
from xstage_tune.families.launch import GivenTimes
from xstage_tune.launches.skeleton_figures import median_of
from xstage_tune.report.sentences import latency_note, other_gpu_note, workload_sentence
from xstage_tune.report.tables import Column, Columns, TableData, number, render_report, table

_Value = float | None  # of a sweep


def emulation_report(result: EmulationResult) -> RenderableType:
    """The tables for a terminal."""
    return render_report(emulation_tables(result), workload_sentence(result.request.workload))


def emulation_tables(result: EmulationResult) -> tuple[TableData, ...]:
    """Of one value of everything, a line a schedule; of a sweep, a line a value."""
    if result.request.sweep is not None:
        return (_sweep_table(result),)
    tables = [_schedules(result), _predictions(result)]
    if result.residuals():
        tables.append(_residuals(result))
    return tuple(tables)


def _schedules(result: EmulationResult) -> TableData:
    """What was measured of each schedule."""
    first_ns = result.cases[0].makespan_ns if result.cases else 0.0
    columns: Columns[CaseResult] = (
        Column("schedule", lambda one: one.case.label),
        _makespan(),
        number("spread", lambda one: 100 * one.spread, percent),
        number("first over it", lambda one: first_ns / one.makespan_ns if one.makespan_ns else None, factor),
        _median("T_RS mean", "issue_mean_ns"),
        _median("p50", "issue_p50_ns"),
        _median("p90", "issue_p90_ns"),
        _median("p99", "issue_p99_ns"),
        _median("stall of an SM", "stall_ns"),
        _median("dependency wait", "dependency_wait_ns"),
        _median("Tensor active", "tensor_active", share),
    )
    return table(_title(result), columns, result.cases, notes=_notes(result))


def _makespan() -> Column[CaseResult]:
    return number("makespan", lambda one: one.makespan_ns, duration)


def _median(heading: str, figure: str, show: Callable[[float], str] = duration) -> Column[CaseResult]:
    """A figure of its launches."""
    return number(heading, lambda one: median_of(one.launches, attrgetter(figure)), show)


def _predictions(result: EmulationResult) -> TableData:
    """Emulated beside the simulator and the closed forms."""
    columns: list[Column[CaseResult]] = [
        Column("predicted", lambda one: one.case.label),
        _makespan(),
        number("simulated", lambda one: _predicted(one.simulated_makespan_ns, one.makespan_ns)),
        number("closed form", lambda one: _predicted(one.closed_makespan_ns, one.makespan_ns)),
        number("T_RS mean", lambda one: one.issue_mean_ns, duration),
        number("simulated", lambda one: _predicted(one.simulated_issue_mean_ns, one.issue_mean_ns)),
        number("closed form", lambda one: _predicted(_closed_issue_ns(one), one.issue_mean_ns)),
    ]
    as_kernel = any(one.as_kernel_ns for one in result.cases)
    if as_kernel:
        columns.append(number("as a kernel", lambda one: one.as_kernel_ns, duration))
    notes = [
        f"from platform {result.request.platform.name}; in brackets how far a prediction is above what ran",
        "closed form: the steady state, of bursts that stay aligned; CTAs of a finite run drift apart",
        "T_RS: with epilogue and local stores; audit has the remote ones alone",
    ]
    if result.request.completion_coupled:
        notes.append(
            f"equation 17 with {latency_note(result.request.platform)}; it leaves out that a run of bursts "
            "begins with free staging slots and a drained path"
        )
    if as_kernel:
        notes.append(
            "a skeleton loads nothing and hands tiles over; as a kernel: simulated with operands that wait "
            "behind its stores, and no hand-over, until all stores have arrived; search compares that"
        )
    if result.device == "simulator":
        notes.append("the device is the simulator, so it has no prediction of its own to stand beside")
    predicted = table("Predicted", columns, result.cases, notes=notes)
    ratios = result.interleaved_over_wave()
    if ratios["emulated"] is None:
        return predicted
    shown = (_ratio(ratios[name]) for name in ("emulated", "simulated", "closed_form"))
    last = ("interleaved over wave", *shown, *[""] * (len(columns) - 4))
    rows = predicted.rows
    return replace(predicted, rows=(*rows, last), sections=frozenset({len(rows)}))


def _residuals(result: EmulationResult) -> TableData:
    """E_res of attention's tile orders."""
    columns: Columns[Residual] = (
        Column("residual E_res", lambda one: one.case.label),
        number("emulated", lambda one: one.emulated_ns, difference),
        number("simulated", lambda one: one.simulated_ns, difference),
        number(_residual_equation(result.request), lambda one: one.closed_ns, difference),
    )
    return table("Against the launch without remote stores", columns, result.residuals())


def _sweep_table(result: EmulationResult) -> TableData:
    """A line a value."""
    key = str(result.request.sweep.key if result.request.sweep else "")
    swept: Column[_Value] = number(key, lambda value: _marked(result, value))
    attention = result.request.compares_alone
    notes = _notes(result) if attention else (_bracket_note(result), *_notes(result))
    columns = _attention_columns(result) if attention else _moe_columns(result)
    return table(_title(result), [swept, *columns], result.values(), notes=notes)


def _moe_columns(result: EmulationResult) -> Iterator[Column[_Value]]:
    """Each schedule's time with the simulator's error; their ratio, or the waits of one."""
    names = tuple(dict.fromkeys(one.case.name for one in result.cases))
    for name in names:
        yield _of(result, name, name, lambda one: _emulated(one))
    if {"wave", "interleaved"} <= set(names):
        for heading, key in (("interleaved over wave", "emulated"), ("simulated", "simulated")):
            if key == "emulated" or _has_simulated(result):
                yield number(heading, partial(_ratio_at, result, key), _ratio)
    if len(names) == 1:
        for column in (
            _median("T_RS mean", "issue_mean_ns"),
            _median("stall of an SM", "stall_ns"),
            _median("dependency wait", "dependency_wait_ns"),
        ):
            yield _of(result, names[0], column.heading, column.cell)


def _attention_columns(result: EmulationResult) -> Iterator[Column[_Value]]:
    """T_FA, and of each tile order E_res as emulated, simulated and by the equation."""
    residuals = {(one.case.name, one.case.value): one for one in result.residuals()}
    yield _of(result, WITHOUT_STORES, "T_FA", lambda one: duration(one.makespan_ns))
    for name in dict.fromkeys(name for name, _ in residuals):

        def residual(heading: str, figure: str, name: str = name) -> Column[_Value]:
            of = attrgetter(figure)
            return number(
                heading,
                lambda value: of(residuals[name, value]) if (name, value) in residuals else None,
                difference,
            )

        yield residual(f"{name}: E_res", "emulated_ns")
        if _has_simulated(result):
            yield residual("simulated", "simulated_ns")
        yield residual(_residual_equation(result.request), "closed_ns")
        yield _of(result, name, "T_RS mean", lambda one: duration(one.issue_mean_ns))


def _of(
    result: EmulationResult, name: str, heading: str, show: Callable[[CaseResult], str]
) -> Column[_Value]:
    """What is shown of one schedule at each value of a sweep."""
    return number(heading, lambda value: result.of(name, value), show)


def _ratio_at(result: EmulationResult, key: str, value: _Value) -> float | None:
    return result.interleaved_over_wave(value)[key]


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
        notes.append(other_gpu_note(request.platform, request.other_gpu))
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


def _marked(result: EmulationResult, value: _Value) -> str:
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


def _emulated(one: CaseResult) -> str:
    return with_error(duration(one.makespan_ns), error_pct(one.simulated_makespan_ns, one.makespan_ns))


def _predicted(predicted: float | None, emulated: float | None) -> str:
    return with_error(duration(predicted), error_pct(predicted, emulated))


def _closed_issue_ns(one: CaseResult) -> float | None:
    return one.closed.issue_ns if one.closed else None


def _ratio(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3f}x"
