"""A user's files: read if they are files; written whole or not at all, and never over another one unasked."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from xstage_tune.base.durable import make_folder, name_new, sync_folder, temporary_beside
from xstage_tune.base.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Buffer


def require_regular(path: Path) -> None:
    """Refuse to read what is no file: a pipe would block, a device never end.

    Raises:
        OSError: it is none, or there is nothing of that name; ``strerror`` says so.
    """
    try:
        mode = path.stat().st_mode
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error)) from None
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a pipe or device"
        raise OSError(errno.EINVAL, f"it is {what}, not a file")


def refuse_existing(path: Path, force: bool) -> None:
    """Refuse a target that exists, unless it may be replaced.

    Raises:
        UsageError: it is a folder, a pipe or a device; it exists, be it as a link to nothing, and ``force``
            is not set; or its folder cannot be looked into.
    """
    try:
        with _failures_named(path):
            found = _status(path)
            exists = found is not None or path.is_symlink()
    except ValueError as error:  # a NUL in the name
        raise UsageError(f"cannot write {str(path)!r}: {error}", "choose another place") from None
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{path} is a folder", "name a file in it")
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path} is a pipe or device, not a file", "choose another file")
    if exists and not force:
        raise _exists(path)


def write_text(path: Path, text: str, *, force: bool = False) -> None:
    """Write a file in one go; raises as :func:`whole_file`."""
    with whole_file(path, force=force) as file:
        file.write(text.encode())


@contextmanager
def whole_file(path: Path, *, force: bool = False) -> Iterator[BinaryIO]:
    """A file to write in binary, which takes its name when the block ends; if the block raises, none is left.

    Its folder is made. What is replaced hands on its mode and, where that is allowed, its owner; a link stays
    one. Errors of the block's own pass as they are; only those of this file become ours, wherever in the
    block they come up.

    Raises:
        UsageError: the file exists and ``force`` is not set, though it came only while the block ran; or it
            cannot be written (a full disk, say).
    """
    refuse_existing(path, force)
    with ExitStack() as stack:
        with _failures_named(path):
            final = Path(os.path.realpath(path)) if force else path
            like = _status(final) if force else None
            make_folder(final.parent)
            beside = temporary_beside(final, 0o666 if like is None else 0o600)
            temporary, descriptor = stack.enter_context(beside)
            target = _Target(descriptor, path, like)
        with io.BufferedWriter(target) as file:
            yield file
            file.flush()
            with _failures_named(path):
                os.fsync(file.fileno())
        with _failures_named(path):
            if force:
                temporary.replace(final)
            else:
                _name_new(temporary, final)
        sync_folder(final.parent)  # what is said to be written survives a power cut


def _name_new(temporary: Path, path: Path) -> None:
    """Give a file a name that no other has.

    Raises:
        UsageError: there is a file of that name.
    """
    try:
        name_new(temporary, path)
    except FileExistsError:
        raise _exists(path) from None


def _exists(path: Path) -> UsageError:
    return UsageError(f"{path} exists", "choose another file, or replace it with --force")


def _status(path: Path) -> os.stat_result | None:
    """Of the file behind a name; None where there is none."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


class _Target(io.FileIO):
    """The file under its temporary name; what it cannot write, it says of the final one.

    Args:
        descriptor: of the file; stays open.
        like: of the file that it replaces: whose mode and owner it gets.
    """

    def __init__(self, descriptor: int, path: Path, like: os.stat_result | None) -> None:
        super().__init__(os.dup(descriptor), "w")
        self._path = path
        if like is None:
            return
        for owner, group in ((-1, like.st_gid), (like.st_uid, -1)):
            with suppress(OSError):
                os.fchown(self.fileno(), owner, group)
        with suppress(OSError):
            os.fchmod(self.fileno(), stat.S_IMODE(like.st_mode))

    def write(self, data: Buffer, /) -> int:
        with _failures_named(self._path):
            return super().write(data)


@contextmanager
def _failures_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "choose another place") from None
