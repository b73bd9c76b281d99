"""What a shell completes after ``xstage-tune``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import RunCli
from xstage_tune.store.facade import Store

Completed = Callable[[str], list[str]]


def question(typed: str) -> dict[str, str]:
    """How bash asks, in the environment."""
    words = typed.split(" ")
    return {"COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1), "_XSTAGE_TUNE_COMPLETE": "complete_bash"}


@pytest.fixture
def completed(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Completed:
    """What is offered; nothing may be written to stderr, which the user would see amid the line."""

    def complete(typed: str) -> list[str]:
        with monkeypatch.context() as asked:
            for name, value in question(typed).items():
                asked.setenv(name, value)
            asked.setattr(sys.modules["__main__"], "__package__", None)  # else the program is called pytest
            done = run_cli()
        assert (done.exit_code, done.stderr) == (0, "")
        return list(filter(None, done.stdout.splitlines()))

    return complete


@pytest.fixture
def study(own_store: Path) -> str:
    with Store.open(own_store) as store:
        return store.studies.add(
            workload="megamoe/mixtral-8x7b",
            workload_sha256="",
            platform="paper-nvlink5",
            platform_sha256="",
            space={},
            device="simulator",
            objective="latency",
            sampler="tpe",
            seed=0,
        )


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("xstage-tune audit -w megamoe/mix", "megamoe/mixtral-8x7b"),
        ("xstage-tune search --workload fa-a2a/moc", "fa-a2a/mochi"),
        ("xstage-tune emulate -w x -p paper", "paper-nvlink5"),
        ("xstage-tune profile --platform h200-p", "h200-peer"),
        ("xstage-tune workloads show fa-a2a/pap", "fa-a2a/paper"),
        ("xstage-tune platforms show h200-h", "h200-host"),
    ],
)
@pytest.mark.usefixtures("own_store")
def test_names(completed: Completed, typed: str, told: str) -> None:
    assert told in completed(typed)


def test_the_program_completes() -> None:
    program = Path(sys.executable).with_name("xstage-tune")
    asked = os.environ | question("xstage-tune platforms show h200-h")
    done = subprocess.run([program], env=asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["h200-host"], "")


@pytest.mark.usefixtures("own_store")
def test_workloads_and_platforms_of_ones_own(completed: Completed, run_cli: RunCli) -> None:
    run_cli("workloads", "new", "acme/layer")
    run_cli("platforms", "new", "my-node")
    assert completed("xstage-tune audit -w acm") == ["acme/layer"]
    assert completed("xstage-tune audit -p my") == ["my-node"]


def test_studies_of_the_store(completed: Completed, study: str) -> None:
    for command in ("report --study ", "trace --study ", "export --study ", "search --resume "):
        assert completed(f"xstage-tune {command}") == ["latest", "latest-any", study]
    for command in ("audit --config ", "emulate --config ", "profile --config "):
        assert completed(f"xstage-tune {command}") == [
            *("default", "study:latest", "study:latest-any"),
            f"study:{study}",
        ]


def test_what_is_shown_and_removed_is_named_by_its_id(completed: Completed, study: str) -> None:
    for command in ("store show ", "store rm "):
        assert completed(f"xstage-tune {command}") == [study]


def test_of_the_store_that_is_asked_for(
    completed: Completed, study: str, own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XSTAGE_STORE")
    assert completed("xstage-tune report --study stu") == []
    assert completed(f"xstage-tune report --store {own_store} --study stu") == [study]


def test_a_store_that_is_none_completes_nothing_and_is_left_alone(
    completed: Completed, own_store: Path
) -> None:
    assert completed("xstage-tune report --study ") == []
    assert not own_store.exists()
    own_store.write_text("no database")
    assert completed("xstage-tune report --study ") == []
    assert own_store.read_text() == "no database"


def test_a_server_is_not_asked(completed: Completed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XSTAGE_STORE", "postgresql://nobody@localhost:1/none")
    assert completed("xstage-tune report --study ") == ["latest", "latest-any"]
