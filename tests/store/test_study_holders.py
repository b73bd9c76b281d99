"""One process at a time searches a study, and one that died is in nobody's way."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.store.holder_process import add_study, start_holder
from xstage_tune.base.errors import StoreError
from xstage_tune.store import studies
from xstage_tune.store.facade import Store
from xstage_tune.store.process import current_process

ELSEWHERE = replace(current_process(), host="node-7", pid=4711)
RUNNING_HERE = f"it is running, in process {current_process().pid} on {current_process().host}"


@contextmanager
def holder(location: str, *study: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A process that holds a study, and the study's id."""
    with start_holder(location, *study) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


def held_elsewhere(store: Store, monkeypatch: pytest.MonkeyPatch, *, silent: timedelta) -> str:
    """A study whose holder, on a host that this one cannot look at, was last seen so long ago."""
    seen_at = (datetime.now(UTC) - silent).isoformat(timespec="microseconds")
    with monkeypatch.context() as patch:
        patch.setattr(studies, "current_process", lambda: ELSEWHERE)
        patch.setattr(studies, "utc_now", lambda: seen_at)
        return add_study(store)


def test_a_second_process_is_refused_saying_who_holds_the_study(location: str) -> None:
    with holder(location) as (study, process), Store.open(location) as store:
        with pytest.raises(StoreError) as refused:
            store.studies.take(study)
        assert re.fullmatch(
            rf"study {study} is being searched by process {process.pid} on {current_process().host} since "
            r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, last seen .* UTC",
            refused.value.message,
        )
        assert refused.value.hint.startswith("wait until it ends, or stop it by Ctrl-C")
        assert store.studies.get(study).status == "running"


def test_a_study_that_was_ended_is_free(location: str) -> None:
    with holder(location) as (study, process), Store.open(location) as store:
        process.communicate(timeout=30)
        assert store.studies.get(study).status == "finished"
        store.studies.take(study)


def test_a_holder_that_was_killed_is_in_nobodys_way(location: str) -> None:
    with holder(location) as (study, process), Store.open(location) as store:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now, and stays one
        store.studies.take(study)
        store.studies.add_trial(study, number=0, state="cut", params={})
        assert store.studies.state(store.studies.get(study)) == RUNNING_HERE


def test_of_processes_that_take_a_study_at_once_one_holds_it(location: str) -> None:
    with Store.open(location) as store:
        study = add_study(store)
        store.studies.end(study, "interrupted")
    processes = [start_holder(location, study) for _ in range(5)]
    try:
        said = [process.stdout.readline().strip() for process in processes if process.stdout]
        assert said.count(study) == 1
        assert sum(f"study {study} is being searched by process" in line for line in said) == 4
    finally:
        for process in processes:
            process.communicate(timeout=30)


def test_a_holder_on_another_host_is_left_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    study = held_elsewhere(store, monkeypatch, silent=timedelta(minutes=4))
    with pytest.raises(StoreError, match="process 4711 on node-7") as refused:
        store.studies.take(study)
    assert "resume by --take-over, or after 2" in refused.value.hint


def test_a_holder_on_another_host_is_taken_over_on_the_users_word(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = held_elsewhere(store, monkeypatch, silent=timedelta(seconds=1))
    store.studies.take(study, over=True)
    store.studies.add_trial(study, number=0, state="cut", params={})
    assert store.studies.state(store.studies.get(study)) == RUNNING_HERE
    with monkeypatch.context() as patch:
        patch.setattr(studies, "current_process", lambda: ELSEWHERE)
        with pytest.raises(StoreError, match="not this process's any more"):
            store.studies.add_trial(study, number=1, state="cut", params={})


def test_a_holder_that_is_seen_to_live_is_not_taken_over(location: str) -> None:
    with (
        holder(location) as (study, _),
        Store.open(location) as store,
        pytest.raises(StoreError, match="is being searched by process"),
    ):
        store.studies.take(study, over=True)


def test_a_holder_on_another_host_that_is_long_silent_counts_as_dead(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = held_elsewhere(store, monkeypatch, silent=timedelta(hours=1))
    store.studies.take(study)
    store.studies.add_trial(study, number=0, state="cut", params={})
    assert store.studies.state(store.studies.get(study)) == RUNNING_HERE


def test_the_state_of_a_study_tells_the_living_from_the_dead(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def state(study: str) -> str:
        return store.studies.state(store.studies.get(study))

    here = add_study(store)
    assert state(here) == RUNNING_HERE
    with monkeypatch.context() as patch:
        patch.setattr(studies, "has_ended", lambda _: True)
        assert state(here) == "the process that searched it ended without finishing it"
    store.studies.end(here, "interrupted")
    assert state(here) == "it is interrupted"
    heard = held_elsewhere(store, monkeypatch, silent=timedelta(minutes=4))
    assert state(heard) == "it is running, in process 4711 on node-7"
    silent = held_elsewhere(store, monkeypatch, silent=timedelta(hours=1))
    assert re.fullmatch(r"nothing was heard of process 4711 on node-7 since .* UTC", state(silent))


def test_a_trial_is_a_sign_of_life(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    study = held_elsewhere(store, monkeypatch, silent=timedelta(hours=1))
    with monkeypatch.context() as patch:
        patch.setattr(studies, "current_process", lambda: ELSEWHERE)
        store.studies.add_trial(study, number=0, state="cut", params={})
    with pytest.raises(StoreError, match="on node-7"):
        store.studies.take(study)


def test_a_holder_that_was_taken_for_dead_can_change_nothing_any_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = held_elsewhere(store, monkeypatch, silent=timedelta(hours=1))
    store.studies.take(study)
    with monkeypatch.context() as patch:
        patch.setattr(studies, "current_process", lambda: ELSEWHERE)
        with pytest.raises(StoreError, match="not this process's any more"):
            store.studies.add_trial(study, number=0, state="cut", params={})
        store.studies.end(study, "failed")
    assert store.studies.trials(study) == []
    assert store.studies.get(study).status == "running"
    store.studies.add_trial(study, number=0, state="cut", params={})
