from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from xstage_tune.base.errors import StoreError
from xstage_tune.store import dialects, location
from xstage_tune.store.facade import Store
from xstage_tune.store.location import default_path, resolve_location

MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /home rw - nfs4 server:/home rw
31 30 0:41 / /home/me/local\040disk rw - xfs /dev/vdb rw
""".strip()


def test_an_argument_goes_before_the_environment_and_that_before_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XSTAGE_STORE", raising=False)
    assert resolve_location(None).path == default_path()
    monkeypatch.setenv("XSTAGE_STORE", str(tmp_path / "env.db"))
    assert resolve_location(None).path == tmp_path / "env.db"
    assert resolve_location(tmp_path / "argument.db").path == tmp_path / "argument.db"


def test_a_path_and_its_sqlite_url_are_the_same_store(tmp_path: Path) -> None:
    assert resolve_location(f"sqlite:///{tmp_path}/a.db") == resolve_location(tmp_path / "a.db")


def test_a_relative_path_does_not_follow_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_location("a.db").path == tmp_path / "a.db"


def test_a_path_of_unusual_characters_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "50% of #1? ü" / "a b.db"
    Store.open(path).close()
    assert path.is_file()


def test_a_path_that_is_no_text_can_be_used_and_printed(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"a\xff.db")
    with Store.open(path) as store:
        assert store.location == f"{tmp_path}/a\\xff.db"
    assert path.is_file()


def test_the_home_of_no_such_user_holds_no_store() -> None:
    with pytest.raises(StoreError, match="no such user"):
        resolve_location("~no-such-user/store.db")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/x.db", "ext4"),
        ("/home/me/x.db", "nfs4"),
        ("/home/me/local disk/x.db", "xfs"),
        ("/homes", "ext4"),
    ],
)
def test_the_innermost_mount_decides_the_file_system(path: str, kind: str) -> None:
    assert location._file_system_type(Path(path), MOUNTS) == kind


def journal_mode(file: Path) -> str:
    with closing(sqlite3.connect(file)) as connection:
        return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


def test_a_local_store_keeps_a_write_ahead_log(file: Path) -> None:
    Store.open(file).close()
    assert journal_mode(file) == "wal"


def test_a_store_on_a_network_file_system_keeps_none_and_warns(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dialects, "network_file_system", lambda _: "nfs4")
    with caplog.at_level(logging.WARNING):
        Store.open(file).close()
    assert journal_mode(file) == "delete"
    assert f"{file} is on a network file system (nfs4)" in caplog.text
