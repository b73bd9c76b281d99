"""Writing a user's file: whole or not at all, and never over another one unasked."""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from xstage_tune.base.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Buffer


def refuse_existing(path: Path, force: bool) -> None:
    """Refuse a target that exists, unless it may be replaced.

    Raises:
        UsageError: it is a folder, it exists and ``force`` is not set, or its folder cannot be looked into.
    """
    with _failures_named(path):
        exists, is_folder = path.exists(), path.is_dir()
    if is_folder:
        raise UsageError(f"{path} is a folder", "name a file in it")
    if exists and not force:
        raise UsageError(f"{path} exists", "choose another file, or replace it with --force")


def write_text(path: Path, text: str, *, force: bool = False) -> None:
    """Write a file in one go; raises as :func:`whole_file`."""
    with whole_file(path, force=force) as file:
        file.write(text.encode())


@contextmanager
def whole_file(path: Path, *, force: bool = False) -> Iterator[BinaryIO]:
    """A file to write in binary, which takes its name when the block ends; if the block raises, none is left.

    Its folder is made. Errors of the block's own pass as they are; only those of this file become ours,
    wherever in the block they come up.

    Raises:
        UsageError: the file exists and ``force`` is not set, or it cannot be written (a full disk, say).
    """
    refuse_existing(path, force)
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")  # fits wherever the name itself does
    with _failures_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        target = _Target(temporary, path)
    try:
        with io.BufferedWriter(target) as file:
            yield file
            file.flush()
            with _failures_named(path):
                os.fsync(file.fileno())
        with _failures_named(path):
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class _Target(io.FileIO):
    """The file under its temporary name; what it cannot write, it says of the final one."""

    def __init__(self, temporary: Path, path: Path) -> None:
        super().__init__(temporary, "w")
        self._path = path

    def write(self, data: Buffer, /) -> int:
        with _failures_named(self._path):
            return super().write(data)


@contextmanager
def _failures_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "choose another place") from None
