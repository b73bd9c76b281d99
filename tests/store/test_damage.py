"""Damaged SQLite stores: each damage is an error that names its place, and what is whole comes out."""

from __future__ import annotations

import gzip
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.h200 import H200
from tests.store.bursts import make_burst
from tests.store.golden import make
from tests.store.holder_process import add_study
from tests.store.test_faults import change, write_run
from xstage_tune.base.errors import ExitCode, StoreError, UsageError
from xstage_tune.store.facade import Store
from xstage_tune.store.location import resolve_location
from xstage_tune.store.migrate import HEAD_REVISION
from xstage_tune.store.salvage import salvage

RESULT = {"result": {"best": 1}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str, str]:
    """A store, with the ids of a run of three launches with a fit, and of a finished study of 40 trials."""
    file = tmp_path_factory.mktemp("whole") / "store.db"
    with Store.open(file) as store:
        run_id = write_run(store, launches=3)
        study = add_study(store)
        with store.begin_run(kind="calibrate", argv=[], device=H200) as run:
            run.add_launch(0, make_burst())
            run.add_fit("platform", {"rate": 1.5})
        for number in range(40):
            store.studies.add_trial(
                study, number=number, state="complete", params={"block_m": number}, objective_ns=1e5 - number
            )
        store.studies.add_trial(
            study, number=40, state="complete", params={}, objective_ns=1.0, verification=RESULT
        )
        store.studies.end(study, "finished")
    return file.read_bytes(), run_id, study


@pytest.fixture
def filled(file: Path, whole: tuple[bytes, str, str]) -> tuple[str, str]:
    """The ids, of a store of the test's own."""
    content, run_id, study = whole
    file.write_bytes(content)
    return run_id, study


def read_all(store: Store) -> None:
    for run in store.runs():
        store.fits(run.id)
        for launch in store.launches(run.id):
            launch.table()
    for study in store.studies.all():
        store.studies.trials(study.id)
        store.studies.exports(study.id)


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        ("UPDATE run SET seed = 7 WHERE kind = 'calibrate'", "table run, row cal-"),
        ("UPDATE run SET argv = '[' ", "table run, row cal-"),
        ("UPDATE launch SET elapsed_ns = elapsed_ns + 1 WHERE sequence = 1", "table launch, row 2"),
        ("UPDATE launch SET point = '{' WHERE sequence = 2", "table launch, row 3"),
        ("UPDATE launch SET mode = CAST(x'ff' AS TEXT) WHERE sequence = 2", "table launch, row 3"),
        ("UPDATE launch SET gpu_before = NULL WHERE sequence = 2", "table launch, row 3"),
        ("UPDATE fit SET payload = replace(payload, '1.5', '2.5')", "table fit, row 1"),
        ("UPDATE study SET seed = 1", "table study, row stu-"),
        ("UPDATE study SET status = 'failed'", "table study, row stu-"),
        ("UPDATE trial SET objective_ns = 1 WHERE number = 5", "table trial, row 6"),
        ("UPDATE trial SET objective_ns = 'x' WHERE number = 5", "table trial, row 6"),
        ("UPDATE trial SET number = 99 WHERE number = 5", "table trial, row 6"),
        ("UPDATE trial SET params = '{\"a\": ' WHERE number = 5", "table trial, row 6"),
        ("UPDATE trial SET verification = NULL WHERE number = 40", "table trial, row 41"),
        ("UPDATE trial SET checksum = NULL WHERE number = 5", "table trial, row 6"),
        ("UPDATE environment SET gpu_name = 'B200'", "table environment, row 1"),
    ],
)
@pytest.mark.usefixtures("filled")
def test_a_changed_row_is_named_when_it_is_read_and_by_check(file: Path, damage: str, place: str) -> None:
    change(file, "PRAGMA ignore_check_constraints=ON", damage)
    with Store.open(file) as store:
        with pytest.raises(StoreError, match=place) as refusal:
            read_all(store)
        assert any(place in problem for problem in store.check().problems)
    assert refusal.value.exit_code == ExitCode.STORE
    assert str(file) in refusal.value.message
    assert "salvage" in refusal.value.hint


def test_a_row_that_an_index_hides_is_missed(file: Path, filled: tuple[str, str]) -> None:
    """The trials are found by an index: with an entry less, the answer would be another one."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("CREATE TABLE keep AS SELECT * FROM trial WHERE number = 40")
        connection.execute("DELETE FROM trial WHERE number = 40")
        index = "SELECT rootpage FROM sqlite_master WHERE name LIKE 'sqlite_autoindex_trial%'"
        (page,) = connection.execute(index).fetchone()
    before = file.read_bytes()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("INSERT INTO trial SELECT * FROM keep")
        connection.execute("DROP TABLE keep")
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    stale = bytearray(file.read_bytes())
    stale[(page - 1) * size : page * size] = before[(page - 1) * size : page * size]
    file.write_bytes(stale)
    with Store.open(file) as store, pytest.raises(StoreError, match=r"table trial: SQLite: .*index"):
        store.studies.trials(filled[1])


def test_what_is_whole_can_still_be_read_beside_what_is_damaged(file: Path, filled: tuple[str, str]) -> None:
    change(
        file, "UPDATE trial SET number = 99 WHERE number = 5", "UPDATE run SET status = 'running', pid = 1"
    )
    with Store.open(file) as store:
        assert store.studies.get(filled[1]).status == "finished"
        assert len(store.launches(filled[0])) == 3


def test_salvage_copies_what_is_whole(file: Path, filled: tuple[str, str], tmp_path: Path) -> None:
    run_id, study = filled
    change(
        file,
        "UPDATE trial SET objective_ns = 1 WHERE number = 5",
        "UPDATE chunk SET blob = x'00' WHERE launch_id = 2 AND kind = 'lanes'",
        "UPDATE fit SET kind = 'other'",
    )
    made = salvage(resolve_location(file), tmp_path / "whole.db")
    assert (made.copied["trial"], made.copied["launch"], made.copied["fit"]) == (40, 3, 0)
    assert any("table trial, row 6" in lost for lost in made.lost)
    with Store.open(tmp_path / "whole.db") as store:
        assert store.check().problems == ()
        read_all(store)
        assert [launch.sequence for launch in store.launches(run_id)] == [0, 2]
        assert [trial.number for trial in store.studies.trials(study)] == [n for n in range(41) if n != 5]
        assert store.studies.get(study).status == "finished"


def test_a_salvaged_study_without_its_answer_is_to_be_resumed(
    file: Path, filled: tuple[str, str], tmp_path: Path
) -> None:
    change(file, "UPDATE trial SET objective_ns = 2 WHERE number = 40")
    salvage(resolve_location(file), tmp_path / "whole.db")
    with Store.open(tmp_path / "whole.db") as store:
        assert store.studies.get(filled[1]).status == "interrupted"
        assert store.studies.to_resume("latest").id == filled[1]


def test_salvage_passes_over_damaged_pages(file: Path, filled: tuple[str, str], tmp_path: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'trial'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(file.read_bytes())
    leaf = int.from_bytes(content[(page - 1) * size + 12 :][:2], "big")  # first cell of an interior page
    child = int.from_bytes(content[(page - 1) * size + leaf :][:4], "big")
    content[(child - 1) * size : child * size] = b"\xff" * size
    file.write_bytes(content)
    with Store.open(file) as store, pytest.raises(StoreError, match="damaged"):
        store.studies.trials(filled[1])
    made = salvage(resolve_location(file), tmp_path / "whole.db")
    assert 0 < made.copied["trial"] < 41
    assert made.copied["launch"] == 4
    with Store.open(tmp_path / "whole.db") as store:
        assert store.check().problems == ()


@pytest.mark.usefixtures("filled")
def test_salvage_replaces_nothing(file: Path, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        salvage(resolve_location(file), tmp_path / "there")


def test_a_migrated_row_that_was_undecodable_counts_as_damaged(file: Path) -> None:
    """In a store of before checksums, with a password on a command line."""
    file.write_bytes(gzip.decompress((make.FOLDER / "schema_0004.db.gz").read_bytes()))
    change(
        file,
        "UPDATE trial SET params = '{'",
        'UPDATE run SET argv = \'["--store", "postgresql://me:secret@host/db"]\'',
    )
    with Store.open(file) as store:
        assert store.summary().revision == HEAD_REVISION
        assert store.check().problems == ("table trial, row 1: damaged",)
        assert {argument for run in store.runs() for argument in run.argv} == {
            "--store",
            "postgresql://me:***@host/db",
        }


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = Path("/dev/zero")
    if kind == "fifo":
        path = tmp_path / "fifo"
        os.mkfifo(path)
    with pytest.raises(StoreError, match="pipe or device"):
        Store.open(path)
