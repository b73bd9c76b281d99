"""The file of a recording: a zip of span tables, and a manifest that is written last.

Each table has a member of spans and one of lanes, encoded as the store's chunks are. The zip's own checksums
and its directory at the end tell a damaged or truncated file.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from xstage_tune.assets import data_dir
from xstage_tune.errors import UsageError
from xstage_tune.files import whole_file
from xstage_tune.spans import SpanTable
from xstage_tune.store.chunks import (
    ChunkError,
    decode_lanes,
    decode_spans,
    encode_lanes,
    encode_spans,
)

Manifest = TypeVar("Manifest")

#: What reading a member of a damaged zip may raise.
_UNREADABLE = (zipfile.BadZipFile, zlib.error, KeyError, OSError)


def _members(number: int) -> tuple[str, str]:
    return f"{number:05d}.spans", f"{number:05d}.lanes"


class ArchiveWriter:
    """Writes an archive, which takes its name when all of it is whole.

    Args:
        manifest: its name, and what gives its text at the end.

    Raises:
        UsageError: the file exists and ``force`` is off, or cannot be written.
    """

    def __init__(self, file: Path, manifest: tuple[str, Callable[[], bytes]], *, force: bool) -> None:
        self._manifest = manifest
        self._exits = ExitStack()
        opened = self._exits.enter_context(whole_file(file, force=force))
        self._zip = zipfile.ZipFile(opened, "w", zipfile.ZIP_STORED)
        self._exits.push(self._finish)

    def add_table(self, number: int, table: SpanTable) -> None:
        """Keep the spans and lanes of run ``number``.

        Raises:
            UsageError: the file cannot be written (a full disk, say).
        """
        spans, lanes = _members(number)
        self._zip.writestr(spans, encode_spans(table.spans))
        self._zip.writestr(lanes, encode_lanes(table.lanes))

    def add_member(self, name: str, data: bytes) -> None:
        """Keep something else, deflated; raises as :meth:`add_table`."""
        self._zip.writestr(name, data, zipfile.ZIP_DEFLATED)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exits.__exit__(kind, error, trace)

    def _finish(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        """End the zip; its manifest is written last, and only where nothing went wrong."""
        name, text = self._manifest
        with self._zip:
            if kind is None:
                # Points, launches and states are small and alike: the one member that is worth deflating.
                self._zip.writestr(name, text(), zipfile.ZIP_DEFLATED)


class Archive:
    """An archive opened for replay; spans are decoded run by run.

    Args:
        command: what records such a file, as a hint names it.

    Raises:
        UsageError: the file is missing, or truncated.
    """

    def __init__(self, file: Path, command: str) -> None:
        self._file, self._command = file, command
        try:
            self._zip = zipfile.ZipFile(file)
        except FileNotFoundError:
            raise UsageError(f"no recording at {file}", "check the path") from None
        except OSError as error:
            raise UsageError(f"cannot read recording {file}: {error.strerror}", "check the path") from None
        except zipfile.BadZipFile as error:
            raise self.damaged(f"it is truncated or no recording ({error})") from None

    def manifest(self, name: str, adapter: TypeAdapter[Manifest]) -> Manifest:
        """The manifest.

        Raises:
            UsageError: it is damaged, of another version, or of another kind of recording.
        """
        try:
            return adapter.validate_json(self._zip.read(name))
        except _UNREADABLE as error:
            raise self.damaged(f"it is truncated or no recording ({error})") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise self.damaged(f"{name}: {where}: {first['msg']}") from None

    def table(self, number: int) -> SpanTable:
        """Spans and lanes of run ``number``.

        Raises:
            UsageError: its members are damaged.
        """
        try:
            spans, lanes = (self._zip.read(name) for name in _members(number))
            return SpanTable(decode_spans(spans), decode_lanes(lanes))
        except (*_UNREADABLE, ChunkError) as error:
            raise self.damaged(f"run {number}: {error}") from None

    def member(self, name: str) -> bytes:
        """What :meth:`ArchiveWriter.add_member` kept.

        Raises:
            UsageError: it is damaged or not there.
        """
        try:
            return self._zip.read(name)
        except _UNREADABLE as error:
            raise self.damaged(f"{name}: {error}") from None

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._zip.close()

    def damaged(self, reason: str) -> UsageError:
        """What to raise of a file that cannot be replayed."""
        return UsageError(
            f"recording {self._file} cannot be replayed: {reason}",
            f"copy the file again, or record anew with: xstage-tune {self._command} --record FILE",
        )


def shipped_file(name: str, suffix: str) -> Path:
    """File of a shipped recording, or ``name`` itself where it is a path.

    Raises:
        UsageError: no shipped recording of this suffix has that name.
    """
    if "/" in name or name.endswith(suffix):
        return Path(name)
    folder = data_dir("profiles") / "recordings"
    file = folder / f"{name}{suffix}"
    if not file.is_file():
        known = ", ".join(sorted(path.stem for path in folder.glob(f"*{suffix}"))) or "none"
        raise UsageError(
            f"no recording named '{name}' is shipped (there is: {known})",
            f"name one of them, or a file ending in {suffix}",
        )
    return file
