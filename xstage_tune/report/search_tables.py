"""The result of a search, or of a suite, as tables."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from xstage_tune.base.number_format import duration, factor, percent
from xstage_tune.report.tables import Column, TableData, render_table
from xstage_tune.search.result import Outcome, SearchResult
from xstage_tune.search.suite import Ratios, SuiteResult, SuiteRow

_MOST_TIES = 5


def search_report(result: SearchResult) -> RenderableType:
    """The answer beside the baselines and the bound, and what was cut."""
    tables = [_outcomes(result), *([_failures(result)] if result.failures else []), _cuts(result)]
    return Group(*(part for table in tables for part in (render_table(table), Text())))


def suite_report(result: SuiteResult) -> RenderableType:
    """One line a model, the summary of all, and the study of each configuration."""
    tables = (_models(result), _summary(result), _studies(result))
    return Group(*(part for table in tables for part in (render_table(table), Text())))


def _studies(result: SuiteResult) -> TableData:
    columns = (
        Column("workload"), Column("precision"), Column("routing"), Column("tokens a rank", "right"),
        Column("tuned", "right"), Column("study"),
    )  # fmt: skip
    rows = (
        (
            row.workload,
            row.precision,
            row.routing,
            f"{row.tokens_per_rank:,}",
            duration(row.tuned_ns),
            row.study_id,
        )
        for row in result.rows
    )
    notes = (f"xstage-tune export --suite {result.suite_id} -o FOLDER writes them all",)
    return TableData(f"Studies of suite {result.suite_id}", columns, tuple(rows), notes)


def _outcomes(result: SearchResult) -> TableData:
    versus = "default" if result.default else "heuristics"
    names = [result.objective, "repeats"] + ([] if result.objective == "latency" else ["latency"])
    columns = (
        Column("config"),
        Column("what"),
        *(Column(name, "right") for name in (*names, f"{versus} over it")),
    )
    rows = [_outcome_row(result.best, _answer_words(result), result)]
    if result.default and result.default.config != result.best.config:
        rows.append(_outcome_row(result.default, "default", result))
    rows += [_outcome_row(outcome, name, result) for name, outcome in result.heuristics.items()]
    sections = {1, len(rows)}
    rows += [_outcome_row(outcome, "tie", result) for outcome in result.ties[:_MOST_TIES]]
    return TableData(
        f"{result.workload} on {result.platform}, {result.device}, by {result.objective}",
        columns,
        tuple(rows),
        tuple(_notes(result)),
        frozenset(sections),
    )


def _answer_words(result: SearchResult) -> str:
    if result.beats_baseline:
        return "best, tuned"
    name = "default" if result.default else "best heuristic"
    return f"best, the {name}: nothing surely beats it"


def _outcome_row(outcome: Outcome, what: str, result: SearchResult) -> tuple[str, ...]:
    low, high = min(outcome.samples_ns), max(outcome.samples_ns)
    latency = () if result.objective == "latency" else (duration(outcome.latency_ns),)
    baseline = result.baseline
    over = baseline.objective_ns / outcome.objective_ns if baseline and outcome.objective_ns > 0 else None
    return (
        outcome.config.label,
        what,
        duration(outcome.objective_ns),
        f"{duration(low)} to {duration(high)}",
        *latency,
        factor(over),
    )


def _notes(result: SearchResult) -> Iterator[str]:
    above = result.above_bound
    if above is None:
        yield "no bound: nothing forces a role to wait"
    else:
        yield (
            f"bound {duration(result.bound_ns)}: no config that was left out is faster; "
            f"the best is within {percent(100 * above)} of it"
        )
    yield f"{result.evaluations} configs evaluated; stopped: {result.stopped}"
    yield from result.warnings
    if result.slower:
        yield (
            f"{result.slower} of them could not be the answer: their launch takes longer than the "
            f"{'default' if result.default else 'heuristic'}'s"
        )
    if result.assumed:
        yield f"assumed, not measured: {result.assumed}"
    if result.failed:
        yield f"{result.failed} of them failed"
    if len(result.ties) > _MOST_TIES:
        yield f"{len(result.ties) - _MOST_TIES} more ties"
    if result.study_id:
        yield f"study {result.study_id}, seed {result.seed}, sampler {result.sampler}"


def _failures(result: SearchResult) -> TableData:
    rows = tuple((f"{group.configs:,}", group.reason, group.example) for group in result.failures)
    columns = (Column("failed", "right"), Column("because"), Column("first such config"))
    return TableData("Configs that failed", columns, rows)


def _cuts(result: SearchResult) -> TableData:
    rows = tuple((cut.reason, f"{cut.configs:,}", cut.detail) for cut in result.cuts)
    columns = (Column("not evaluated"), Column("configs", "right"), Column("because"))
    return TableData("Configs that were cut", columns, rows)


def _models(result: SuiteResult) -> TableData:
    columns = (
        Column("model"), Column("configurations", "right"), Column("int. over wave", "right"),
        Column("least", "right"), Column("most", "right"), Column("tuned over wave", "right"),
        Column("tuned over heuristics", "right"),
    )  # fmt: skip
    rows = []
    for model in dict.fromkeys(row.model for row in result.rows):
        of_model = [row for row in result.rows if row.model == model]
        rows.append(_model_row(model, of_model))
    return TableData(f"{result.suite} on {result.platform}, {result.device}", columns, tuple(rows))


def _model_row(model: str, rows: list[SuiteRow]) -> tuple[str, ...]:
    interleaved = Ratios.of([row.interleaved_over_wave for row in rows])
    tuned = Ratios.of([row.tuned_over_wave for row in rows])
    heuristics = Ratios.of([row.tuned_over_heuristics for row in rows])
    return (
        model,
        str(len(rows)),
        factor(interleaved.geomean),
        factor(interleaved.min),
        factor(interleaved.max),
        factor(tuned.geomean),
        factor(heuristics.geomean),
    )


def _summary(result: SuiteResult) -> TableData:
    columns = (
        Column("over all"), Column("geomean", "right"), Column("median", "right"),
        Column("most", "right"), Column("least", "right"), Column("published", "left"),
    )  # fmt: skip
    published = "geomean 1.18x, median 1.17x, most 1.62x, least 0.94x"
    rows = [
        ("interleaved over wave", result.interleaved_over_wave, published),
        ("tuned over wave", result.tuned_over_wave, ""),
        ("tuned over today's heuristics", result.tuned_over_heuristics, ""),
    ]
    return TableData(
        "Summary",
        columns,
        tuple(
            (name, factor(r.geomean), factor(r.median), factor(r.max), factor(r.min), note)
            for name, r, note in rows
        ),
        (
            "interleaved: the default's tiles with a lead of two D_knee and a margin",
            f"{result.evaluations} evaluations for the tuned configs",
            "assumed, since not published: the three sizes, the law of the skew, DiT-MoE's shape",
        ),
    )
