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
from functools import cached_property
from pathlib import Path

import numpy as np

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

#: What reading a member of a damaged zip may raise.
_UNREADABLE = (zipfile.BadZipFile, zlib.error, KeyError, OSError)
_TABLES, _INDEX = "tables", "tables.index"
#: Of each table, in the order in which they lie: its launch, and the bytes of its two chunks.
_INDEX_DTYPE = np.dtype([("number", "<u4"), ("spans", "<u4"), ("lanes", "<u4")])


class ArchiveWriter:
    """An archive that is being written."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._zip = archive
        self._chunks: list[bytes] = []
        self._index: list[tuple[int, int, int]] = []

    def add_table(self, number: int, table: SpanTable) -> None:
        """Keep the spans and lanes of launch ``number``."""
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
def new_archive(file: Path, *, force: bool = False) -> Iterator[ArchiveWriter]:
    """A block that writes an archive, which takes its name at the end, when all of it is whole.

    What comes last of all is for the block to write, after :meth:`ArchiveWriter.finish`.

    Raises:
        UsageError: the file exists and ``force`` is off, or cannot be written.
    """
    with whole_file(file, force=force) as opened, zipfile.ZipFile(opened, "w", zipfile.ZIP_STORED) as archive:
        yield ArchiveWriter(archive)


class Archive:
    """An archive opened for replay; tables are read when the first is asked for, and decoded one by one.

    Args:
        command: what records such a file, for hints.

    Raises:
        UsageError: the file is missing, truncated, or no archive.
    """

    def __init__(self, file: Path, command: str) -> None:
        self.file, self._command = file, command
        try:
            self._zip = zipfile.ZipFile(file)
        except FileNotFoundError:
            raise UsageError(f"no recording at {file}", "check the path") from None
        except OSError as error:
            raise UsageError(f"cannot read recording {file}: {error.strerror}", "check the path") from None
        except zipfile.BadZipFile as error:
            raise self.damaged(f"it is truncated or no recording ({error})") from None

    def table(self, number: int) -> SpanTable:
        """Spans and lanes of launch ``number``.

        Raises:
            UsageError: it is damaged or not there.
        """
        if number not in self._places:
            raise self.damaged(f"launch {number} has no spans")
        begin, middle, end = self._places[number]
        try:
            return SpanTable(decode_spans(self._tables[begin:middle]), decode_lanes(self._tables[middle:end]))
        except ChunkError as error:
            raise self.damaged(f"launch {number}: {error}") from None

    @cached_property
    def _tables(self) -> bytes:
        return self.member(_TABLES)

    @cached_property
    def _places(self) -> dict[int, tuple[int, int, int]]:
        """Where the two chunks of each launch begin and end."""
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
            f"if it was cut short, copy it; else record anew with: xstage-tune {self._command} --record FILE",
        )
