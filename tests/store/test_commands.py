from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.h200 import H200
from tests.store.bursts import make_burst
from xstage_tune import cli
from xstage_tune.store.facade import Store
from xstage_tune.store.migrate import HEAD_REVISION


@pytest.fixture
def run_id(file: Path) -> str:
    """The one run of the store at ``file``."""
    with Store.open(file) as store, store.begin_run(kind="calibrate", argv=[], device=H200) as run:
        run.add_launch(0, make_burst())
    return run.id


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run ``xstage-tune store ...`` and give exit status, stdout and stderr."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["xstage-tune", "store", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


def test_path_prints_the_place_and_makes_nothing(
    command, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XSTAGE_STORE", str(file))
    assert command("path") == (0, f"{file}\n", "")
    assert json.loads(command("path", "--format", "json")[1]) == {"location": str(file)}
    assert not file.exists()


def test_info_counts_what_is_there(command, file: Path, run_id: str) -> None:
    status, out, err = command("info", "--store", file, "--format", "json")
    assert (status, err) == (0, "")
    assert json.loads(out) == {
        "location": str(file),
        "revision": HEAD_REVISION,
        "size_bytes": file.stat().st_size,
        "runs": {"finished": 1},
        "launches": 1,
        "spans": 200,
        "studies": 0,
        "latest_run": run_id,
    }
    assert out == command("info", "--store", file, "--format", "json")[1]


def test_info_reads_as_a_table(command, file: Path, run_id: str) -> None:
    status, out, err = command("info", "--store", file)
    assert (status, err) == (0, "")
    assert str(file) in out
    assert run_id in out


def test_check_of_a_whole_store_succeeds(command, file: Path, run_id: str) -> None:  # noqa: ARG001
    status, out, err = command("check", "--store", file, "--format", "json")
    assert (status, err) == (0, "")
    assert json.loads(out) == {"location": str(file), "launches": 1, "chunks": 2, "problems": []}


@pytest.mark.parametrize("output", ["table", "json"])
def test_check_of_a_damaged_store_exits_4_and_names_the_chunk(
    command, file: Path, run_id: str, output: str
) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE chunk SET blob = x'00' WHERE kind = 'spans'")
    status, out, err = command("check", "--store", file, "--format", output)
    assert status == 4
    for text in (out, err):
        assert f"run {run_id}, launch 0, rank 0, spans" in text
    if output == "json":
        assert len(json.loads(out)["problems"]) == 1


@pytest.mark.parametrize("name", ["info", "check"])
def test_a_file_that_is_no_store_exits_4_without_a_traceback(command, file: Path, name: str) -> None:
    file.write_text("not a database, but long enough to have a header of one hundred bytes" * 3)
    status, out, err = command(name, "--store", file)
    assert (status, out) == (4, "")
    assert err.startswith(f"xstage-tune: error: store {file}")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["store", "info"],
        ["store", "check"],
        ["export", "-o", "answer.json"],
        ["report", "--study", "latest", "-o", "page.html"],
        ["trace", "--study", "latest", "-o", "trace.json.gz"],
        ["search", "--workload", "megamoe/deepseek-v4-flash", "--resume", "latest"],
    ],
)
def test_what_only_reads_refuses_a_mistyped_store_and_makes_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: Path, arguments: list[str]
) -> None:
    monkeypatch.chdir(file.parent)
    monkeypatch.setattr(sys, "argv", ["xstage-tune", *arguments, "--store", str(file)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 4
    assert f"error: no store at {file}\n" in capsys.readouterr().err
    assert list(file.parent.iterdir()) == []


def test_check_of_a_store_too_damaged_to_open_does_not_suggest_itself(
    command,
    file: Path,
    run_id: str,  # noqa: ARG001
) -> None:
    with file.open("r+b") as damaged:
        damaged.truncate(file.stat().st_size * 3 // 4)
    status, _, err = command("check", "--store", file)
    assert status == 4
    assert "damaged" in err
    assert "store check" not in err
