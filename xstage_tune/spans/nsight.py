"""Nsight Systems' SQLite export: NVTX ranges, kernels and copies.

The tables and columns are of "SQLite Export Schema Reference" in the Nsight Systems documentation; which
there are depends on its version and on what was traced, so each is asked for.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from xstage_tune.base.errors import UsageError
from xstage_tune.launches.imported import Timeline
from xstage_tune.spans.buffer import MOST_SPANS
from xstage_tune.spans.timeline import Intervals

SQLITE_MAGIC = b"SQLite format 3\0"
#: Of one value.
_MOST_VALUE_BYTES = 1 << 20
_MOST_STRINGS = 2_000_000
_HINT = "export it with: nsys export --type sqlite REPORT.nsys-rep"
#: Event types of NVTX_EVENTS: ranges that are pushed and popped, and those that start and end anywhere.
_NESTED, _FREE = (59, 70), (60, 71)
#: Names of CUPTI's kinds of copies.
_COPIES = {1: "host to device", 2: "device to host", 8: "device to device", 10: "peer to peer"}
_ACTIVITIES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
)


def read_nsight(file: Path, origin: str) -> Timeline:
    """The spans of an export; a lane is a CPU thread's NVTX ranges, or a stream of a GPU.

    Raises:
        UsageError: it is damaged, or another database.
    """
    place = f"file:{quote(str(file.resolve()))}?mode=ro&immutable=1"
    found = Intervals(origin)
    try:
        with closing(sqlite3.connect(place, uri=True)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_VALUE_BYTES)
            connection.text_factory = lambda stored: stored.decode(errors="replace")
            connection.execute("PRAGMA trusted_schema=OFF")
            export = _Export(connection)
            for name in _ACTIVITIES:
                _add_activities(export, name, found)
            _add_ranges(export, found)
            gpus = export.rows("TARGET_INFO_GPU", ("name",), 1)
            gpu = next((str(name) for (name,) in gpus), "")
            return found.timeline(file.name, "nsight-systems", gpu)
    except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:  # the second of its own message
        raise UsageError(f"{origin}: no SQLite file that can be read: {error}", _HINT) from None


class _Export:
    """Tables that may be there."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._tables = {name for (name,) in tables}
        self._strings = dict(self.rows("StringIds", ("id", "value"), _MOST_STRINGS))

    def rows(
        self, table: str, columns: tuple[str, ...], most: int = MOST_SPANS + 1
    ) -> Iterator[tuple[Any, ...]]:
        """These columns, None for one that this version has not; nothing of a table that is not there."""
        if table not in self._tables:
            return iter(())
        there = {row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")}
        chosen = ", ".join(f'"{column}"' if column in there else "NULL" for column in columns)
        return self._connection.execute(f"SELECT {chosen} FROM {table} LIMIT {most}")

    def text(self, *ids: Any) -> str:
        """The first of these that is a text, or the number of one."""
        for one in ids:
            if isinstance(one, str):
                return one
            if isinstance(one, int) and one in self._strings:
                return str(self._strings[one])
        return ""


def _add_activities(export: _Export, table: str, found: Intervals) -> None:
    columns = ("start", "end", "deviceId", "streamId", "shortName", "demangledName", "copyKind")
    for start, end, device, stream, short, full, copy in export.rows(table, columns):
        if table.endswith("KERNEL"):
            name = export.text(short, full) or "kernel"
        elif table.endswith("MEMCPY"):
            name = f"copy {_COPIES.get(copy, f'of kind {copy}') if isinstance(copy, int) else ''}".rstrip()
        else:
            name = "memset"
        _add(found, f"GPU {device} / stream {stream}", name, start, end)


def _add_ranges(export: _Export, found: Intervals) -> None:
    threads = {
        thread: export.text(name) for thread, name in export.rows("ThreadNames", ("globalTid", "nameId"))
    }
    columns = ("start", "end", "eventType", "globalTid", "textId", "text")
    for start, end, kind, thread, text_id, text in export.rows("NVTX_EVENTS", columns):
        if kind not in (*_NESTED, *_FREE) or not isinstance(thread, int):
            continue
        # A global id is hardware, virtual machine (8 bits each), process and thread (24 bits each).
        process, number = (thread >> 24) & 0xFFFFFF, thread & 0xFFFFFF
        lane = f"process {process} / {threads.get(thread) or 'thread'} {number}, NVTX"
        name = export.text(text, text_id) or "range"
        _add(found, lane if kind in _NESTED else f"{lane} start/end", name, start, end)


def _add(found: Intervals, lane: str, name: str, start: Any, end: Any) -> None:
    if isinstance(start, int) and isinstance(end, int):
        found.add(name, found.lane(lane), float(start), float(end - start))
    else:
        found.left_out += 1
