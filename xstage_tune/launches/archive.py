"""The file of a recording: a zip of span tables, and a manifest that is written last.

Tables are encoded as the store's chunks are, and lie end to end in one member: a zip spends 100 bytes on each
member, as many as a short launch. The zip's own checksums and its directory at the end tell a damaged or
truncated file.
"""

from __future__ import annotations

import io
import os
import struct
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
from xstage_tune.base.files import require_regular, whole_file
from xstage_tune.base.spans import SpanTable

#: What reading a damaged zip may raise.
_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, OSError),
    *(OverflowError, RuntimeError, ValueError),  # of places and sizes that cannot be, and of encryption
)
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
#: Of the zip's directory: 50,000 members.
_MOST_DIRECTORY_BYTES = 4 << 20
#: Of one launch: 160 SMs whose shared memory is full of records. More than a GPU can keep.
_MOST_SPANS = 3_200_000
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

    Whatever it claims of its sizes is compared with what there can be before room is made for it.

    Args:
        command: what records such a file, for hints.

    Raises:
        UsageError: the file is missing, truncated, or no archive.
    """

    def __init__(self, file: Path, command: str) -> None:
        self.file, self._command = file, command
        try:
            require_regular(file)
            self._opened = _Opened(file)
        except FileNotFoundError:
            raise UsageError(f"no recording at {file}", "check the path") from None
        except OSError as error:
            raise UsageError(f"cannot read recording {file}: {error.strerror}", "check the path") from None
        self._bytes = os.fstat(self._opened.fileno()).st_size
        try:
            self._zip = zipfile.ZipFile(self._opened)
        except _UNREADABLE as error:
            self._opened.close()
            raise self.damaged(f"it is truncated or no recording ({error})") from None
        self._opened.most_bytes = self._bytes

    def table(self, number: int) -> SpanTable:
        """Spans and lanes of launch ``number``.

        Raises:
            UsageError: it is damaged or not there.
        """
        if number not in self._places:
            raise self.damaged(f"launch {number} has no spans")
        begin, middle, end = self._places[number]
        try:
            spans = decode_spans(self._tables[begin:middle], _MOST_SPANS)
            lanes = decode_lanes(self._tables[middle:end])
        except ChunkError as error:
            raise self.damaged(f"launch {number}: {error}") from None
        if len(spans) and spans["lane"].max() >= len(lanes):
            raise self.damaged(f"launch {number}: spans of other lanes than its {len(lanes)}")
        return SpanTable(spans, lanes)

    @cached_property
    def _tables(self) -> bytes:
        return self.member(_TABLES, self._bytes)

    @cached_property
    def _places(self) -> dict[int, tuple[int, int, int]]:
        """Where the two chunks of each launch begin and end."""
        data = self.member(_INDEX, self._bytes)  # a row is shorter than the chunks that it is of
        if len(data) % _INDEX_DTYPE.itemsize:
            raise self.damaged(f"{_INDEX} is {len(data)} bytes long")
        index = np.frombuffer(data, _INDEX_DTYPE)
        lengths = np.column_stack((index["spans"], index["lanes"])).ravel()
        ends = [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
        return {
            int(number): (ends[2 * place], ends[2 * place + 1], ends[2 * place + 2])
            for place, number in enumerate(index["number"])
        }

    def member(self, name: str, most_bytes: int) -> bytes:
        """What :meth:`ArchiveWriter.add_member` kept.

        Args:
            most_bytes: that it can have.

        Raises:
            UsageError: it is damaged, larger, or not there.
        """
        try:
            info = self._zip.getinfo(name)
            if info.compress_type not in _COMPRESSIONS:
                raise zipfile.BadZipFile(f"it is compressed by method {info.compress_type}")
            if info.file_size > most_bytes or info.compress_size > self._bytes:
                raise zipfile.BadZipFile(f"it claims {info.file_size:,} bytes, of at most {most_bytes:,}")
            with self._zip.open(info) as opened:
                data = opened.read(info.file_size)
        except _UNREADABLE as error:
            raise self.damaged(f"{name}: {error}") from None
        if len(data) != info.file_size:
            raise self.damaged(f"{name}: {len(data):,} of {info.file_size:,} bytes")
        return data

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._zip.close()
        self._opened.close()

    def damaged(self, reason: str) -> UsageError:
        """What to raise of a file that cannot be replayed."""
        return UsageError(
            f"recording {self.file} cannot be replayed: {reason}",
            f"if it was cut short, copy it; else record anew with: xstage-tune {self._command} --record FILE",
        )


class _Opened(io.FileIO):
    """A file of which no more is read at once than a directory may have, until that has been read."""

    most_bytes = _MOST_DIRECTORY_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > self.most_bytes:
            raise zipfile.BadZipFile(f"it claims {size:,} bytes, of at most {self.most_bytes:,}")
        return super().read(size)

    def __del__(self) -> None:
        self.close()  # as a zip does with what it opened itself
