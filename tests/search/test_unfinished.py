"""The best so far of a search that has not ended: exported, reported and traced if asked, and marked."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import xstage_tune
from tests.conftest import RunCli
from tests.search.cases import CountingSimulator
from xstage_tune.devices import opener
from xstage_tune.store.facade import Store

WORKLOAD = "fa-a2a/paper"
SEARCH = ("search", "-w", WORKLOAD, "-p", "paper-nvlink5", "--trials", "9", "--tolerance", "0")


@pytest.fixture
def study(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, own_store: Path) -> str:
    """A study that was interrupted after five configs."""
    monkeypatch.setattr(opener, "open_simulator", lambda _: CountingSimulator(interrupt_after=5))
    assert run_cli(*SEARCH).exit_code == 130
    monkeypatch.undo()
    monkeypatch.setenv("XSTAGE_STORE", str(own_store))
    with Store.open(own_store) as store:
        return store.studies.get().id


def commands(folder: Path) -> list[tuple[str, ...]]:
    return [
        ("export", "-o", str(folder / "tuned.json")),
        ("report", "-o", str(folder / "study.html")),
        ("trace", "-o", str(folder / "study.json.gz")),
    ]


def test_an_unfinished_study_is_refused_naming_what_can_be_done(
    run_cli: RunCli, study: str, tmp_path: Path
) -> None:
    for command in commands(tmp_path):
        refused = run_cli(*command, "--study", study)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert f"study {study} has no result: it is interrupted" in refused.stderr
        assert f"--resume {study}" in refused.stderr
        assert "--unfinished" in refused.stderr
        latest = run_cli(*command, "--study", "latest")
        assert latest.exit_code == 2
        assert study in latest.stderr


def test_of_a_study_that_a_process_searches_it_is_said_to_wait(
    run_cli: RunCli, study: str, tmp_path: Path
) -> None:
    with Store.open() as store:
        store.studies.take(study)
        for command in commands(tmp_path):
            for name in (study, "latest"):
                refused = run_cli(*command, "--study", name)
                assert refused.exit_code == 2
                assert "it is running, in process" in refused.stderr
                assert "wait until it ends" in refused.stderr
                assert "--resume" not in refused.stderr
        store.studies.end(study, "interrupted")


def test_if_asked_its_best_so_far_is_taken(run_cli: RunCli, study: str, tmp_path: Path) -> None:
    for command in commands(tmp_path):
        taken = run_cli(*command, "--study", "latest-any", "--unfinished")
        assert taken.exit_code == 0, taken
    exported = json.loads((tmp_path / "tuned.json").read_text())
    with Store.open() as store:
        objectives = [t.objective_ns for t in store.studies.trials(study) if t.objective_ns is not None]
    assert exported["objective"]["unfinished"] == "it is interrupted"
    assert exported["objective"]["ns"] == min(objectives)
    assert exported["objective"]["bound_ns"] <= min(objectives)
    assert exported["objective"]["evaluations"] == len(objectives)
    assert "unfinished: it is interrupted" in (tmp_path / "study.html").read_text().lower()
    found = xstage_tune.lookup(tmp_path / "tuned.json", WORKLOAD)
    assert found.unfinished == "it is interrupted"


@pytest.mark.parametrize(
    ("to", "file", "mark"),
    [
        ("toml", "t.toml", r'unfinished = "it is interrupted"'),
        ("header", "t.h", r"// UNFINISHED.*it is interrupted(.|\n)*kFinished = false"),
        ("kernel-tuner", "kt.json", r'"unfinished": "it is interrupted"'),
        ("t4", "t4.json", r'"unfinished": "it is interrupted"'),
    ],
)
def test_every_format_is_marked(
    run_cli: RunCli, study: str, tmp_path: Path, to: str, file: str, mark: str
) -> None:
    path = tmp_path / file
    exported = run_cli("export", "--study", study, "--unfinished", "--format", to, "-o", str(path))
    assert exported.exit_code == 0
    assert f"study {study} is unfinished" in exported.stderr
    assert re.search(mark, path.read_text())


def test_a_finished_study_is_not_marked(run_cli: RunCli, study: str, tmp_path: Path) -> None:
    assert run_cli("search", "--resume", "latest").exit_code == 0
    for file in ("a.json", "b.json"):
        option = ("--unfinished",) if file == "b.json" else ()
        assert run_cli("export", *option, "-o", str(tmp_path / file)).exit_code == 0
    assert (tmp_path / "a.json").read_text() == (tmp_path / "b.json").read_text()
    found = xstage_tune.lookup(tmp_path / "a.json", WORKLOAD)
    assert (found.unfinished, found.source.provenance.study_id) == (None, study)


def test_a_finished_study_taken_up_again_is_unfinished_until_it_ends(
    run_cli: RunCli, study: str, tmp_path: Path
) -> None:
    assert run_cli("search", "--resume", study).exit_code == 0
    with Store.open() as store:
        store.studies.take(study)
        store.studies.end(study, "interrupted")
    assert run_cli("export", "--study", study, "-o", str(tmp_path / "t.json")).exit_code == 2
    taken = run_cli("export", "--study", study, "--unfinished", "-o", str(tmp_path / "t.json"))
    assert taken.exit_code == 0


def test_a_study_of_which_nothing_ran_has_no_best(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_store: Path
) -> None:
    monkeypatch.setattr(opener, "open_simulator", lambda _: CountingSimulator(interrupt_after=0))
    assert run_cli(*SEARCH).exit_code == 130
    refused = run_cli("export", "--study", "latest-any", "--unfinished", "-o", str(tmp_path / "t.json"))
    assert refused.exit_code == 2
    with Store.open(own_store) as store:
        study = store.studies.get()
    assert f"study {study.id} has no best so far: it is interrupted, and no config ran" in refused.stderr


def test_the_mark_goes_with_studies(run_cli: RunCli, tmp_path: Path) -> None:
    refused = run_cli("report", "--run", "latest", "--unfinished", "-o", str(tmp_path / "x.html"))
    assert refused.exit_code == 2
    assert "--unfinished goes with --study" in refused.stderr
