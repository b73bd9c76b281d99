"""Studies that are kept, interrupted and taken up again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from tests.configs.cases import BLACKWELL, attention, hopper
from tests.search.cases import CountingSimulator, TableDevice, drained, request, small_space
from xstage_tune.base.errors import RunInterrupted, StoreError, UsageError
from xstage_tune.base.progress import NoProgress
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.config_files import config_keys
from xstage_tune.platforms.loader import save_platform
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.search import driver
from xstage_tune.search.driver import run_search
from xstage_tune.search.journal import (
    begin_study,
    resume_study,
    stored_result,
    studied_platform,
    studied_workload,
)
from xstage_tune.search.result import SearchResult
from xstage_tune.search.space import build_space, default_axes
from xstage_tune.store.facade import Store
from xstage_tune.store.models import Study

SPACE = small_space()
TRIALS = 30


def search(store: Store, device: CountingSimulator | TableDevice, **changes: object) -> SearchResult:
    asked = request(**({"trials": TRIALS, "tolerance": 0.0} | changes))
    journal = begin_study(store, asked, SPACE, device.identity)
    return run_search(asked, SPACE, device, journal, NoProgress())


def resume(
    store: Store, device: CountingSimulator | TableDevice, study_id: str, **changes: object
) -> SearchResult:
    asked = request(**({"trials": TRIALS, "tolerance": 0.0} | changes))
    journal = resume_study(store, study_id, asked, device.identity)
    return run_search(asked, SPACE, device, journal, NoProgress())


def interrupted(store: Store, after: int) -> tuple[str, CountingSimulator]:
    device = CountingSimulator(interrupt_after=after)
    with pytest.raises(RunInterrupted) as caught:
        search(store, device)
    study = store.studies.get()
    assert f"{after} trials are kept" in caught.value.message
    assert caught.value.hint == f"the same command with --resume {study.id}"
    return study.id, device


def test_every_trial_is_kept_with_its_bound(store: Store) -> None:
    device = CountingSimulator()
    result = search(store, device)
    study = store.studies.get(result.study_id)
    assert study.status == "finished"
    complete = [t for t in store.studies.trials(study.id) if t.state == "complete" and not t.verification]
    assert len(complete) == result.evaluations == TRIALS
    for trial in complete:
        assert trial.objective_ns is not None
        assert trial.bound_ns is not None
        assert trial.bound_ns <= trial.objective_ns


def test_proposals_that_were_not_run_say_why(store: Store) -> None:
    result = search(store, TableDevice(lambda config: 1e6 + len(config.label)), sampler="random", trials=60)
    states: dict[str, list[str]] = {}
    for trial in store.studies.trials(result.study_id):
        states.setdefault(trial.state, []).append(trial.reason)
    assert all("tensor memory: " in reason for reason in states["pruned"])
    assert all("is no better than" in reason for reason in states.get("cut", []))


def test_bounded_proposals_are_kept_as_cut(store: Store) -> None:
    asked = request(trials=TRIALS, tolerance=0.0, sampler="random")
    journal = begin_study(store, asked, SPACE, "simulator")
    run_search(asked, SPACE, CountingSimulator(), journal, NoProgress())
    cut = [trial for trial in store.studies.trials(journal.study_id) if trial.state == "cut"]
    assert cut
    for trial in cut:
        assert trial.bound_ns is not None
        assert trial.reason.startswith("compute bound ")


def test_a_stored_result_reads_back_equal(store: Store) -> None:
    result = search(store, CountingSimulator())
    assert stored_result(store) == result
    assert stored_result(store, result.study_id) == result


def test_an_interrupt_of_the_ranking_leaves_no_running_study(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "rank_configs", interrupt)
    with pytest.raises(RunInterrupted, match="0 trials are kept"):
        search(store, CountingSimulator())
    assert store.studies.get().status == "interrupted"


def test_an_interrupt_loses_no_finished_trial_and_resuming_runs_none_again(store: Store) -> None:
    study_id, first = interrupted(store, after=11)
    assert store.studies.get(study_id).status == "interrupted"
    kept = [trial for trial in store.studies.trials(study_id) if trial.state == "complete"]
    assert len(kept) == 11
    second = CountingSimulator()
    resumed = resume(store, second, study_id)
    assert not set(first.asked) & set(second.asked)
    assert store.studies.get(study_id).status == "finished"

    whole = CountingSimulator()
    uninterrupted = search(store, whole)
    assert first.asked + second.asked == whole.asked
    assert resumed.best == uninterrupted.best
    assert resumed.cuts == uninterrupted.cuts


def test_a_finished_study_can_be_given_more_trials(store: Store) -> None:
    first = search(store, CountingSimulator(), trials=8)
    device = CountingSimulator()
    result = resume(store, device, "latest", trials=12)
    assert len(device.asked) == 4
    assert result.evaluations == 12
    assert stored_result(store, first.study_id).evaluations == 12


def test_trials_that_a_resumed_search_does_not_come_to_still_count(store: Store) -> None:
    study_id, first = interrupted(store, after=11)
    result = resume(store, CountingSimulator(), study_id, trials=4)
    assert result.evaluations == 11
    assert len(first.asked) == 11
    assert result.stopped == "4 trials (0 in this run, the others in earlier ones, which made 7 more)"


def test_a_study_of_before_tiles_were_split_is_taken_up_again(store: Store) -> None:
    """Its configs split none; those that do are new to it."""
    asked = request(workload=attention(), platform=hopper(), trials=12, tolerance=0.0)
    axes = default_axes(attention(), hopper()) | {"block_n": (128, 176), "kv_stages": (2,)}
    space = build_space(attention(), hopper(), axes)
    whole = [config for config in space.configs if isinstance(config, AttentionConfig)][:5]
    assert {config.kv_splits for config in whole} == {1}
    journal = begin_study(store, asked, space, "table")
    for number, config in enumerate(whole):
        keys = config_keys(config)
        del keys["kv_splits"]
        store.studies.add_trial(
            journal.study_id, number=number, state="complete", params=keys, objective_ns=1e6 + number
        )
    store.studies.end(journal.study_id, "interrupted")
    device = TableDevice(lambda config: 2e6 + len(config.label))
    resumed = resume_study(store, journal.study_id, asked, device.identity)
    assert list(resumed.finished()) == whole
    result = run_search(asked, space, device, resumed, NoProgress())
    assert not set(whole) & set(device.asked)
    assert result.evaluations >= 12


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        (
            {"workload": drained().model_copy(update={"name": "test/other"})},
            "workload test/moe, not test/other",
        ),
        (
            {"workload": drained().model_copy(update={"tokens_per_rank": 77})},
            "the workload's keys have changed",
        ),
        ({"platform": BLACKWELL.model_copy(update={"name": "b300"})}, "platform paper-nvlink5, not b300"),
        ({"objective": "stall"}, "objective latency, not stall"),
        ({"seed": 3}, "seed 0, not 3"),
        ({"sampler": "random"}, "sampler auto, not random"),
    ],
)
def test_another_search_is_refused_saying_what_differs(
    store: Store, changes: dict[str, object], difference: str
) -> None:
    study_id = search(store, CountingSimulator(), trials=3).study_id
    with pytest.raises(UsageError) as caught:
        resume_study(store, study_id, request(**changes), "simulator")
    assert caught.value.message.startswith(f"study {study_id} is another search: ")
    assert difference in caught.value.message


def test_times_of_another_device_are_refused(store: Store) -> None:
    study_id = search(store, CountingSimulator(), trials=3).study_id
    with pytest.raises(UsageError, match="device simulator, not table"):
        resume_study(store, study_id, request(), "table")


def test_an_unknown_study_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="has no study 'stu-absent'") as caught:
        resume_study(store, "stu-absent", request(), "simulator")
    assert caught.value.hint.startswith("xstage-tune search begins one")
    study_id = search(store, CountingSimulator(), trials=3).study_id
    with pytest.raises(UsageError) as caught:
        resume_study(store, "stu-absent", request(), "simulator")
    assert caught.value.hint.startswith(f"the latest finished is {study_id}")


def test_an_unfinished_study_has_no_result(store: Store) -> None:
    study_id, _ = interrupted(store, after=5)
    with pytest.raises(UsageError, match="has no result: it is interrupted"):
        stored_result(store, study_id)


def test_a_store_that_fails_fails_the_search(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(store.studies, "add_trial", fail)
    with pytest.raises(StoreError, match="disk full"):
        search(store, CountingSimulator())
    assert store.studies.get().status == "failed"


def test_workload_and_platform_are_those_searched(store: Store) -> None:
    workload = drained().model_copy(update={"tokens_per_rank": 77})
    platform = BLACKWELL.model_copy(update={"name": "in-no-folder"})
    begin_study(store, request(workload=workload, platform=platform, tolerance=0.05), SPACE, "simulator")
    study = store.studies.get()
    assert studied_workload(study) == workload
    assert studied_platform(study) == platform
    assert study.space["tolerance"] == 0.05


def begun_by_an_earlier_version(store: Store, platform: PlatformProfile) -> Study:
    begin_study(store, request(platform=platform), SPACE, "simulator")
    study = store.studies.get()
    del study.space["platform"]
    return study


def test_a_study_that_kept_no_platform_finds_it_by_name(store: Store) -> None:
    assert studied_platform(begun_by_an_earlier_version(store, BLACKWELL)) == BLACKWELL


def test_a_platform_other_than_the_one_searched_on_is_refused(store: Store, tmp_path: Path) -> None:
    other = BLACKWELL.model_copy(update={"description": "another"})
    with pytest.raises(UsageError, match="its keys differ"):
        studied_platform(begun_by_an_earlier_version(store, other))
    begin_study(store, request(), SPACE, "simulator")
    save_platform(other, tmp_path / "other.toml")
    with pytest.raises(UsageError, match="its keys differ"):
        studied_platform(store.studies.get(), str(tmp_path / "other.toml"))


def test_reading_a_finished_study_loads_no_optimiser() -> None:
    program = (
        "import sys, xstage_tune.export.study, xstage_tune.search.study_case;"
        "sys.exit('optuna' if 'optuna' in sys.modules else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
