"""The file of a recording: a zip of span tables, and a manifest that is written last.

Tables are encoded as the store's chunks are, and lie end to end in one member: a zip spends 100 bytes on each
member, as many as a short launch. The zip's own checksums and its directory at the end tell a damaged or
truncated file.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from xstage_tune.base.assets import data_dir
from xstage_tune.base.chunks import (
    ChunkError,
    decode_lanes,
    decode_spans,
    encode_lanes,
    encode_spans,
)
from xstage_tune.base.errors import UsageError
from xstage_tune.base.files import whole_file
from xstage_tune.base.spans import SpanTable

Manifest = TypeVar("Manifest")

#: The shipped recording that replays unless another is named.
DEFAULT_RECORDING = "h200-host"
#: What reading a member of a damaged zip may raise.
_UNREADABLE = (zipfile.BadZipFile, zlib.error, KeyError, OSError)


@dataclass(frozen=True, slots=True)
class ArchiveKind(Generic[Manifest]):
    """A kind of recording.

    Args:
        suffix: of its files.
        member: name of the manifest in the archive.
        command: what records it, as a hint names it; its runs are of this kind in the store.
        manifest: how the manifest is written and read.
    """

    suffix: str
    member: str
    command: str
    manifest: TypeAdapter[Manifest]


#: What recorded a file, by the manifest's name in it.
_COMMANDS = {"recording.json": "calibrate", "emulation.json": "emulate", "profile.json": "profile"}

_TABLES, _INDEX = "tables", "tables.index"
#: Of each table, in the order in which they lie: its run, and the bytes of its two chunks.
_INDEX_DTYPE = np.dtype([("number", "<u4"), ("spans", "<u4"), ("lanes", "<u4")])


class ArchiveWriter(Generic[Manifest]):
    """An archive that is being written.

    Args:
        manifest: written at the end, as it is then: it grows with what is kept.
    """

    def __init__(self, archive: zipfile.ZipFile, manifest: Manifest) -> None:
        self.manifest = manifest
        self._zip = archive
        self._chunks: list[bytes] = []
        self._index: list[tuple[int, int, int]] = []

    def add_table(self, number: int, table: SpanTable) -> None:
        """Keep the spans and lanes of run ``number``."""
        spans, lanes = encode_spans(table.spans), encode_lanes(table.lanes)
        self._index.append((number, len(spans), len(lanes)))
        self._chunks += [spans, lanes]

    def add_member(self, name: str, data: bytes) -> None:
        """Keep something else, deflated.

        Raises:
            UsageError: the file cannot be written (a full disk, say).
        """
        self._zip.writestr(name, data, zipfile.ZIP_DEFLATED)

    def finish(self) -> None:
        """Write the tables; raises as :meth:`add_member`."""
        self._zip.writestr(_TABLES, b"".join(self._chunks))
        self.add_member(_INDEX, np.array(self._index, _INDEX_DTYPE).tobytes())


@contextmanager
def new_archive(
    file: Path, kind: ArchiveKind[Manifest], manifest: Manifest, *, force: bool = False
) -> Iterator[ArchiveWriter[Manifest]]:
    """A block that writes an archive, which takes its name at the end, when all of it is whole.

    Raises:
        UsageError: the file exists and ``force`` is off, or cannot be written.
    """
    with whole_file(file, force=force) as opened, zipfile.ZipFile(opened, "w", zipfile.ZIP_STORED) as archive:
        writer = ArchiveWriter(archive, manifest)
        yield writer
        writer.finish()
        archive.writestr(kind.member, kind.manifest.dump_json(manifest), zipfile.ZIP_DEFLATED)


class Archive(Generic[Manifest]):
    """An archive opened for replay; tables are read when the first is asked for, and decoded one by one.

    Raises:
        UsageError: the file is missing, truncated, damaged, of another version, or of another kind.
    """

    def __init__(self, file: Path, kind: ArchiveKind[Manifest]) -> None:
        self.file, self.kind = file, kind
        try:
            self._zip = zipfile.ZipFile(file)
        except FileNotFoundError:
            raise UsageError(f"no recording at {file}", "check the path") from None
        except OSError as error:
            raise UsageError(f"cannot read recording {file}: {error.strerror}", "check the path") from None
        except zipfile.BadZipFile as error:
            raise self.damaged(f"it is truncated or no recording ({error})") from None
        self.manifest = self._manifest()

    def table(self, number: int) -> SpanTable:
        """Spans and lanes of run ``number``.

        Raises:
            UsageError: it is damaged or not there.
        """
        if number not in self._places:
            raise self.damaged(f"run {number} has no spans")
        begin, middle, end = self._places[number]
        try:
            return SpanTable(decode_spans(self._tables[begin:middle]), decode_lanes(self._tables[middle:end]))
        except ChunkError as error:
            raise self.damaged(f"run {number}: {error}") from None

    @cached_property
    def _tables(self) -> bytes:
        return self.member(_TABLES)

    @cached_property
    def _places(self) -> dict[int, tuple[int, int, int]]:
        """Where the two chunks of each run begin and end."""
        data = self.member(_INDEX)
        if len(data) % _INDEX_DTYPE.itemsize:
            raise self.damaged(f"{_INDEX} is {len(data)} bytes long")
        index = np.frombuffer(data, _INDEX_DTYPE)
        lengths = np.column_stack((index["spans"], index["lanes"])).ravel()
        ends = [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
        return {
            int(number): (ends[2 * place], ends[2 * place + 1], ends[2 * place + 2])
            for place, number in enumerate(index["number"])
        }

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
            f"recording {self.file} cannot be replayed: {reason}",
            f"copy the file again, or record anew with: xstage-tune {self.kind.command} --record FILE",
        )

    def _manifest(self) -> Manifest:
        name = self.kind.member
        for other, command in _COMMANDS.items():
            if other != name and other in self._zip.namelist():
                raise UsageError(
                    f"{self.file} is a recording of {command}, not of {self.kind.command}",
                    f"xstage-tune {command} --device replay:{self.file}",
                )
        try:
            return self.kind.manifest.validate_json(self._zip.read(name))
        except _UNREADABLE as error:
            raise self.damaged(f"it is truncated or no recording ({error})") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise self.damaged(f"{name}: {where}: {first['msg']}") from None


def recording_file(name: str, suffix: str) -> Path:
    """File of a shipped recording, of :data:`DEFAULT_RECORDING` where none is named; or ``name``, a path.

    Raises:
        UsageError: no shipped recording of this suffix has that name.
    """
    name = name or DEFAULT_RECORDING
    if "/" in name or name.endswith(suffix):
        return Path(name)
    folder = data_dir("profiles") / "recordings"
    file = folder / f"{name}{suffix}"
    if not file.is_file():
        known = ", ".join(sorted(path.stem for path in folder.glob(f"*{suffix}")))
        if not known:
            raise UsageError(
                f"no recording of this kind is shipped, and '{name}' is no file ending in {suffix}",
                f"record one on a GPU with --record FILE{suffix}, then --device replay:FILE{suffix}",
            )
        raise UsageError(
            f"no recording named '{name}' is shipped (there is: {known})",
            f"name one of them, or a file ending in {suffix}",
        )
    return file
