"""Small span tables for traces, and a reader of trace files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xstage_tune.base.spans import LANE_DTYPE, SPAN_DTYPE, SpanKind, SpanTable

TICKS_PER_NS = 2


def span_table(
    rows: Sequence[tuple[int, SpanKind, int, int, int]], lanes: int = 1, *, stopped: Sequence[int] = ()
) -> SpanTable:
    """A table of (lane, kind, role, begin ns, duration ns); the clocks of lanes in ``stopped`` stand."""
    spans = np.zeros(len(rows), SPAN_DTYPE)
    for row, (lane, kind, role, begin_ns, duration_ns) in zip(spans, rows, strict=True):
        row["lane"], row["kind"], row["role"] = lane, kind, role
        row["begin_ticks"], row["duration_ticks"] = begin_ns * TICKS_PER_NS, duration_ns * TICKS_PER_NS
    clocks = np.zeros(lanes, LANE_DTYPE)
    clocks["lane"] = np.arange(lanes)
    clocks["sm_id"] = 10 + np.arange(lanes)
    clocks["timer_begin_ns"], clocks["timer_end_ns"] = 5_000, 105_000
    clocks["tick_end"] = 100_000 * TICKS_PER_NS
    clocks["tick_end"][list(stopped)] = 0
    return SpanTable(spans, clocks)


def read_trace(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        trace: dict[str, Any] = json.load(file)
    return trace


def slices(trace: dict[str, Any], pid: int | None = None) -> list[dict[str, Any]]:
    """Complete events, of one process where it is given."""
    return [event for event in trace["traceEvents"] if event["ph"] == "X" and pid in (None, event["pid"])]


def names(trace: dict[str, Any], what: str) -> dict[tuple[int, int], str]:
    """``process_name`` or ``thread_name`` by (pid, tid)."""
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"] == what
    }


def assert_loads_in_perfetto(trace: dict[str, Any]) -> None:
    """The rules of the trace event format that its importer needs to draw every slice.

    Every event has its phase, process and thread; every thread with slices is named; times are finite and
    not negative; slices of a thread nest or are apart.
    """
    assert trace["displayTimeUnit"] == "ns"
    open_until: dict[tuple[int, int], list[float]] = {}
    for event in trace["traceEvents"]:
        assert event["ph"] in ("M", "X", "C")
        assert isinstance(event["pid"], int)
        assert event["pid"] > 0
        assert isinstance(event["name"], str)
    for event in sorted(slices(trace), key=lambda each: (each["ts"], -each["dur"])):
        begin, end = round(event["ts"] * 1e3), round((event["ts"] + event["dur"]) * 1e3)
        assert 0 <= begin <= end
        stack = open_until.setdefault((event["pid"], event["tid"]), [])
        while stack and stack[-1] <= begin:
            stack.pop()
        assert not stack or end <= stack[-1], f"{event} overlaps the slice around it"
        stack.append(end)
    assert open_until.keys() <= names(trace, "thread_name").keys()
