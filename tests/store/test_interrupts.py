"""Ctrl-C in a transaction of an SQLite file: the transaction ends first, and nothing stays open or locked."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.h200 import H200
from tests.store.bursts import make_burst
from tests.store.holder_process import add_study
from xstage_tune.store import runs, studies
from xstage_tune.store.facade import Store


@pytest.fixture
def store(file: Path) -> Iterator[Store]:
    with Store.open(file) as opened:
        yield opened


def interrupted(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, the user pressing Ctrl-C when it is called."""

    def called(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return function(*arguments)

    return called


def test_a_launch_is_whole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure() -> None:
        with store.begin_run(kind="calibrate", argv=[], device=H200) as run:
            monkeypatch.setattr(runs.RunWriter, "_launch_id", interrupted(runs.RunWriter._launch_id))
            run.add_launch(0, make_burst())

    with pytest.raises(KeyboardInterrupt):
        measure()
    assert store.run().status == "interrupted"
    assert len(store.launches(store.run().id)) == 1
    assert store.check().problems == ()


def test_a_run_just_begun_is_interrupted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_environment_id", interrupted(runs._environment_id))
    with pytest.raises(KeyboardInterrupt), store.begin_run(kind="calibrate", argv=[], device=H200):
        pytest.fail("the block was entered")
    assert store.run().status == "interrupted"


def test_a_study_just_begun_or_taken_is_interrupted_and_free(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_holder = studies._new_holder
    monkeypatch.setattr(studies, "_new_holder", interrupted(new_holder))
    with pytest.raises(KeyboardInterrupt):
        add_study(store)
    study = store.studies.get()
    assert study.status == "interrupted"
    with pytest.raises(KeyboardInterrupt):
        store.studies.take(study.id)
    assert store.studies.get().status == "interrupted"
    monkeypatch.setattr(studies, "_new_holder", new_holder)
    store.studies.take(study.id)
