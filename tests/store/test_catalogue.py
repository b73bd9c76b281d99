"""``store list``, ``store show`` and ``store rm``: what is kept, and taking it out."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from tests.conftest import CliResult, RunCli
from tests.h200 import H200
from tests.store.bursts import make_burst
from tests.store.holder_process import add_study, start_holder
from xstage_tune.base.errors import StoreError, UsageError
from xstage_tune.store import studies
from xstage_tune.store.facade import Store
from xstage_tune.store.models import Base, Chunk, Environment, Export, Fit, Launch, StudyHolder, Trial
from xstage_tune.store.process import current_process


def add_run(store: Store, kind: str = "calibrate") -> str:
    """A finished run of one launch and one fit."""
    parameters = {"workload": {"name": "fa-a2a/paper"}, "platform": {"name": "h200-host"}}
    with store.begin_run(kind=kind, argv=["xstage-tune", kind], device=H200, parameters=parameters) as run:
        run.add_launch(0, make_burst())
        run.add_fit("platform", {"q": 1})
    return run.id


def add_finished(store: Store, workload: str = "megamoe/a", run_id: str | None = None) -> str:
    """A finished study of three trials, one of which could not run, and its answer."""
    study = add_study(store, workload)
    add = store.studies.add_trial
    add(study, number=0, state="complete", params={"block_m": 128}, objective_ns=9e5, run_id=run_id)
    add(study, number=1, state="complete", params={"block_m": 64}, objective_ns=7e5)  # a lucky run
    add(study, number=2, state="failed", params={"block_m": 192}, reason="too large")
    add(study, number=3, state="cut", params={"block_m": 256}, bound_ns=1e6)
    answer = {"result": {"stopped": "3 trials"}}
    add(study, number=4, state="complete", params={"block_m": 64}, objective_ns=8e5, verification=answer)
    store.studies.end(study, "finished")
    store.studies.add_export(study, format="json", path="/tuned/a.json", sha256="ef")
    return study


def rows(store: Store, table: type[Base]) -> int:
    with store._database.reading() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def listed(ran: CliResult) -> list[dict[str, Any]]:
    assert (ran.exit_code, ran.stderr) == (0, "")
    found: list[dict[str, Any]] = json.loads(ran.stdout)["entries"]
    return found


def test_runs_and_studies_are_listed_newest_first(run_cli: RunCli, store: Store, location: str) -> None:
    run, study = add_run(store), add_finished(store)
    begun = add_study(store, "fa-a2a/b")
    store.studies.add_trial(begun, number=0, state="complete", params={}, objective_ns=5e5)
    entries = listed(run_cli("store", "list", "--store", location, "--format", "json"))
    assert [(entry["kind"], entry["id"], entry["state"]) for entry in entries] == [
        ("study", begun, "running"),
        ("study", study, "finished"),
        ("calibrate", run, "finished"),
    ]
    assert [entry["best_ns"] for entry in entries] == [5e5, 8e5, None]
    assert [entry["objective"] for entry in entries] == ["latency", "latency", ""]
    assert [entry["trials"] for entry in entries] == [1, 3, 1]
    assert [entry["workload"] for entry in entries] == ["fa-a2a/b", "megamoe/a", "fa-a2a/paper"]
    assert [entry["platform"] for entry in entries] == ["paper-nvlink5", "paper-nvlink5", "h200-host"]
    assert all(entry["size_bytes"] > 0 for entry in entries)
    table = run_cli("store", "list", "--store", location).stdout
    assert all(entry["id"] in table for entry in entries)
    assert "500.0 us latency" in table
    assert "best latency" in run_cli("store", "show", study, "--store", location).stdout


def test_a_run_on_a_gpu_that_the_platform_is_not_of_is_listed_as_such(store: Store) -> None:
    parameters = {"other_gpu": "sm_count 132, not 78"}
    with store.begin_run(kind="emulate", argv=[], device=H200, parameters=parameters) as run:
        run.add_launch(0, make_burst())
    assert "sm_count 132, not 78" in store.details(run.id).entry.device


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (("--kind", "study"), ["b", "a"]),
        (("--kind", "run"), ["emulate", "calibrate"]),
        (("--kind", "emulate"), ["emulate"]),
        (("--state", "running"), ["b"]),
        (("--state", "finished", "--kind", "study"), ["a"]),
        (("-w", "megamoe"), ["a"]),
        (("-p", "h200"), ["emulate", "calibrate"]),
        (("--limit", "1"), ["b"]),
        (("--suite", "sui-1"), []),
        (("--state", "stale"), []),
    ],
)
def test_what_is_listed_can_be_chosen(
    run_cli: RunCli, store: Store, location: str, filters: tuple[str, ...], expected: list[str]
) -> None:
    ids = {"calibrate": add_run(store), "emulate": add_run(store, "emulate")}
    ids |= {"a": add_finished(store), "b": add_study(store, "fa-a2a/b")}
    entries = listed(run_cli("store", "list", *filters, "--store", location, "--format", "json"))
    assert [entry["id"] for entry in entries] == [ids[name] for name in expected]
    assert run_cli("store", "list", *filters, "--store", location).exit_code == 0


def test_latest_is_shown_and_never_removed(run_cli: RunCli, store: Store, location: str) -> None:
    nothing = run_cli("store", "show", "latest", "--store", location)
    assert (nothing.exit_code, "no run or study 'latest'" in nothing.stderr) == (2, True)
    run, study = add_run(store), add_finished(store)
    begun = add_study(store, "fa-a2a/b")
    assert store.details("latest").entry.id == study
    assert store.details("latest-any").entry.id == begun
    later = add_run(store)
    shown = run_cli("store", "show", "latest", "--store", location, "--format", "json")
    assert json.loads(shown.stdout)["entry"]["id"] == later
    refused = run_cli("store", "rm", "latest", "--yes", "--store", location)
    assert (refused.exit_code, "takes ids" in refused.stderr) == (2, True)
    kept = listed(run_cli("store", "list", "--store", location, "--format", "json"))
    assert {entry["id"] for entry in kept} == {run, study, begun, later}


def test_a_study_whose_process_died_is_stale(store: Store, location: str) -> None:
    with start_holder(location) as process:
        assert process.stdout is not None
        study = process.stdout.readline().strip()
        assert store.details(study).entry.state == "running"
        process.kill()
    assert store.details(study).entry.state == "stale"


def test_one_study_or_run_is_shown(run_cli: RunCli, store: Store, location: str) -> None:
    run, study = add_run(store), add_finished(store)
    shown = json.loads(run_cli("store", "show", study, "--store", location, "--format", "json").stdout)
    assert shown["entry"]["id"] == study
    assert shown["parts"] == {"complete trials": 2, "cut trials": 1, "failed trials": 1}
    assert [export["path"] for export in shown["exports"]] == ["/tuned/a.json"]
    shown = json.loads(run_cli("store", "show", run, "--store", location, "--format", "json").stdout)
    assert shown["parts"] == {"launches": 1, "spans": 200, "fits": 1, "trials of studies": 0}
    assert shown["about"]["command"] == "xstage-tune calibrate"
    for entry_id in (run, study):
        assert entry_id in run_cli("store", "show", entry_id, "--store", location).stdout
    refused = run_cli("store", "show", "stu-x", "--store", location)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "no run or study 'stu-x'" in refused.stderr


def test_a_store_is_counted(run_cli: RunCli, store: Store, location: str) -> None:
    run = add_run(store)
    add_finished(store)
    counted = json.loads(run_cli("store", "info", "--store", location, "--format", "json").stdout)
    assert (counted["spans"], counted["launches"], counted["studies"]) == (200, 1, 1)
    assert counted["latest_run"] == run


def test_what_depends_on_an_entry_goes_with_it(run_cli: RunCli, store: Store, location: str) -> None:
    run = add_run(store)
    study, other = add_finished(store, run_id=run), add_finished(store, "megamoe/b", run_id=run)
    removed = run_cli("store", "rm", "--yes", run, study, run, "--store", location)
    assert (removed.exit_code, removed.stderr) == (0, "")
    assert removed.stdout == f"removed calibrate {run}\nremoved study {study}\n"
    assert [entry.id for entry in store.entries()] == [other]
    gone = (Launch, Chunk, Fit, StudyHolder, Environment)
    assert [rows(store, table) for table in gone] == [0] * len(gone)
    assert [rows(store, table) for table in (Trial, Export)] == [5, 1]
    assert store.studies.trials(other)[0].run_id is None
    assert store.check().problems == ()


def test_an_environment_that_another_run_has_stays(store: Store) -> None:
    first, second = add_run(store), add_run(store)
    store.remove([first])
    assert store.run(second).environment.gpu_name == H200.name
    assert rows(store, Environment) == 1


def test_nothing_is_removed_where_one_of_several_cannot_be(store: Store) -> None:
    study, run = add_finished(store), add_run(store)
    held = add_study(store, "fa-a2a/b")
    with pytest.raises(StoreError, match=f"study {held} is being searched by process"):
        store.remove([run, study, held])
    with pytest.raises(UsageError, match="no run or study 'stu-x'"):
        store.remove([run, "stu-x"])
    with store.begin_run(kind="emulate", argv=[], device=H200) as begun:
        refused = pytest.raises(StoreError, match=f"run {begun.id} is being written by process")
        with refused:
            store.remove([study, begun.id])
    assert len(store.entries()) == 4
    store.remove([begun.id])
    assert len(store.entries()) == 3


def test_what_a_dead_process_held_can_be_removed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even on another host, once nothing was heard of it for long."""
    long_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat(timespec="microseconds")
    with monkeypatch.context() as patch:
        elsewhere = replace(current_process(), host="node-7")
        patch.setattr(studies, "current_process", lambda: elsewhere)
        patch.setattr(studies, "utc_now", lambda: long_ago)
        study = add_study(store)
    assert store.details(study).entry.state == "stale"
    store.remove([study])
    assert store.entries() == []


def test_rm_asks_and_without_a_terminal_it_must_be_told(
    run_cli: RunCli, store: Store, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = add_finished(store)
    refused = run_cli("store", "rm", study, "--store", location)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--yes" in refused.stderr
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, left in ((False, 1), (True, 0)):
        monkeypatch.setattr("typer.confirm", lambda *_, answer=answer, **__: answer)
        answered = run_cli("store", "rm", study, "--store", location)
        assert answered.exit_code == 0
        assert study in answered.stderr  # what is asked about
        assert len(store.entries()) == left
