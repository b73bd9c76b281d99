"""The answer of a study beside the default and today's heuristics, as configured and as simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from xstage_tune.base.number_format import byte_count, duration, factor, percent, share
from xstage_tune.report.figure import Floats
from xstage_tune.report.simulated import Case
from xstage_tune.report.study_case import StudyCase
from xstage_tune.report.tables import Column, TableData, table
from xstage_tune.search.space import params_of


def comparison_table(study: StudyCase, cases: Sequence[Case]) -> TableData:
    """One column a config: parameters, objective, and what its simulated launch does."""
    result, names = (
        study.result,
        dict.fromkeys(name for case in cases for name in params_of(case.chosen.config)),
    )
    default_ns = result.default.objective_ns if result.default else None

    def objective_ns(case: Case) -> float:
        return study.objective_ns(case.chosen.config)

    def above_bound(case: Case) -> float | None:
        return 100 * (objective_ns(case) / result.bound_ns - 1) if result.bound_ns > 0 else None

    def default_over(case: Case) -> float | None:
        return default_ns / objective_ns(case) if default_ns is not None and objective_ns(case) > 0 else None

    rows: list[Column[Case]] = [
        Column("", lambda case: case.chosen.title),
        *map(_param, names),
        Column(result.objective, objective_ns, duration),
        Column("default over it", default_over, factor),
        Column("above the lower bound", above_bound, percent),
    ]
    simulated_from = len(rows) - 1
    rows += _simulated(handed_over=any(case.chosen.hands_stores_over for case in cases))
    notes = (
        f"{result.objective} on {result.device}, by which the search chose",
        "below the last line: one simulated launch; spans of the tiles that store to a remote owner",
        *_handed_over_notes(cases),
    )
    columns = table("Configs, objectives and launches", rows, cases, notes=notes)
    return columns.transposed(sections={len(names), simulated_from})


def _handed_over_notes(cases: Sequence[Case]) -> Iterator[str]:
    names = [case.chosen.title for case in cases if case.chosen.hands_stores_over]
    if names:
        yield (
            f"{', '.join(names)}: T_RS is what staging takes; others store the tile, and spread st.v4 stores "
            "over the next Q-loop"
        )


def _simulated(*, handed_over: bool) -> Iterator[Column[Case]]:
    """What one simulated launch does."""
    yield Column("simulated launch", lambda case: case.run.end_ns, duration)
    yield Column("SMs whose mainloop runs", lambda case: case.tensor_active(), share)
    yield Column("wait for staging, of an SM", lambda case: _of_an_sm(case, case.run.stall_ns), duration)
    yield Column(
        "wait for inputs, of an SM", lambda case: _of_an_sm(case, case.run.dependency_wait_ns), duration
    )
    yield from _quantiles("span T_RS", Case.spans_ns)
    if handed_over:
        yield from _quantiles("stores handed over", Case.handed_over_ns)
    yield Column("queue at capacity", lambda case: case.queue_full(), share)
    yield Column("most in the queue", lambda case: case.run.peak_occupancy_bytes, byte_count)


def _param(name: str) -> Column[Case]:
    """A knob of the config."""
    return Column(name.replace("_", " "), lambda case: params_of(case.chosen.config).get(name))


def _of_an_sm(case: Case, waits_ns: Floats) -> float:
    return float(waits_ns.sum()) / case.run.streams.sms


def _quantiles(name: str, of: Callable[[Case], Floats]) -> Iterator[Column[Case]]:
    """Of spans in ns; absent where a launch has none."""
    for called, part in (("median", 0.5), ("p95", 0.95)):
        yield Column(f"{name}, {called}", partial(_quantile, of, part), duration)


def _quantile(of: Callable[[Case], Floats], part: float, case: Case) -> float | None:
    spans_ns = of(case)
    return float(np.quantile(spans_ns, part)) if spans_ns.size else None
