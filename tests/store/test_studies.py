from __future__ import annotations

import math

import pytest

from tests.h200 import H200
from tests.store.holder_process import add_study
from xstage_tune.base.errors import StoreError, UsageError
from xstage_tune.store import studies
from xstage_tune.store.facade import Store


def test_trials_come_back_in_order_with_their_outcomes(store: Store) -> None:
    study = add_study(store)
    store.studies.add_trial(
        study, number=1, state="cut", params={"block_m": 192}, bound_ns=9e5, reason="bounded"
    )
    store.studies.add_trial(
        study,
        number=0,
        state="complete",
        params={"block_m": 128},
        objective_ns=8.5e5,
        verification={"max": 0.1},
    )
    first, second = store.studies.trials(study)
    assert (first.number, first.state, first.objective_ns, first.params) == (
        0,
        "complete",
        8.5e5,
        {"block_m": 128},
    )
    assert (first.verification, first.bound_ns, first.reason) == ({"max": 0.1}, None, "")
    assert (second.state, second.bound_ns, second.reason, second.objective_ns) == (
        "cut",
        9e5,
        "bounded",
        None,
    )


@pytest.mark.parametrize("objective_ns", [math.nan, math.inf, -math.inf, 0.1 + 0.2])
def test_an_objective_keeps_its_exact_value(store: Store, objective_ns: float) -> None:
    study = add_study(store)
    store.studies.add_trial(study, number=0, state="failed", params={}, objective_ns=objective_ns)
    (trial,) = store.studies.trials(study)
    assert trial.objective_ns is not None
    assert repr(trial.objective_ns) == repr(objective_ns)


def test_a_trial_number_is_taken_once(store: Store) -> None:
    study = add_study(store)
    store.studies.add_trial(study, number=0, state="pruned", params={})
    with pytest.raises(StoreError):
        store.studies.add_trial(study, number=0, state="complete", params={}, objective_ns=1.0)
    assert [trial.state for trial in store.studies.trials(study)] == ["pruned"]


@pytest.mark.parametrize("wrong", [{"state": "done"}, {"run_id": "sea-1"}, {"study_id": "stu-1"}])
def test_a_trial_of_nothing_known_is_refused(store: Store, wrong: dict[str, str]) -> None:
    study = wrong.get("study_id", add_study(store))
    with pytest.raises(StoreError):
        store.studies.add_trial(
            study, number=0, state=wrong.get("state", "cut"), params={}, run_id=wrong.get("run_id")
        )


def test_a_trial_names_the_run_that_measured_it(store: Store) -> None:
    study = add_study(store)
    with store.begin_run(kind="search", argv=[], device=H200) as run:
        store.studies.add_trial(study, number=0, state="pruned", params={}, run_id=run.id)
    assert store.studies.trials(study)[0].run_id == run.id


def test_a_study_is_ended_and_resumed(store: Store) -> None:
    study = add_study(store)
    store.studies.end(study, "interrupted")
    ended = store.studies.get(study)
    assert (ended.status, ended.finished_at is None) == ("interrupted", False)
    store.studies.take(study)
    assert (store.studies.get(study).status, store.studies.get(study).finished_at) == ("running", None)


def test_latest_is_the_study_finished_last_and_latest_any_the_one_begun_last(store: Store) -> None:
    first, second, third = (add_study(store, workload) for workload in ("megamoe/a", "fa-a2a/b", "fa-a2a/c"))
    with pytest.raises(UsageError, match=f"no finished study; the latest begun is {third}") as refused:
        store.studies.get("latest")
    assert "wait until it ends" in refused.value.hint
    store.studies.end(third, "interrupted")
    with pytest.raises(UsageError) as refused:
        store.studies.get("latest")
    assert f"--resume {third}" in refused.value.hint
    store.studies.take(third)
    store.studies.end(second, "finished")
    store.studies.end(first, "finished")
    store.studies.end(third, "interrupted")
    assert store.studies.get("latest").id == first
    assert store.studies.get("latest-any").id == third
    with pytest.raises(UsageError, match="no study 'stu-x'") as refused:
        store.studies.get("stu-x")
    assert first in refused.value.hint


def test_what_latest_resumes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was left behind, though another shell has begun a study since; else a finished one."""
    finished, left, held = (add_study(store, workload) for workload in ("megamoe/a", "fa-a2a/b", "fa-a2a/c"))
    store.studies.end(finished, "finished")
    assert store.studies.to_resume("latest").id == held  # which taking it refuses, saying who holds it
    store.studies.end(left, "interrupted")
    assert store.studies.to_resume("latest").id == left
    assert store.studies.to_resume("latest-any").id == held
    store.studies.take(left)
    store.studies.end(left, "finished")
    monkeypatch.setattr(studies, "has_ended", lambda _: True)
    assert store.studies.to_resume("latest").id == held  # its process died
    store.studies.end(held, "finished")
    assert store.studies.to_resume("latest").id == held
    assert store.studies.to_resume(finished).id == finished


def test_studies_are_listed_newest_first(store: Store) -> None:
    begun = [add_study(store, workload) for workload in ("megamoe/a", "fa-a2a/b")]
    assert store.studies.get(begun[0]).workload == "megamoe/a"
    assert [study.id for study in store.studies.all()] == begun[::-1]


def test_an_unknown_study_is_a_usage_error(store: Store) -> None:
    with pytest.raises(UsageError, match="no study 'latest-any'"):
        store.studies.get()


def test_exports_of_a_study_are_listed(store: Store) -> None:
    study = add_study(store)
    store.studies.add_export(study, format="toml", path="/tmp/best.toml", sha256="ef")
    (export,) = store.studies.exports(study)
    assert (export.format, export.path, export.sha256) == ("toml", "/tmp/best.toml", "ef")
