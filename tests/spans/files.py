"""Files of spans as other tools write them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

#: A name that would end a script, steer a terminal and end a cell.
HOSTILE = "<script>x</script>\x1b[2J|\u202e"

CHROME: list[dict[str, Any]] = [
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "rank 0"}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 9, "args": {"name": "CTA 3"}},
    {"ph": "X", "name": "gemm", "pid": 1, "tid": 9, "ts": 1000.25, "dur": 2.5, "args": {"index": 7}},
    {"ph": "X", "name": HOSTILE, "pid": 1, "tid": 9, "ts": 1002.75, "dur": 0.25},
    {"ph": "B", "name": "outer", "pid": "a", "tid": "b", "ts": 1000},
    {"ph": "B", "name": "inner", "pid": "a", "tid": "b", "ts": 1001},
    {"ph": "E", "pid": "a", "tid": "b", "ts": 1002},
    {"ph": "E", "pid": "a", "tid": "b", "ts": 6_001_000},
    {"ph": "E", "pid": "a", "tid": "b", "ts": 6_001_000},
    {"ph": "B", "name": "never ends", "pid": "a", "tid": "b", "ts": 7},
    {"ph": "X", "name": "no length", "pid": 1, "tid": 9, "ts": 1},
    {"ph": "i", "name": "mark", "pid": 1, "tid": 9, "ts": 1},
    {"ph": "C", "name": "counter", "pid": 1, "ts": 1, "args": {"v": 1}},
]


def chrome_file(file: Path, events: Any = CHROME) -> Path:
    file.write_text(json.dumps({"traceEvents": events}))
    return file


def nsight_file(file: Path, *, text: bool = True) -> Path:
    """An export with two kernels, a copy, a pushed range and one that starts and ends anywhere."""
    thread = (5 << 56) | (1234 << 24) | 1235
    column = ", text TEXT" if text else ""
    own = (", 'tile'", ", NULL") if text else ("", "")
    with closing(sqlite3.connect(file)) as export:
        export.executescript(
            f"""
            CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
            INSERT INTO StringIds VALUES (1, 'fused'), (2, 'main'), (3, 'step');
            CREATE TABLE ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER);
            INSERT INTO ThreadNames VALUES (2, 0, {thread});
            CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT);
            INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA H200');
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, "end" INTEGER, deviceId INTEGER,
                streamId INTEGER, shortName INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 1500, 0, 7, 1), (2000, 2700, 1, 7, 1);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, "end" INTEGER, deviceId INTEGER,
                streamId INTEGER, copyKind INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1600, 1700, 0, 7, 10);
            CREATE TABLE NVTX_EVENTS (start INTEGER, "end" INTEGER, eventType INTEGER, globalTid INTEGER,
                textId INTEGER{column});
            INSERT INTO NVTX_EVENTS VALUES (900, 2900, 59, {thread}, 3{own[1]}),
                (950, 960, 60, {thread}, NULL{own[0]}),
                (990, NULL, 59, {thread}, 3{own[1]}), (991, NULL, 34, {thread}, 3{own[1]});
            """
        )
    return file
