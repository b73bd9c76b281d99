"""The page of a study: verdict, search, the answer beside its baselines, timelines, distributions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from xstage_tune.base.number_format import byte_count, duration, factor, percent, share
from xstage_tune.experiments.study import Case, Residuals, StudyAnalysis
from xstage_tune.families.kernel_launch import OTHER_GPU
from xstage_tune.report.audit_tables import verdict_table
from xstage_tune.report.figure import Floats
from xstage_tune.report.page import Block, render_page
from xstage_tune.report.sentences import (
    answer_sentence,
    platform_marks,
    platform_sentence,
    search_sentence,
    verdict_sentence,
    workload_sentence,
)
from xstage_tune.report.study_figures import (
    OperatingPoint,
    cuts_table,
    distribution_plate,
    history_plate,
    operating_plate,
    residual_plate,
)
from xstage_tune.report.tables import Column, TableData, table
from xstage_tune.report.timeline import activity_plate, timeline_plate
from xstage_tune.search.space import params_of
from xstage_tune.search.study_case import Chosen, StudyCase

Row = TypeVar("Row")


def render_study(analysis: StudyAnalysis) -> str:
    """The page of a study."""
    study = analysis.study
    title = f"{study.workload.name} on {study.platform.name}"
    if study.result.unfinished:
        title = f"{title} (unfinished)"
    marks = platform_marks(study.platform, study.result.device.partition(OTHER_GPU)[2])
    lead = (answer_sentence(study), search_sentence(study), *marks)
    return render_page(title, tuple(_blocks(analysis)), lead)


def _blocks(analysis: StudyAnalysis) -> Iterator[Block]:
    study, cases, pair = analysis.study, analysis.cases, analysis.pair
    if pair is None:
        yield Block(paragraphs=(workload_sentence(study.workload), platform_sentence(study.platform)))
        yield _search(study)
        yield Block(heading="The answer beside its baselines", tables=(configs_table(study),))
        return
    yield _design_test(analysis)
    yield _search(study)
    yield Block(heading="The answer beside its baselines", tables=(comparison_table(study, cases),))
    yield _timelines(pair)
    yield _activity(pair)
    if study.workload.stores_remotely:
        yield _distributions([*cases, *(case for case in pair if case.coupled)])
    if analysis.residuals is not None:
        yield _residuals(analysis, *analysis.residuals)


def _design_test(analysis: StudyAnalysis) -> Block:
    study = analysis.study
    asked = (workload_sentence(study.workload), platform_sentence(study.platform))
    if not analysis.audits:
        nothing = "Nothing leaves the GPU, so there is no drain to wait for and no design test to make."
        return Block(heading="Will it stall?", paragraphs=(*asked, nothing))
    points = [
        OperatingPoint(case.chosen, made) for case, made in zip(analysis.cases, analysis.audits, strict=True)
    ]
    default, answer = points[0], next(point for point in points if point.chosen.answer)
    shown = [default] if default is answer else [default, answer]
    return Block(
        heading="Will it stall?",
        paragraphs=(*asked, *(verdict_sentence(point.audit, point.chosen.title) for point in shown)),
        figure=operating_plate(points),
        caption=(
            "Each config at its gap and burst on the law of the calibrated platform. Left of G* remote "
            "stores are issued faster than they drain, and the issue role waits; from G* on issue is back at "
            "T0. Dashed: an issuer that waits until its stores are visible pays V/R in every period."
            f"{_stored_by_others_note(points)}"
        ),
        tables=tuple(
            replace(verdict_table(point.audit), title=f"Design test: {point.chosen.title}") for point in shown
        ),
    )


def _stored_by_others_note(points: Sequence[OperatingPoint]) -> str:
    """Of the configs whose stores others issue."""
    names = [point.label for point in points if point.chosen.hands_stores_over]
    if not names:
        return ""
    return (
        f" Of {' and '.join(names)} others store beside the next Q-loop, spread over it unless they copy: "
        "the period is G as long as that drains a burst, and waiting for visibility may cost nothing."
    )


def _search(study: StudyCase) -> Block:
    return Block(
        heading="Search",
        figure=history_plate(study),
        caption=(
            "(a) Objective of each config in the order of evaluation; none in the space can be below the "
            "bound. (b) From all combinations of the axes down to those that ran: what cannot run, what its "
            "lower bound rules out, and what the model ranks last."
        ),
        tables=(cuts_table(study.result),),
    )


def _timelines(pair: tuple[Case, Case]) -> Block:
    left, right = pair
    waits = [percent(100 * _waiting(case), 1) for case in pair]
    return Block(
        heading="Timelines",
        figure=timeline_plate(pair),
        caption=(
            "The SMs that wait most, about the median, and least in (a), and the same ones in (b). Over the "
            f"whole launch a mainloop role waits for staging {waits[0]} of the time ({left.label}) and "
            f"{waits[1]} of the time ({right.label})."
        ),
    )


def _activity(pair: tuple[Case, Case]) -> Block:
    left, right = pair
    return Block(
        figure=activity_plate(pair),
        caption=(
            f"Whole launches on one time axis, until all stores have drained: {duration(left.run.end_ns)} "
            f"under {left.label}, {duration(right.run.end_ns)} under {right.label}. {_full_sentence(pair)}"
        ),
    )


def _full_sentence(pair: tuple[Case, Case]) -> str:
    """Whose queue is at its capacity, and what that does."""
    shares = [(percent(100 * case.queue_full(), 1), case.label) for case in pair]
    full = [f"{share} of the time under {label}" for share, label in shares if share != percent(0.0, 1)]
    if not full:
        return "The queue is at its capacity in neither."
    return (
        f"The queue is at its capacity {' and '.join(full)}: issue then runs at the drain rate, and the "
        "Tensor Cores fall behind."
    )


def _distributions(cases: Sequence[Case]) -> Block:
    return Block(
        heading="Span distributions",
        figure=distribution_plate(cases),
        caption=(
            "(a) How long the remote stores of a tile occupy the issue role: a curve that rises at once is "
            f"free of backpressure. {_handed_over_note(cases)}(b) What of it reaches the Tensor Cores, by "
            "how long they wait."
        ),
    )


def _handed_over_note(cases: Sequence[Case]) -> str:
    names = [case.label for case in cases if case.chosen.hands_stores_over]
    return f"Of {' and '.join(names)} it is the staging: others store the tile. " if names else ""


def _residuals(analysis: StudyAnalysis, simulated: Residuals, predicted: Residuals) -> Block:
    study, config = analysis.study, analysis.residual_config
    assert config is not None
    return Block(
        heading="Residual against sequence length",
        figure=residual_plate(study.workload, simulated, predicted),
        caption=(
            f"E_res = T_fused - T_FA of {_which(study)}, {config.label}, until all stores have arrived. "
            "Lines: closed forms in the steady state (equations 17 to 19), and the last round's drain. "
            "Points: simulated launches, whose CTAs drift apart and so wait less; T_FA is the same launch "
            "without remote stores. Waiting for completion exposes more with every output tile; the X-Stage "
            "issuer exposes its issue, and the drain that no Q-loop follows."
        ),
    )


def _which(study: StudyCase) -> str:
    return "the default" if study.result.default else "the answer"


def _waiting(case: Case) -> float:
    return float(case.run.stall_ns.sum()) / (case.run.end_ns * case.run.streams.sms)


def comparison_table(study: StudyCase, cases: Sequence[Case]) -> TableData:
    """One column a config: parameters, objective, and what its simulated launch does."""
    result, names = study.result, _axes(case.chosen for case in cases)
    rows: list[Column[Case]] = _known_columns(study, names, lambda case: case.chosen)
    simulated_from = len(rows) - 1
    rows += _simulated(handed_over=any(case.chosen.hands_stores_over for case in cases))
    notes = (
        f"{result.objective} on {result.device}, by which the search chose",
        "below the last line: one simulated launch; spans of the tiles that store to a remote owner",
        *_handed_over_notes(cases),
    )
    columns = table("Configs, objectives and launches", rows, cases, notes=notes)
    return columns.transposed(sections={len(names), simulated_from})


def configs_table(study: StudyCase) -> TableData:
    """One column a config of a kernel that is not simulated: parameters and objective."""
    names = _axes(study.chosen())
    rows: list[Column[Chosen]] = _known_columns(study, names, lambda chosen: chosen)
    notes = (f"{study.result.objective} on {study.result.device}, by which the search chose",)
    columns = table("Configs and objectives", rows, study.chosen(), notes=notes)
    return columns.transposed(sections={len(names)})


def _axes(chosen: Iterable[Chosen]) -> list[str]:
    """The knobs that any of some configs has, in their order."""
    return list(dict.fromkeys(name for one in chosen for name in params_of(one.config)))


def _known_columns(
    study: StudyCase, names: Sequence[str], chosen: Callable[[Row], Chosen]
) -> list[Column[Row]]:
    """What a search knows of a config: its knobs and its objective."""
    result = study.result
    default_ns = result.default.objective_ns if result.default else None

    def objective_ns(row: Row) -> float:
        return study.objective_ns(chosen(row).config)

    def above_bound(row: Row) -> float | None:
        return 100 * (objective_ns(row) / result.bound_ns - 1) if result.bound_ns > 0 else None

    def default_over(row: Row) -> float | None:
        return default_ns / objective_ns(row) if default_ns is not None and objective_ns(row) > 0 else None

    def knob(name: str) -> Column[Row]:
        return Column(name.replace("_", " "), lambda row: params_of(chosen(row).config).get(name))

    return [
        Column("", lambda row: chosen(row).title),
        *map(knob, names),
        Column(result.objective, objective_ns, duration),
        Column("default over it", default_over, factor),
        Column("above the lower bound", above_bound, percent),
    ]


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


def _of_an_sm(case: Case, waits_ns: Floats) -> float:
    return float(waits_ns.sum()) / case.run.streams.sms


def _quantiles(name: str, of: Callable[[Case], Floats]) -> Iterator[Column[Case]]:
    """Of spans in ns; absent where a launch has none."""
    for called, part in (("median", 0.5), ("p95", 0.95)):
        yield Column(f"{name}, {called}", partial(_quantile, of, part), duration)


def _quantile(of: Callable[[Case], Floats], part: float, case: Case) -> float | None:
    spans_ns = of(case)
    return float(np.quantile(spans_ns, part)) if spans_ns.size else None
