"""The paper's 84 configurations and their summary."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import xstage_tune
from tests.configs.cases import BLACKWELL
from tests.conftest import RunCli
from tests.search.cases import CountingSimulator
from xstage_tune.base.errors import RunInterrupted, UsageError
from xstage_tune.base.progress import NoProgress
from xstage_tune.report.search_tables import suite_report
from xstage_tune.search import suite
from xstage_tune.search.journal import stored_result
from xstage_tune.search.request import SearchOptions
from xstage_tune.search.suite import Ratios, SuiteResult, paper_84_workloads, run_paper_84
from xstage_tune.simulator.device import SimulatedDevice
from xstage_tune.store.facade import Store
from xstage_tune.store.studies import suite_of


def test_there_are_84_of_seven_models() -> None:
    cases = list(paper_84_workloads())
    assert len(cases) == len({(model, routing, workload) for model, routing, workload in cases}) == 84
    assert set(Counter(model for model, _, _ in cases).values()) == {12}
    assert Counter(routing for _, routing, _ in cases) == {"balanced": 42, "skewed": 42}
    assert Counter(workload.precision for _, _, workload in cases) == {"w4a8": 42, "w8a8": 42}
    assert {workload.tokens_per_rank for _, _, workload in cases} == {3488, 6976, 13952}


def test_ratios_by_hand() -> None:
    ratios = Ratios.of([0.5, 1.0, 2.0, 4.0])
    assert (ratios.median, ratios.max, ratios.min) == (1.5, 4.0, 0.5)
    assert ratios.geomean == pytest.approx(2**0.5)


@pytest.fixture
def two_cases(few_configs: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 - used by being there
    """A suite of two small configurations."""
    small = [
        case
        for case in paper_84_workloads()
        if case[:2] == ("Hy3", "skewed") and case[2].tokens_per_rank == 3488
    ]
    monkeypatch.setattr(suite, "paper_84_workloads", lambda: iter(small))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store.db") as opened:
        yield opened


@pytest.mark.usefixtures("two_cases")
def test_a_row_compares_the_same_workload_under_each_schedule(store: Store) -> None:
    result = run_paper_84(BLACKWELL, SimulatedDevice(BLACKWELL), SearchOptions(trials=5), store, NoProgress())
    assert [row.precision for row in result.rows] == ["w4a8", "w8a8"]
    for row in result.rows:
        assert row.bound_ns <= row.tuned_ns <= min(row.wave_ns, row.interleaved_ns, row.heuristics_ns)
        assert row.interleaved_over_wave > 1.2
        assert row.interleaved_over_wave_local < row.interleaved_over_wave  # the rest is the order's own
        assert row.evaluations == 5
    keys = result.keys()
    gains = {"interleaved_over_wave", "interleaved_over_wave_local"}
    assert set(keys["summary"]) == gains | {"tuned_over_wave", "tuned_over_heuristics"}
    assert set(keys["summary"]["interleaved_over_wave"]) == {"geomean", "median", "max", "min"}
    best = max(row["interleaved_over_wave"] for row in keys["rows"])
    assert keys["summary"]["interleaved_over_wave"]["max"] == best


@pytest.mark.usefixtures("two_cases")
@pytest.mark.parametrize("trials", [1, 2])
def test_what_is_tuned_is_never_slower_than_what_it_is_compared_with(store: Store, trials: int) -> None:
    options = SearchOptions(trials=trials)
    for row in run_paper_84(BLACKWELL, SimulatedDevice(BLACKWELL), options, store, NoProgress()).rows:
        assert row.tuned_over_wave >= row.interleaved_over_wave > 1.2
        assert (row.tuned_over_heuristics is None) == (trials == 1)  # the default alone ran
        assert (row.tuned_over_heuristics or 1) >= 1
        assert "interleaved" in row.tuned


@pytest.mark.usefixtures("two_cases")
def test_every_search_is_kept_as_a_study(store: Store) -> None:
    result = run_paper_84(BLACKWELL, SimulatedDevice(BLACKWELL), SearchOptions(trials=5), store, NoProgress())
    assert {study.id for study in store.studies.all()} == {row.study_id for row in result.rows}
    for row in result.rows:
        assert stored_result(store, row.study_id).evaluations == row.evaluations


@pytest.mark.usefixtures("two_cases")
def test_a_suite_is_listed_and_exported_as_one_bundle(store: Store, run_cli: RunCli, tmp_path: Path) -> None:
    result = run_paper_84(BLACKWELL, SimulatedDevice(BLACKWELL), SearchOptions(trials=3), store, NoProgress())
    again = run_paper_84(BLACKWELL, SimulatedDevice(BLACKWELL), SearchOptions(trials=3), store, NoProgress())
    at = ("--store", store.location)
    listed = run_cli("store", "list", "--suite", result.suite_id, "--format", "json", *at)
    studies = {row.study_id for row in result.rows}
    assert {entry["id"] for entry in json.loads(listed.stdout)["entries"]} == studies
    folder = tmp_path / "tuned"
    exported = run_cli("export", "--suite", result.suite_id, "-o", str(folder), *at)
    assert (exported.exit_code, exported.stderr) == (0, "")
    bundle = xstage_tune.load_bundle(folder)
    assert {tuned.provenance.study_id for tuned in bundle.exports} == studies
    _, _, workload = next(suite.paper_84_workloads())
    assert xstage_tune.lookup(bundle, workload).match == "exact"
    refused = run_cli("export", "--suite", result.suite_id, "-o", str(folder), *at)
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert run_cli("export", "--suite", "latest", "-o", str(tmp_path / "again"), *at).exit_code == 0
    bundle = xstage_tune.load_bundle(tmp_path / "again")
    assert {tuned.provenance.study_id for tuned in bundle.exports} == {row.study_id for row in again.rows}
    assert all(study.id in suite_report_text(result) for study in store.studies.of_suite(result.suite_id))


def suite_report_text(result: SuiteResult) -> str:
    console = Console(width=200)
    with console.capture() as shown:
        console.print(suite_report(result))
    return shown.get()


@pytest.mark.usefixtures("two_cases")
def test_of_an_interrupted_suite_the_finished_studies_are_exported(
    store: Store, run_cli: RunCli, tmp_path: Path
) -> None:
    device = CountingSimulator(interrupt_after=7)
    with pytest.raises(RunInterrupted):
        run_paper_84(BLACKWELL, device, SearchOptions(trials=5), store, NoProgress())
    begun, finished = store.studies.all()
    refused = run_cli("export", "--suite", "latest", "--store", store.location, "-o", str(tmp_path / "none"))
    assert refused.exit_code == 2
    assert "of which 1 searches are finished" in refused.stderr
    ask = ("export", "--suite", "latest-any", "--store", store.location)
    exported = run_cli(*ask, "-o", str(tmp_path / "finished"))
    assert exported.exit_code == 0
    assert f"left out: 1 unfinished studies: {begun.id}" in exported.stderr
    (only,) = xstage_tune.load_bundle(tmp_path / "finished").exports
    assert only.provenance.study_id == finished.id
    assert run_cli(*ask, "--unfinished", "-o", str(tmp_path / "all")).exit_code == 0
    marks = {tuned.provenance.study_id: tuned.objective.unfinished
             for tuned in xstage_tune.load_bundle(tmp_path / "all").exports}  # fmt: skip
    assert marks == {finished.id: None, begun.id: "it is interrupted"}


def test_an_unknown_suite_is_refused(store: Store, run_cli: RunCli, tmp_path: Path) -> None:
    ask = ("export", "-o", str(tmp_path), "--store", store.location)
    for suite_id in ("latest", "sui-x"):
        refused = run_cli(*ask, "--suite", suite_id)
        assert refused.exit_code == 2
        assert f"no suite '{suite_id}'" in refused.stderr
    assert run_cli(*ask, "--suite", "latest", "--study", "latest").exit_code == 2


@pytest.mark.usefixtures("two_cases")
def test_an_interrupted_suite_says_what_is_kept(store: Store) -> None:
    device = CountingSimulator(interrupt_after=7)
    with pytest.raises(RunInterrupted) as stopped:
        run_paper_84(BLACKWELL, device, SearchOptions(trials=5), store, NoProgress())
    assert stopped.value.message == (
        f"suite interrupted: 1 of 2 searches are finished and kept in store {store.location}"
    )
    begun, finished = store.studies.all()
    assert [begun.status, finished.status] == ["interrupted", "finished"]
    assert stopped.value.hint.startswith(f"xstage-tune search --resume {begun.id} goes on")


@pytest.mark.usefixtures("two_cases")
def test_a_suite_interrupted_between_its_searches_has_none_to_resume(store: Store) -> None:
    class Stopping(NoProgress):
        def advance(self, label: str) -> None:  # noqa: ARG002 - progress's interface
            raise KeyboardInterrupt

    with pytest.raises(RunInterrupted, match="1 of 2 searches are finished") as stopped:
        run_paper_84(BLACKWELL, SimulatedDevice(BLACKWELL), SearchOptions(trials=5), store, Stopping())
    assert "--resume" not in stopped.value.hint
    with pytest.raises(UsageError, match="no suite 'latest'"):
        store.studies.of_suite("latest")
    assert len(store.studies.of_suite("latest-any")) == 1


@pytest.mark.usefixtures("two_cases")
def test_latest_is_the_last_suite_searched_to_its_end(store: Store) -> None:
    whole = run_paper_84(BLACKWELL, SimulatedDevice(BLACKWELL), SearchOptions(trials=2), store, NoProgress())
    with pytest.raises(RunInterrupted):
        run_paper_84(
            BLACKWELL, CountingSimulator(interrupt_after=7), SearchOptions(trials=5), store, NoProgress()
        )
    assert [suite_of(study) for study in store.studies.of_suite("latest")] == [whole.suite_id] * 2
    assert whole.suite_id not in map(suite_of, store.studies.of_suite("latest-any"))
