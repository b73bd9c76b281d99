"""The result of a search, or of a suite, as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rich.console import RenderableType

from xstage_tune.base.number_format import count, duration, factor, percent
from xstage_tune.export.verify import Verification
from xstage_tune.report.tables import Column, Columns, TableData, number, render_report, table
from xstage_tune.search.build import BuildResult
from xstage_tune.search.evaluation import FailureGroup
from xstage_tune.search.ladder import LadderResult, Step
from xstage_tune.search.result import Cut, ModelCheck, Outcome, SearchResult
from xstage_tune.search.suite import Ratios, SuiteResult, SuiteRow

_MOST_TIES = 5


def search_report(result: SearchResult) -> RenderableType:
    """The answer beside the baselines and the bound, and what was cut."""
    return render_report(
        [_outcomes(result), *([_failures(result.failures)] if result.failures else []), _cuts(result)]
    )


def build_report(result: BuildResult) -> RenderableType:
    """How many kernels a space has, and which configs have none that is usable."""
    rows = [
        ("configs", count(result.configs)),
        ("without a usable kernel", count(result.unusable)),
        ("kernels of the others", count(result.kernels)),
        ("of them in the cache before", count(result.cached)),
    ]
    columns: Columns[tuple[str, str]] = (
        Column("what", lambda row: row[0]),
        number("number", lambda row: row[1], str),
    )
    notes = (
        f"compiled in {result.elapsed_s:.1f} s into {result.folder}",
        "a machine with the same compiler takes them from a copy of that folder",
    )
    built = table(f"Kernels of {result.workload}", columns, rows, notes=notes)
    return render_report([built, *([_failures(result.failures)] if result.failures else [])])


def verification_report(found: Verification) -> RenderableType:
    """The verdict beside what was measured and what was exported."""
    over = found.over_default
    here = f"{1 / over.value:.2f}x [{1 / over.high:.2f}, {1 / over.low:.2f}]" if over and over.low > 0 else ""
    rows = [
        ("verdict", f"{found.verdict}: {found.why}"),
        ("config", found.config),
        ("default", found.default),
        ("latency here", duration(found.latency_ns)),
        ("default over it, here", here or "not measured"),
        ("when exported", f"{1 / found.exported:.2f}x" if found.exported else "not measured"),
        *(("differs", difference) for difference in found.differs),
    ]
    columns: Columns[tuple[str, str]] = (
        Column("export", lambda row: row[0]),
        Column(found.workload, lambda row: row[1]),
    )
    return render_report([table(f"On {found.device}", columns, rows)])


def ladder_report(result: LadderResult) -> RenderableType:
    """One line a size."""

    def best(step: Step) -> Outcome | None:
        return step.result.best if step.result else None

    def over(step: Step) -> float | None:
        baseline = step.result.baseline if step.result else None
        found = best(step)
        return (
            baseline.objective_ns / found.objective_ns if baseline and found and found.objective_ns else None
        )

    columns: Columns[Step] = (
        Column("size", lambda step: step.setting),
        Column("best", lambda step: outcome.config.label if (outcome := best(step)) else "failed"),
        number("objective", lambda step: outcome.objective_ns if (outcome := best(step)) else None, duration),
        number("default over it", over, factor),
        number("evaluated", lambda step: step.result.evaluations if step.result else None, count),
        Column("study", lambda step: step.result.study_id if step.result else ""),
    )
    notes = [f"{step.setting} failed: {step.failed}" for step in result.steps if step.failed]
    notes.append(f"xstage-tune export --suite {result.suite_id} -o FOLDER writes them all")
    title = f"{result.workload} on {result.platform}, {result.device}"
    return render_report([table(title, columns, result.steps, notes=notes)])


def suite_report(result: SuiteResult) -> RenderableType:
    """One line a model, the summary of all, and the study of each configuration."""
    return render_report((_models(result), _summary(result), _studies(result)))


def _studies(result: SuiteResult) -> TableData:
    columns: Columns[SuiteRow] = (
        Column("workload", lambda row: row.workload),
        Column("precision", lambda row: row.precision),
        Column("routing", lambda row: row.routing),
        number("tokens a rank", lambda row: row.tokens_per_rank, count),
        number("tuned", lambda row: row.tuned_ns, duration),
        Column("study", lambda row: row.study_id),
    )
    notes = (f"xstage-tune export --suite {result.suite_id} -o FOLDER writes them all",)
    return table(f"Studies of suite {result.suite_id}", columns, result.rows, notes=notes)


def _outcomes(result: SearchResult) -> TableData:
    """The answer, then what it had to beat, then what cannot be told from it."""
    best, default, baseline = result.best, result.default, result.baseline
    rows = [(best, _answer_kind(result))]
    if default and default.config != best.config:
        rows.append((default, "default"))
    rows += [(outcome, name) for name, outcome in result.heuristics.items()]
    sections = {1, len(rows)}
    rows += [(outcome, "tie") for outcome in result.ties[:_MOST_TIES]]

    def over(outcome: Outcome) -> float | None:
        known = baseline is not None and outcome.objective_ns > 0
        return baseline.objective_ns / outcome.objective_ns if baseline is not None and known else None

    latency: Column[_Named] = number("latency", lambda row: row[0].latency_ns, duration)
    columns: Columns[_Named] = (
        Column("config", lambda row: row[0].config.label),
        Column("what", lambda row: row[1]),
        number(result.objective, lambda row: row[0].objective_ns, duration),
        number("interval" if best.in_turn else "repeats", lambda row: row[0].range_ns, _range),
        *([] if result.objective == "latency" else [latency]),
        number(f"{'default' if default else 'heuristics'} over it", lambda row: over(row[0]), factor),
    )
    title = f"{result.workload} on {result.platform}, {result.device}, by {result.objective}"
    return table(title, columns, rows, notes=_notes(result), sections=sections)


_Named = tuple[Outcome, str]


def _range(samples_ns: Sequence[float]) -> str:
    return f"{duration(min(samples_ns))} to {duration(max(samples_ns))}"


def _answer_kind(result: SearchResult) -> str:
    if result.beats_baseline:
        return "best, tuned"
    name = "default" if result.default else "best heuristic"
    return f"best, the {name}: nothing surely beats it"


def _notes(result: SearchResult) -> Iterator[str]:
    above = result.above_bound
    if above is None and result.objective == "latency":
        yield "no bound is known: a config that was not evaluated may be faster"
    elif above is None:
        yield "no bound: nothing forces a role to wait"
    else:
        yield (
            f"bound {duration(result.bound_ns)}: no config that was left out is faster; "
            f"the best is within {percent(100 * above)} of it"
        )
    yield f"{result.evaluations} configs evaluated; stopped: {result.stopped}"
    yield from result.warnings
    if result.hides_more is not None and result.best.exposed_ns is not None:
        yield (
            f"{result.hides_more.label} ties with it and is faster by its median; the best exposes less of "
            f"its stores: E_res {duration(result.best.exposed_ns)}"
        )
    if result.best.cold_ns is not None:
        yield f"with an L2 that holds none of its data the best takes {duration(result.best.cold_ns)}"
    if throttled := sorted({reason for outcome in result.named for reason in outcome.throttled}):
        yield f"the GPU was slowed down during the last comparison: {', '.join(throttled)}"
    if result.model is not None:
        yield from _model_notes(result.model)
    if result.busy_s is not None and result.elapsed_s:
        idle = percent(100 * max(0.0, 1 - result.busy_s / result.elapsed_s), 0)
        yield f"the GPU ran for {result.busy_s:.1f} s of {result.elapsed_s:.1f} s: idle {idle}"
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


def _model_notes(model: ModelCheck) -> Iterator[str]:
    """What was predicted beside what was measured, and what was found among what would be left out."""
    parts = (
        ("the closed forms", model.closed_form_error),
        ("what was expected in the first half of the trials", model.first_half_error),
        ("in the second", model.second_half_error),
    )
    errors = ", ".join(f"{what} by {percent(100 * error, 1)}" for what, error in parts if error is not None)
    if errors:
        yield f"median of how far times were from the model: {errors}"
    if model.checked and model.checked_best_over_best is not None:
        found = "no better" if model.checked_best_over_best >= 1 else "BETTER"
        yield (
            f"{model.checked} configs that the model left out were measured to check it "
            f"({model.checked_bounded} cut by a bound): {found} than the others, the best of them takes "
            f"{factor(model.checked_best_over_best)} of the best"
        )


def _failures(failures: Sequence[FailureGroup]) -> TableData:
    columns: Columns[FailureGroup] = (
        number("failed", lambda group: group.configs, count),
        Column("fault", lambda group: group.fault),
        Column("because", lambda group: group.reason),
        Column("first such config", lambda group: group.example),
    )
    return table("Configs that failed", columns, failures)


def _cuts(result: SearchResult) -> TableData:
    columns: Columns[Cut] = (
        Column("not evaluated", lambda cut: cut.reason),
        number("configs", lambda cut: cut.configs, count),
        Column("because", lambda cut: cut.detail),
    )
    return table("Configs that were cut", columns, result.cuts)


def _models(result: SuiteResult) -> TableData:
    models = {
        model: [row for row in result.rows if row.model == model]
        for model in dict.fromkeys(row.model for row in result.rows)
    }

    def ratios(of: Callable[[SuiteRow], float | None], model: str) -> Ratios:
        return Ratios.of([of(row) for row in models[model]])

    interleaved = partial(ratios, lambda row: row.interleaved_over_wave)
    local = partial(ratios, lambda row: row.interleaved_over_wave_local)
    tuned = partial(ratios, lambda row: row.tuned_over_wave)
    heuristics = partial(ratios, lambda row: row.tuned_over_heuristics)
    columns: Columns[str] = (
        Column("model", str),
        number("configurations", lambda model: len(models[model])),
        number("int. over wave", lambda model: interleaved(model).geomean, factor),
        number("least", lambda model: interleaved(model).min, factor),
        number("most", lambda model: interleaved(model).max, factor),
        number("without path", lambda model: local(model).geomean, factor),
        number("tuned over wave", lambda model: tuned(model).geomean, factor),
        number("tuned over heuristics", lambda model: heuristics(model).geomean, factor),
    )
    return table(f"{result.suite} on {result.platform}, {result.device}", columns, models)


def _summary(result: SuiteResult) -> TableData:
    published = "geomean 1.18x, median 1.17x, most 1.62x, least 0.94x"
    columns: Columns[tuple[str, Ratios, str]] = (
        Column("over all", lambda row: row[0]),
        number("geomean", lambda row: row[1].geomean, factor),
        number("median", lambda row: row[1].median, factor),
        number("most", lambda row: row[1].max, factor),
        number("least", lambda row: row[1].min, factor),
        Column("published", lambda row: row[2]),
    )
    rows = (
        ("interleaved over wave", result.interleaved_over_wave, published),
        ("the same, nothing stored remotely", result.interleaved_over_wave_local, ""),
        ("tuned over wave", result.tuned_over_wave, ""),
        ("tuned over today's heuristics", result.tuned_over_heuristics, ""),
    )
    notes = (
        "interleaved: the default's tiles with a lead of two D_knee and a margin",
        "without path: int. over wave with nothing stored remotely, what the order of tiles gains by itself",
        f"{result.evaluations} evaluations for the tuned configs",
        "assumed, since not published: the three sizes, the law of the skew, DiT-MoE's shape",
    )
    return table("Summary", columns, rows, notes=notes)
