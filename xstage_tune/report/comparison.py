"""The answer of a study beside the default and today's heuristics, as configured and as simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from xstage_tune.base.number_format import ABSENT, byte_count, duration, factor, percent
from xstage_tune.report.figure import Floats
from xstage_tune.report.simulated import Case
from xstage_tune.report.study_case import StudyCase
from xstage_tune.report.tables import Column, TableData
from xstage_tune.search.space import params_of


def comparison_table(study: StudyCase, cases: Sequence[Case]) -> TableData:
    """One column a config: parameters, objective, and what its simulated launch does."""
    params = [params_of(case.chosen.config) for case in cases]
    names = dict.fromkeys(name for each in params for name in each)
    rows = [(name.replace("_", " "), *(str(each.get(name, ABSENT)) for each in params)) for name in names]
    simulated_from = len(rows) + 3
    rows += _objectives(study, cases)
    rows += _simulated(cases)
    columns = (Column(""), *(Column(case.chosen.title, "right") for case in cases))
    notes = (
        f"{study.result.objective} on {study.result.device}, by which the search chose",
        "below the last line: one simulated launch; spans of the tiles that store to a remote owner",
        *_handed_over_notes(cases),
    )
    sections = frozenset({len(names), simulated_from})
    return TableData("Configs, objectives and launches", columns, tuple(rows), notes, sections)


def _handed_over_notes(cases: Sequence[Case]) -> Iterator[str]:
    names = [case.chosen.title for case in cases if case.chosen.hands_stores_over]
    if names:
        yield (
            f"{', '.join(names)}: T_RS is what staging takes; others store the tile, and spread st.v4 stores "
            "over the next Q-loop"
        )


def _objectives(study: StudyCase, cases: Sequence[Case]) -> list[tuple[str, ...]]:
    result = study.result
    default_ns = result.default.objective_ns if result.default else None
    objectives_ns = [study.objective_ns(case.chosen.config) for case in cases]
    above = [
        percent(100 * (ns / result.bound_ns - 1)) if result.bound_ns > 0 else ABSENT for ns in objectives_ns
    ]
    return [
        (result.objective, *map(duration, objectives_ns)),
        (
            "default over it",
            *(
                factor(default_ns / ns) if default_ns is not None and ns > 0 else ABSENT
                for ns in objectives_ns
            ),
        ),
        ("above the lower bound", *above),
    ]


def _simulated(cases: Sequence[Case]) -> list[tuple[str, ...]]:
    def row(name: str, show: Callable[[Case], str]) -> tuple[str, ...]:
        return (name, *(show(case) for case in cases))

    handed_over = [
        row("stores handed over, median", lambda case: _quantile(case.handed_over_ns(), 0.5)),
        row("stores handed over, p95", lambda case: _quantile(case.handed_over_ns(), 0.95)),
    ]
    return [
        row("simulated launch", lambda case: duration(case.run.end_ns)),
        row("SMs whose mainloop runs", lambda case: percent(100 * case.tensor_active(), 1)),
        row("wait for staging, of an SM", lambda case: duration(_of_an_sm(case, case.run.stall_ns))),
        row("wait for inputs, of an SM", lambda case: duration(_of_an_sm(case, case.run.dependency_wait_ns))),
        row("span T_RS, median", lambda case: _quantile(case.spans_ns(), 0.5)),
        row("span T_RS, p95", lambda case: _quantile(case.spans_ns(), 0.95)),
        *(handed_over if any(case.chosen.hands_stores_over for case in cases) else ()),
        row("queue at capacity", lambda case: percent(100 * case.queue_full(), 1)),
        row("most in the queue", lambda case: byte_count(case.run.peak_occupancy_bytes)),
    ]


def _of_an_sm(case: Case, waits_ns: np.ndarray) -> float:
    return float(waits_ns.sum()) / case.run.streams.sms


def _quantile(spans_ns: Floats, share: float) -> str:
    return duration(float(np.quantile(spans_ns, share))) if spans_ns.size else ABSENT
