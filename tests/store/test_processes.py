from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.h200 import H200
from tests.store.bursts import assert_same_burst, make_burst, stored_burst
from tests.store.writer_process import start_writer
from xstage_tune.store.facade import Store
from xstage_tune.store.process import current_process, has_ended

LAUNCHES = 20


@contextmanager
def held_run(location: str) -> Iterator[tuple[str, object]]:
    """A run that another process has open, with its launches written."""
    with start_writer(location, 0, 3, "hold") as writer:
        assert writer.stdout is not None
        try:
            yield writer.stdout.readline().strip(), writer
        finally:
            writer.kill()


def test_processes_that_make_and_write_one_store_at_once_lose_nothing(location: str) -> None:
    writers = [start_writer(location, seed, LAUNCHES) for seed in (100, 200, 300)]
    outputs = [writer.communicate(timeout=60) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0], outputs
    with Store.open(location) as store:
        assert sorted(run.id for run in store.runs()) == sorted(out.strip() for out, _ in outputs)
        for run in store.runs():
            assert run.status == "finished"
            launches = store.launches(run.id)
            assert len(launches) == LAUNCHES
            for launch in launches:
                assert_same_burst(stored_burst(launch), make_burst(run.seed + launch.sequence))
        assert store.check().problems == ()


@pytest.mark.parametrize(
    ("sent", "status"), [(signal.SIGKILL, "stale"), (signal.SIGINT, "interrupted")], ids=["kill", "ctrl-c"]
)
def test_a_run_cut_short_keeps_what_was_measured(location: str, sent: signal.Signals, status: str) -> None:
    with held_run(location) as (run_id, writer):
        writer.send_signal(sent)
        writer.wait(timeout=30)
        with Store.open(location) as store:
            assert store.run(run_id).status == status
            assert [stored_burst(launch).launch.repeat for launch in store.launches(run_id)] == [0, 1, 2]
            assert store.check().problems == ()


def test_a_killed_process_that_its_parent_has_not_reaped_counts_as_ended(location: str) -> None:
    with held_run(location) as (run_id, writer):
        writer.kill()
        os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now, and stays one
        with Store.open(location) as store:
            assert store.run(run_id).status == "stale"


def test_a_run_of_a_live_process_stays_running(location: str) -> None:
    with held_run(location) as (run_id, _), Store.open(location) as store:
        assert store.run(run_id).status == "running"


def test_a_run_that_was_taken_for_dead_still_ends_with_its_own_outcome(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(location) as store:
        with store.begin_run(kind="calibrate", argv=[], device=H200) as run:
            monkeypatch.setattr("xstage_tune.store.runs.has_ended", lambda _: True)
            Store.open(location).close()
            assert store.run(run.id).status == "stale"
        assert (store.run(run.id).status, store.run(run.id).error) == ("finished", None)


def test_this_process_has_not_ended() -> None:
    assert not has_ended(current_process())


@pytest.mark.parametrize(
    ("change", "ended"),
    [
        pytest.param({"start_ticks": 1}, True, id="number reused by a later process"),
        pytest.param({"boot_id": "earlier"}, True, id="before a reboot"),
        pytest.param({"host": "elsewhere", "start_ticks": 1}, False, id="another host"),
        pytest.param({"pid_namespace": "pid:[1]", "start_ticks": 1}, False, id="another container"),
    ],
)
def test_a_process_has_ended_only_when_that_is_certain(change: dict[str, object], ended: bool) -> None:
    assert has_ended(replace(current_process(), **change)) is ended
