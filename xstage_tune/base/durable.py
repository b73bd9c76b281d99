"""What makes files survive a power cut, and what a killed process leaves behind vanish.

A file's data are on the disk once it is synced, its name once its folder is. A file is written under a
temporary name that its writer holds a lock on; whoever writes to the folder next removes those that nobody
holds.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Names of temporary files, with those that SQLite keeps beside a database.
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp(-wal|-shm|-journal)?")
#: What a file system without hard links says of one.
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def make_folder(folder: Path) -> None:
    """Make a folder with those above it, each synced.

    Raises:
        OSError: one cannot be made.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder; where its file system knows no such thing, nothing is done."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def temporary_beside(path: Path, mode: int = 0o666) -> Iterator[tuple[Path, int]]:
    """An empty file in another's folder, to be renamed or linked to its name; orphans there are removed.

    Gives its name, which is as short as fits wherever ``path`` does, and a descriptor that writes to it. The
    name is gone when the block ends.

    Raises:
        OSError: the folder cannot be written.
    """
    remove_orphans(path.parent)
    temporary, descriptor = _locked_file(path, mode)
    try:
        yield temporary, descriptor
    finally:
        for name in (temporary, *_beside_database(temporary)):
            name.unlink(missing_ok=True)
        os.close(descriptor)


def _locked_file(path: Path, mode: int) -> tuple[Path, int]:
    """A new file that counts as no orphan; one that was removed before it was locked is made anew."""
    while True:
        temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return temporary, descriptor
        os.close(descriptor)


def name_new(temporary: Path, path: Path) -> None:
    """Give a file a name that no other has, whoever else is at it.

    Raises:
        FileExistsError: there is a file of that name.
        OSError: the folder cannot be written.
    """
    try:
        path.hardlink_to(temporary)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        path.touch(exist_ok=False)
        temporary.replace(path)


def remove_orphans(folder: Path) -> None:
    """Remove the temporary files of processes that were killed."""
    with suppress(OSError):
        found = [entry.name for entry in os.scandir(folder) if _TEMPORARY.fullmatch(entry.name)]
        for name in found:
            _remove_if_orphaned(folder / name)


def _remove_if_orphaned(path: Path) -> None:
    database = path.with_name(path.name.partition(".tmp")[0] + ".tmp")
    with suppress(OSError):  # gone meanwhile, or another user's
        if path != database and database.exists():
            return  # goes with its database
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in (path, *_beside_database(path)):
                name.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def _beside_database(path: Path) -> list[Path]:
    return [path.with_name(f"{path.name}-{kind}") for kind in ("wal", "shm", "journal")]
