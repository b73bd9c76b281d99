from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from tests.h200 import H200
from tests.once import ENSURE_SCHEMA
from tests.store.bursts import make_burst
from xstage_tune.base.errors import ExitCode, StoreError
from xstage_tune.store import migrate
from xstage_tune.store.facade import Store
from xstage_tune.store.runs import RunWriter

NOBODY = 65534


def write_run(store: Store, launches: int = 2) -> str:
    with store.begin_run(kind="calibrate", argv=[], device=H200) as run:
        for sequence in range(launches):
            run.add_launch(sequence, make_burst(sequence))
    return run.id


def change(file: Path, *statements: str) -> None:
    """Change a closed store behind its back."""
    with closing(sqlite3.connect(file)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@contextmanager
def page_limit(extra: int, file: Path | None = None) -> Iterator[None]:
    """A disk on which SQLite files can grow by ``extra`` pages only, beyond what a file has."""
    pages = 0
    if file is not None:
        with closing(sqlite3.connect(file)) as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()

    def limit(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(f"PRAGMA max_page_count={pages + extra}")

    event.listen(Engine, "connect", limit)
    try:
        yield
    finally:
        event.remove(Engine, "connect", limit)


@contextmanager
def as_user(user: int) -> Iterator[None]:
    """As another user, where the tests run as root; as the same one elsewhere."""
    before = os.geteuid()
    if os.getuid() == 0:
        os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.fixture
def unprivileged_folder() -> Iterator[Path]:
    """A folder that may be read but not written, even when the tests run as root."""
    folder = Path(tempfile.mkdtemp())
    user = os.geteuid()
    with Store.open(folder / "existing.db") as store:  # also loads all modules while they can be read
        write_run(store)
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555)
    if user == 0:
        os.seteuid(NOBODY)
    yield folder
    os.seteuid(user)
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["new.db", "existing.db", "deeper/new.db"])
def test_an_unwritable_place_is_named(unprivileged_folder: Path, name: str) -> None:
    path = unprivileged_folder / name
    with pytest.raises(StoreError, match=str(path)) as refusal, Store.open(path) as store:
        write_run(store)
    assert refusal.value.hint


@pytest.mark.parametrize("folder_mode", [0o555, 0o777])
def test_a_store_that_cannot_be_written_is_read(unprivileged_folder: Path, folder_mode: int) -> None:
    path = unprivileged_folder / "existing.db"
    with as_user(os.getuid()):
        unprivileged_folder.chmod(folder_mode)
    with Store.open(path, create=False) as store:
        assert store.read_only
        (run,) = store.runs()
        assert len(store.launches(run.id)) == 2
        assert store.summary().launches == 2
        assert store.check().problems == ()
    with pytest.raises(StoreError, match=f"{path}: it cannot be written"), Store.open(path) as store:
        write_run(store)


def test_launches_still_in_the_log_are_read_from_a_folder_that_cannot_be_written(
    unprivileged_folder: Path,
) -> None:
    path = unprivileged_folder / "existing.db"
    with as_user(os.getuid()):
        unprivileged_folder.chmod(0o755)
        path.chmod(0o644)
        with Store.open(path) as writer:
            write_run(writer)
            for file in unprivileged_folder.iterdir():
                file.chmod(0o444)
            unprivileged_folder.chmod(0o555)
            with as_user(NOBODY), Store.open(path, create=False) as store:
                assert len(store.runs()) == 2


def test_a_folder_is_refused_with_a_file_in_it_suggested(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a directory") as refusal:
        Store.open(tmp_path)
    assert refusal.value.hint == f"--store {tmp_path}/store.db"


def test_a_file_where_a_folder_should_be_is_named(file: Path) -> None:
    file.write_text("")
    with pytest.raises(StoreError, match=str(file)):
        Store.open(file / "store.db")


def test_a_file_that_is_no_database_is_left_alone(file: Path) -> None:
    file.write_text("measurements, but not ours\n" * 100)
    before = file.read_bytes()
    with pytest.raises(StoreError, match=f"{file}.*no SQLite file") as refusal:
        Store.open(file)
    assert refusal.value.exit_code == ExitCode.STORE
    assert file.read_bytes() == before


def test_a_truncated_file_is_called_damaged(file: Path) -> None:
    with Store.open(file) as store:
        write_run(store)
    os.truncate(file, file.stat().st_size * 3 // 4)
    with pytest.raises(StoreError, match=f"{file}.*damaged"):
        Store.open(file)


@pytest.mark.parametrize("table", ["run", "alembic_version"])
@pytest.mark.parametrize("create", [True, False])
def test_a_database_of_another_application_is_left_alone(file: Path, table: str, create: bool) -> None:
    change(file, f"CREATE TABLE {table} (something TEXT)")
    before = file.read_bytes()
    with pytest.raises(StoreError, match=f"{file} is another application's database"):
        Store.open(file, create=create)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_a_store_to_read_is_not_made(file: Path) -> None:
    for path in (file, file.parent / "deeper" / "store.db"):
        with pytest.raises(StoreError, match=f"no store at {path}"):
            Store.open(path, create=False)
    assert list(file.parent.iterdir()) == []


def test_an_empty_file_is_no_store_to_read(file: Path) -> None:
    file.touch()
    with pytest.raises(StoreError, match=f"no store at {file}"):
        Store.open(file, create=False)


def test_a_store_truncated_to_nothing_is_refused_not_begun_anew(file: Path) -> None:
    with Store.open(file) as store:
        write_run(store)
    os.truncate(file, 0)
    with pytest.raises(StoreError, match=f"{file} holds nothing") as refusal:
        Store.open(file)
    assert refusal.value.exit_code == ExitCode.STORE
    assert "remove the file" in refusal.value.hint
    assert file.stat().st_size == 0


def test_a_full_disk_keeps_what_was_committed(file: Path) -> None:
    with Store.open(file) as store:
        write_run(store, launches=1)
    measured: list[int] = []

    def measure_until_full(run: RunWriter) -> None:
        for sequence in range(100):
            run.add_launch(sequence, make_burst(sequence))
            measured.append(sequence)

    with (
        page_limit(20, file),
        Store.open(file) as store,
        pytest.raises(StoreError, match=f"{file}.*disk is full"),
        store.begin_run(kind="calibrate", argv=[], device=H200) as run,
    ):
        measure_until_full(run)
    assert measured
    with Store.open(file) as store:
        assert [launch.sequence for launch in store.launches(run.id)] == measured
        assert [launch.table().spans.tobytes() for launch in store.launches(run.id)] == [
            make_burst(sequence).table.spans.tobytes() for sequence in measured
        ]
        assert store.run(run.id).status == "failed"
        assert store.check().problems == ()


def test_a_new_store_on_a_full_disk_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "ensure_schema", ENSURE_SCHEMA)
    with page_limit(4), pytest.raises(StoreError, match="disk is full"):
        Store.open(file)
    assert list(file.parent.iterdir()) == []  # nothing half-made is left behind
    with Store.open(file) as store:
        assert store.runs() == []


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (
            "UPDATE chunk SET blob = substr(blob, 1, 99) WHERE kind = 'spans' AND launch_id = 2",
            "spans: damaged",
        ),
        ("UPDATE chunk SET sha256 = 'ab' WHERE kind = 'lanes' AND launch_id = 2", "lanes: damaged"),
        ("UPDATE chunk SET n = n + 1 WHERE kind = 'spans' AND launch_id = 2", "spans: damaged"),
        ("UPDATE chunk SET codec = 'spans-9' WHERE kind = 'spans' AND launch_id = 2", "unknown codec"),
        ("DELETE FROM chunk WHERE kind = 'spans' AND launch_id = 2", "1 of 2 chunks"),
        ("DELETE FROM chunk WHERE launch_id = 2", "0 of 2 chunks"),
    ],
)
def test_check_names_the_damaged_chunk(file: Path, damage: str, named: str) -> None:
    with Store.open(file) as store:
        run_id = write_run(store)
    change(file, damage)
    with Store.open(file) as store:
        (problem,) = store.check().problems
        first, second = store.launches(run_id)
        first.table()
        with pytest.raises(StoreError, match=f"run {run_id}, launch 1, rank 0"):
            second.table()
    assert problem.startswith(f"run {run_id}, launch 1, rank 0")
    assert named in problem


def test_check_names_rows_that_lost_their_parent(file: Path) -> None:
    with Store.open(file) as store:
        write_run(store)
    change(file, "DELETE FROM run")
    with Store.open(file) as store:
        assert any("launch" in problem and "run" in problem for problem in store.check().problems)


def test_check_survives_damaged_pages(file: Path) -> None:
    with Store.open(file) as store:
        write_run(store, launches=30)
    content = bytearray(file.read_bytes())
    content[-8192:] = b"\xff" * 8192  # the newest rows; the schema's pages come first
    file.write_bytes(content)
    with Store.open(file) as store:
        report = store.check()
    assert report.problems


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://user@host/db", "'mysql', which is not supported"),
        ("sqlite://", "names no file"),
        ("postgresql://user@host:port/db", "cannot be read"),
    ],
)
def test_a_url_that_is_no_store_is_refused(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        Store.open(url)


def test_an_unreachable_server_is_named_without_its_password() -> None:
    with pytest.raises(StoreError, match="server cannot be used") as refusal:
        Store.open("postgresql://user:secret@127.0.0.1:1/db")
    assert "secret" not in refusal.value.message
    assert refusal.value.hint


def test_a_missing_driver_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match="no driver") as refusal:
        Store.open("postgresql://user@host/db")
    assert "psycopg" in refusal.value.hint


def test_a_locked_store_is_called_locked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xstage_tune.store.dialects._BUSY_TIMEOUT_S", 0.05)
    with Store.open(file) as store, closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=f"{file}.*locked"):
            write_run(store)
