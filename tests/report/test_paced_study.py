"""The report of a study whose answer has other warps store, spread over the next Q-loop."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.report.conftest import Kept
from tests.report.pages import Page, plain
from xstage_tune.audit.run import audit
from xstage_tune.base.number_format import duration, percent
from xstage_tune.experiments.study import Case, Simulations, analyse
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.binding import default_config
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform
from xstage_tune.report.figure import Panel
from xstage_tune.report.run_trace import traced_answer
from xstage_tune.report.study_figures import OperatingPoint, operating_plate
from xstage_tune.report.study_page import comparison_table, render_study
from xstage_tune.report.timeline import activity_plate
from xstage_tune.report.trace_file import write_trace
from xstage_tune.search.study_case import Evaluation, StudyCase, load_study
from xstage_tune.simulator.fused_kernels import SimulatedKernels
from xstage_tune.simulator.traces import tensor_activity
from xstage_tune.store.facade import Store

PACED = AttentionConfig(
    block_m=128,
    block_n=144,
    kv_stages=2,
    output_staging="dedicated-x1",
    tile_order="own-last",
    store_flavour="st.v4",
)


def page_of(study: StudyCase) -> str:
    return render_study(analyse(study))


@pytest.fixture(scope="module")
def study(kept: Kept) -> StudyCase:
    """The kept study as one of the paper's attention on h200-host, won by :data:`PACED`."""
    with Store.open(kept.file) as store:
        found = load_study(store, kept.attention)
    platform = load_platform("h200-host")
    workload = load_workload("fa-a2a/paper", ("remote_fraction=0.875",))
    outcomes = []
    for config in (PACED, default_config(workload, platform)):
        latency_ns = SimulatedKernels(platform).run_kernel(workload, config).latency_ns[0]
        outcomes.append(replace(found.result.best, config=config, samples_ns=(latency_ns,)))
    best, default = outcomes
    return replace(
        found,
        workload=workload,
        platform=platform,
        result=replace(found.result, best=best, default=default, heuristics={}, ties=()),
        evaluations=tuple(Evaluation(one.config, one.objective_ns) for one in (default, best)),
    )


@pytest.fixture(scope="module")
def pair(study: StudyCase) -> tuple[Case, Case]:
    """Default and winner."""
    simulations = Simulations(study.workload, study.platform)
    default, winner = (simulations.case(one) for one in study.chosen())
    return default, winner


def test_period_of_handed_over_stores_is_the_gap_and_of_own_ones_the_sum(study: StudyCase) -> None:
    default, winner = (
        OperatingPoint(one, audit(study.workload, study.platform, one.config)) for one in study.chosen()
    )
    for point in (default, winner):
        gap_ns = np.array([point.gap_ns])
        # The period that the audit's own injection rests on.
        injection = point.audit.predicted["piggyback"].injection_bytes_per_s.value
        assert point.period_ns(gap_ns)[0] == pytest.approx(
            point.audit.burst.volume_bytes.value / injection * 1e9
        )
    assert winner.period_ns(np.array([winner.gap_ns]))[0] == winner.gap_ns
    periods = operating_plate((default, winner)).panels[1]
    assert isinstance(periods, Panel)
    shown = [entry.label for entry in periods.legend]
    assert f"winner, {duration(winner.gap_ns)}" in shown
    assert any("handed over: max(G, V/R)" in label for label in shown)


@pytest.mark.parametrize("part", [0.0, 0.5, 2.0])
def test_gaps_that_do_not_drain_a_burst_have_its_drain_as_period(study: StudyCase, part: float) -> None:
    point = OperatingPoint(study.answer, audit(study.workload, study.platform, PACED))
    drain_ns = point.audit.burst.drain_ns.value
    gap_ns = np.array([part * drain_ns])
    assert point.period_ns(gap_ns)[0] == pytest.approx(max(part, 1.0) * drain_ns)
    assert point.coupled_period_ns(gap_ns)[0] >= point.period_ns(gap_ns)[0]


def test_a_launch_lasts_as_long_in_figure_caption_table_and_trace_as_in_search(
    study: StudyCase, pair: tuple[Case, Case], tmp_path: Path
) -> None:
    best_ns = study.result.best.objective_ns
    text = Page(page_of(study)).text
    assert plain(f"{duration(best_ns)} under winner") in text
    launches = next(row for row in comparison_table(study, pair).rows if row[0] == "simulated launch")
    assert launches[2] == duration(best_ns)
    activity = tensor_activity(pair[1].run, 10)
    assert activity.time_ns[-1] == pytest.approx(0.95 * best_ns)

    file = tmp_path / "t.json.gz"
    write_trace(
        file,
        [traced_answer(study, Simulations(study.workload, study.platform).case(study.answer))],
        most_spans=10**6,
        about={},
    )
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    whole = next(event for event in events if event["ph"] == "X" and event["pid"] == 1)
    counted = max(event["ts"] for event in events if event["ph"] == "C")
    assert whole["dur"] == counted == pytest.approx(best_ns / 1e3, abs=1e-3)


def test_page_tells_of_a_full_queue_only_where_it_is_full(study: StudyCase, pair: tuple[Case, Case]) -> None:
    default, winner = pair
    text = Page(page_of(study)).text
    assert winner.queue_full() == 0.0
    assert default.queue_full() == 0.0
    assert "The queue is at its capacity in neither." in text
    labels = [entry.label for panel in activity_plate(pair).panels for entry in panel.legend]  # type: ignore[union-attr]
    assert "accepted, not drained; full 0.0% of the time" in labels


def test_a_queue_that_fills_is_told_with_its_share(study: StudyCase) -> None:
    all_remote = replace(study, workload=load_workload("fa-a2a/paper"))
    default = study.chosen()[0]
    case = Simulations(all_remote.workload, study.platform).case(default)
    share = percent(100 * case.queue_full(), 1)
    assert share != "0.0%"
    assert f"at its capacity {share} of the time under default" in Page(page_of(all_remote)).text


def test_span_of_handed_over_stores_is_their_staging_and_the_stores_have_rows_of_their_own(
    study: StudyCase, pair: tuple[Case, Case]
) -> None:
    audited = audit(study.workload, study.platform, PACED)
    rows = {row[0]: row[1:] for row in comparison_table(study, pair).rows}
    staging = duration(audited.predicted["piggyback"].span_ns.value)
    assert rows["span T_RS, median"][1] == staging
    assert rows["stores handed over, median"][0] == "-"
    # Nearly the whole of the next Q-loop, as the kernel spreads them.
    assert np.median(pair[1].handed_over_ns()) == pytest.approx(audited.gap_ns.value, rel=0.05)
    assert pair[0].handed_over_ns().size == 0
    np.testing.assert_array_equal(
        pair[0].spans_ns(), pair[0].run.issue_ns[pair[0].run.streams.remote_bytes > 0]
    )
    text = Page(page_of(study)).text
    assert f"winner, median {staging}" in text
    assert "Of winner it is the staging: others store the tile." in text
