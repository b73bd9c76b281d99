"""The page of a study: verdict, search, comparison, timelines, distributions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from xstage_tune.audit.run import audit
from xstage_tune.base.number_format import duration, percent
from xstage_tune.families.binding import bind
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.kernel_launch import OTHER_GPU
from xstage_tune.report.audit_tables import verdict_table
from xstage_tune.report.comparison import comparison_table
from xstage_tune.report.distribution import distribution_plate
from xstage_tune.report.history import cuts_table, history_plate
from xstage_tune.report.operating_points import OperatingPoint, operating_plate
from xstage_tune.report.page import Block, render_page
from xstage_tune.report.residual import (
    line_lengths,
    predicted_residuals,
    residual_plate,
    simulated_residuals,
)
from xstage_tune.report.sentences import (
    answer_sentence,
    platform_marks,
    platform_sentence,
    search_sentence,
    verdict_sentence,
    workload_sentence,
)
from xstage_tune.report.simulated import Case, Simulations
from xstage_tune.report.study_case import StudyCase
from xstage_tune.report.timeline import activity_plate, timeline_plate


def render_study(study: StudyCase) -> str:
    """The page of ``study``. Launches are simulated anew, as a search on the simulator does.

    Raises:
        UsageError: the platform lacks what the audit or the simulator needs.
    """
    title = f"{study.workload.name} on {study.platform.name}"
    if study.result.unfinished:
        title = f"{title} (unfinished)"
    marks = platform_marks(study.platform, study.result.device.partition(OTHER_GPU)[2])
    lead = (answer_sentence(study), search_sentence(study), *marks)
    return render_page(title, tuple(_blocks(study)), lead)


def _blocks(study: StudyCase) -> Iterator[Block]:
    simulations = Simulations(study.workload, study.platform)
    cases = [simulations.case(one) for one in study.chosen()]
    pair = _pair(study, simulations, cases)
    yield _design_test(study)
    yield _search(study)
    yield Block(heading="The answer beside its baselines", tables=(comparison_table(study, cases),))
    yield _timelines(pair)
    yield _activity(pair)
    if not study.workload.stores_remotely:
        return
    yield _distributions([*cases, *(case for case in pair if case.coupled)])
    config = (study.result.default or study.result.best).config
    if bind(study.workload, study.platform).estimate(config).until_arrived is not None:
        yield _residuals(study, config)


def _pair(study: StudyCase, simulations: Simulations, cases: Sequence[Case]) -> tuple[Case, Case]:
    """What is shown side by side: two configs, or where there are no two both issuers of the answer."""
    contrast = study.contrast()
    if contrast is None:
        answer = next(case for case in cases if case.chosen.answer)
        return simulations.case(answer.chosen, coupled=True), answer
    first, second = (next(case for case in cases if case.chosen == one) for one in contrast)
    return first, second


def _design_test(study: StudyCase) -> Block:
    asked = (workload_sentence(study.workload), platform_sentence(study.platform))
    if not study.workload.stores_remotely:
        nothing = "Nothing leaves the GPU, so there is no drain to wait for and no design test to make."
        return Block(heading="Will it stall?", paragraphs=(*asked, nothing))
    points = [
        OperatingPoint(one, audit(study.workload, study.platform, one.config, simulate=True))
        for one in study.chosen()
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


def _residuals(study: StudyCase, config: KernelConfig) -> Block:
    workload = study.workload
    simulated = simulated_residuals(workload, study.platform, config)
    lengths = line_lengths(workload.token_count)
    predicted = predicted_residuals(workload, study.platform, config, lengths)
    return Block(
        heading="Residual against sequence length",
        figure=residual_plate(workload, simulated, predicted),
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
