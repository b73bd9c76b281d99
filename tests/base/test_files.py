"""A user's files: whole or not at all, whatever goes wrong while they are written."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.disk import room_for
from xstage_tune.base.errors import UsageError
from xstage_tune.base.files import whole_file, write_text
from xstage_tune.store.facade import Store

TOO_LARGE = "x" * 100_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "new" / "answer.txt"


def test_a_file_appears_with_its_folder_and_nothing_beside_it(file: Path) -> None:
    write_text(file, "π\n")
    assert file.read_bytes() == b"\xcf\x80\n"
    assert list(file.parent.iterdir()) == [file]


def test_a_file_has_its_name_only_when_all_of_it_is_written(file: Path) -> None:
    with whole_file(file) as stream:
        stream.write(b"whole")
        stream.flush()
        assert not file.exists()
    assert file.read_bytes() == b"whole"


def test_another_file_is_replaced_only_by_force(file: Path) -> None:
    write_text(file, "mine")
    with pytest.raises(UsageError, match=r"answer\.txt exists"):
        write_text(file, "yours")
    assert file.read_text() == "mine"
    write_text(file, "yours", force=True)
    assert file.read_text() == "yours"


def test_a_full_disk_keeps_the_file_that_was_to_be_replaced(file: Path) -> None:
    write_text(file, "mine")
    with room_for(4096), pytest.raises(UsageError, match=rf"^cannot write {file}: File too large"):
        write_text(file, TOO_LARGE, force=True)
    assert file.read_text() == "mine"
    assert list(file.parent.iterdir()) == [file]


def write_and_fail(file: Path, error: BaseException) -> None:
    with whole_file(file) as stream:
        stream.write(b"half")
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), PermissionError(13, "of another file")])
def test_what_fails_beside_the_file_passes_as_it_is_and_leaves_none(file: Path, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        write_and_fail(file, error)
    assert caught.value is error
    assert list(file.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["a" * 300, "taken/answer.txt"])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "taken").write_text("a file where a folder is needed")
    with pytest.raises(UsageError, match=f"cannot write .*{name}: "):
        write_text(tmp_path / name, "")


def test_the_longest_name_that_a_folder_takes_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / ("a" * 255)
    write_text(file, "whole")
    assert file.read_text() == "whole"


def test_a_folder_is_refused_even_by_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, Path()):
        with pytest.raises(UsageError, match="is a folder"):
            write_text(folder, "", force=True)


def test_of_two_writers_at_once_one_gets_the_name(file: Path) -> None:
    """Neither sees the other's file when it begins."""

    def write_while_another_does() -> None:
        with whole_file(file) as stream:
            stream.write(b"late")
            write_text(file, "early")

    with pytest.raises(UsageError, match=r"answer\.txt exists"):
        write_while_another_does()
    assert file.read_text() == "early"
    assert list(file.parent.iterdir()) == [file]


def test_so_it_is_where_a_file_system_has_no_hard_links(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    write_text(file, "early")
    assert file.read_text() == "early"
    test_of_two_writers_at_once_one_gets_the_name(file.parent / "other" / "answer.txt")


def test_a_link_to_nothing_is_a_file_of_that_name(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    with pytest.raises(UsageError, match="link exists"):
        write_text(link, "unasked")
    assert not target.exists()
    write_text(link, "asked", force=True)
    assert link.is_symlink()
    assert target.read_text() == "asked"


def test_what_is_replaced_hands_on_its_mode(file: Path) -> None:
    write_text(file, "secret")
    file.chmod(0o600)
    write_text(file, "still", force=True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_is_replaced_hands_on_its_owner(file: Path) -> None:
    write_text(file, "theirs")
    os.chown(file, 1234, 5678)
    write_text(file, "still", force=True)
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 5678)


@pytest.mark.parametrize("force", [False, True])
def test_a_pipe_or_device_is_no_file_to_replace(tmp_path: Path, force: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(UsageError, match="is a pipe or device, not a file"):
            write_text(path, "", force=force)


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(UsageError, match="null byte"):
        write_text(Path("a\0b"), "")


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    program = """
import os, signal, sys
from pathlib import Path
from xstage_tune.base.files import whole_file
with whole_file(Path(sys.argv[1])) as file:
    file.write(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "first")], check=False)
    (orphan,) = tmp_path.iterdir()
    mine = tmp_path / ".0123456789abcdef.tmp.txt"
    mine.write_text("no temporary file of ours")
    with whole_file(tmp_path / "second") as file:
        file.write(b"whole")
        write_text(tmp_path / "third", "beside a writer that lives")
    assert {path.name for path in tmp_path.iterdir()} == {"second", "third", mine.name}
    assert (tmp_path / "second").read_bytes() == b"whole"
    assert not orphan.exists()


def test_what_a_kill_left_of_a_new_store_goes_with_the_next_one(tmp_path: Path) -> None:
    for name in (".0123456789abcdef.tmp", ".0123456789abcdef.tmp-wal", ".0123456789abcdee.tmp-shm"):
        (tmp_path / name).write_bytes(b"")
    Store.open(tmp_path / "store.db").close()
    assert [path.name for path in tmp_path.iterdir()] == ["store.db"]
