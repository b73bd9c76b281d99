"""Spans as Chrome trace events (gzip JSON), which Perfetto and chrome://tracing load.

A process stands for a rank, a thread for one role of one CTA; a first process has a slice for each launch.
Launches follow one another, each from zero of its own timers: what the host did in between is left out.
Times are whole nanoseconds written in microseconds, and begins and ends are rounded alike, so spans that
nest still nest: viewers drop slices that overlap in part.
"""

from __future__ import annotations

import bisect
import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.files import whole_file
from xstage_tune.base.spans import SpanKind, SpanTable
from xstage_tune.report.figure import Floats, Ints

_PAUSE_NS = 10_000  # between launches, so that they can be told apart
_LEAST_SPANS = 500  # of a launch: fewer are no two of every role of 132 SMs, and show no pattern
_LAUNCHES_PID = 1
_FIRST_RANK_PID = 2
_ROLES = 16  # a CTA has at most so many: a span record has 4 bits for it


@dataclass(frozen=True, slots=True)
class Counter:
    """A quantity over the launch: ``time_ns`` and ``value``, ``[n]`` each."""

    name: str
    unit: str
    time_ns: Floats
    value: Floats


@dataclass(frozen=True, slots=True)
class TracedLaunch:
    """One launch: its name and arguments, its spans by rank, and what was traced beside them.

    ``tables`` is called when the launch is written, so that a long run is never in memory as a whole;
    ``spans`` is how many they hold. ``tiles`` are those of every rank, None where they are not known.
    ``lanes`` are the names of a CTA's lanes, which follow each other; none where a CTA has one lane, and its
    threads are roles. ``own`` names spans and lanes of a kernel of the user's.
    The launch lasts until its last span has ended, and ``least_ns`` where its
    stores drain longer.
    """

    name: str
    args: Mapping[str, Any]
    spans: int
    tables: Callable[[], Mapping[int, SpanTable]]
    counters: tuple[Counter, ...] = ()
    lanes: tuple[str, ...] = ()
    least_ns: float = 0.0
    tiles: TileKinds | None = None
    own: OwnNames | None = None


@dataclass(frozen=True, slots=True)
class OwnNames:
    """What spans are called by their kind, and lanes by their number, of a kernel of the user's.

    ``process`` is shown in place of the rank.
    """

    process: str
    spans: Sequence[str]
    lanes: Sequence[str]


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """What a trace holds of a run: launches and spans written, and those left out by the cap."""

    launches: int
    launches_left_out: int
    spans: int
    spans_left_out: int


def write_trace(
    path: Path,
    launches: Sequence[TracedLaunch],
    *,
    most_spans: int,
    about: Mapping[str, Any],
    force: bool = False,
) -> TraceSummary:
    """Write launches as one ``.json.gz``; the file appears whole or not at all.

    Every launch keeps its earliest spans, up to a number that is the same for all. Where that would be too
    few to see anything, launches are left out instead; those that stay are spread evenly over the run.

    Args:
        about: provenance, kept under ``otherData``.

    Raises:
        UsageError: the file exists and ``force`` is not set, or it cannot be written.
        StoreError: a launch's spans cannot be read.
    """
    kept = [launches[number] for number in _shown_launches([each.spans for each in launches], most_spans)]
    trace = _Trace(_most_of_each([each.spans for each in kept], most_spans))
    # No name and no time in the header: the same spans give the same bytes.
    with (
        whole_file(path, force=force) as file,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8") as text,
    ):
        text.write('{"displayTimeUnit":"ns","otherData":' + _json(about) + ',"traceEvents":[\n')
        for number, event in enumerate(trace.events(kept)):
            text.write(f",\n{event}" if number else event)
        text.write("\n]}\n")
    every = sum(launch.spans for launch in launches)
    return TraceSummary(len(kept), len(launches) - len(kept), trace.written, every - trace.written)


def _shown_launches(spans: Sequence[int], most_spans: int) -> list[int]:
    """Numbers of the launches to write: the most that can each have enough spans to see something.

    Evenly over the run, the first and the last among them; at least one.
    """
    enough = np.minimum(spans, _LEAST_SPANS)
    for count in range(len(spans), 1, -1):
        chosen = [round(number) for number in np.linspace(0, len(spans) - 1, count).tolist()]
        if enough[chosen].sum() <= most_spans:
            return chosen
    return [0] if spans else []


def _most_of_each(spans: Sequence[int], most_spans: int) -> int:
    """The most spans that every launch may keep, so that all together keep no more than ``most_spans``."""
    limits = range(max(spans, default=0) + 1)
    return bisect.bisect(limits, most_spans, key=lambda limit: int(np.minimum(spans, limit).sum())) - 1


@dataclass(slots=True)
class _Trace:
    """Turns launches into events, counting spans and naming each thread when it first appears."""

    most_of_each: int
    written: int = 0
    named: set[tuple[int, int]] = field(default_factory=set)

    def events(self, launches: Sequence[TracedLaunch]) -> Iterator[str]:
        yield from _process(_LAUNCHES_PID, "launches")
        yield _metadata("thread_name", _LAUNCHES_PID, 1, "launch")
        start_ns = 0
        for launch in launches:
            spans = _flatten(launch.tables(), launch.tiles)
            last_ns = int((spans["begin_ns"] + spans["duration_ns"]).max(initial=0))
            length_ns = max(last_ns, round(launch.least_ns))
            yield _slice(_LAUNCHES_PID, 1, launch.name, start_ns, length_ns, _json(launch.args))
            kept = spans[: self.most_of_each]
            self.written += kept.size
            yield from self._names(kept, launch)
            yield from _slices(kept, start_ns, launch.own.spans if launch.own else NAMES)
            for counter in launch.counters:
                yield from _samples(counter, start_ns)
            start_ns += length_ns + _PAUSE_NS

    def _names(self, spans: NDArray[np.void], launch: TracedLaunch) -> Iterator[str]:
        """Metadata of the ranks and lanes that have not been seen before."""
        for pid, lane, role in np.unique(spans[["pid", "lane", "role"]]).tolist():
            tid = _thread(lane, role)
            if (pid, tid) in self.named:
                continue
            if pid not in {known for known, _ in self.named}:
                rank = f"rank {pid - _FIRST_RANK_PID}"
                yield from _process(pid, launch.own.process if launch.own else rank)
            self.named.add((pid, tid))
            kinds = spans["kind"][(spans["pid"] == pid) & (spans["lane"] == lane) & (spans["role"] == role)]
            work = "issue" if (kinds == SpanKind.ISSUE).all() else "mainloop"
            cta, nth = divmod(lane, max(1, len(launch.lanes)))
            part = launch.lanes[nth] if launch.lanes else work
            name = launch.own.lanes[lane] if launch.own else f"CTA {cta} {part}"
            yield _metadata("thread_name", pid, tid, name)
            yield _metadata("thread_sort_index", pid, tid, tid)


#: A span of any rank of a launch, in whole ns after the launch.
_FLAT_DTYPE = np.dtype([
    ("begin_ns", "<i8"), ("duration_ns", "<i8"), ("pid", "<i4"), ("lane", "<i4"),
    ("role", "u1"), ("kind", "u1"), ("name", "u1"), ("index", "<u4"), ("sm_id", "<u2"),
])  # fmt: skip


def _flatten(tables: Mapping[int, SpanTable], tiles: TileKinds | None) -> NDArray[np.void]:
    """All spans of a launch by begin, and before a span the one that holds it.

    Spans of a lane whose clock stood have no place in time and are left out.
    """
    parts = [np.empty(0, _FLAT_DTYPE)]
    for rank, table in tables.items():
        placed = np.isfinite(table.begin_ns())
        part = np.empty(len(table.spans), _FLAT_DTYPE)
        for name in ("lane", "role", "kind", "index"):
            part[name] = table.spans[name]
        part["name"] = name_numbers(table.spans, tiles)
        part["begin_ns"] = np.rint(table.begin_ns(), where=placed, out=np.zeros(placed.size))
        part["duration_ns"] = (
            np.rint(table.end_ns(), where=placed, out=np.zeros(placed.size)) - part["begin_ns"]
        )
        part["pid"] = _FIRST_RANK_PID + rank
        part["sm_id"] = table.lanes["sm_id"][table.spans["lane"]]
        parts.append(part[placed])
    flat = np.concatenate(parts)
    return flat[np.lexsort((-flat["duration_ns"], flat["begin_ns"]))]


def _slices(spans: NDArray[np.void], start_ns: int, names: Sequence[str]) -> Iterator[str]:
    for begin_ns, duration_ns, pid, lane, role, _, name, index, sm_id in spans.tolist():
        args = f'{{"index":{index},"sm":{sm_id}}}'
        yield _slice(pid, _thread(lane, role), names[name], start_ns + begin_ns, duration_ns, args)


def _samples(counter: Counter, start_ns: int) -> Iterator[str]:
    for time_ns, value in zip(counter.time_ns.tolist(), counter.value.tolist(), strict=True):
        time_us = (start_ns + round(time_ns)) / 1e3
        yield (
            f'{{"ph":"C","pid":{_FIRST_RANK_PID},"tid":0,"name":{_json(counter.name)},"ts":{time_us:.3f},'
            f'"args":{{{_json(counter.unit)}:{value:.0f}}}}}'
        )


def _slice(pid: int, tid: int, name: str, begin_ns: int, duration_ns: int, args: str) -> str:
    return (
        f'{{"ph":"X","pid":{pid},"tid":{tid},"name":{_json(name)},'
        f'"ts":{begin_ns / 1e3:.3f},"dur":{duration_ns / 1e3:.3f},"args":{args}}}'
    )


def _thread(lane: int, role: int) -> int:
    """Thread id of a lane's role; ids order the threads by CTA. Viewers keep 0 for themselves."""
    return 1 + lane * _ROLES + role


def _process(pid: int, name: str) -> Iterator[str]:
    yield _metadata("process_name", pid, 0, name)
    yield _metadata("process_sort_index", pid, 0, pid)


def _metadata(what: str, pid: int, tid: int, value: str | int) -> str:
    key = "name" if isinstance(value, str) else "sort_index"
    return f'{{"ph":"M","pid":{pid},"tid":{tid},"name":"{what}","args":{{"{key}":{_json(value)}}}}}'


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)


_PLAIN = {
    SpanKind.ISSUE: "issue",
    SpanKind.MAINLOOP: "mainloop",
    SpanKind.STAGING_STALL: "staging stall",
    SpanKind.DEPENDENCY_WAIT: "dependency wait",
}
_LAYERS = ("Linear-1 ", "Linear-2 ")
_STORES = ("local", "remote")
_ISSUES = tuple(f"{layer}issue, {stores} stores" for layer in ("", *_LAYERS) for stores in _STORES)
_MAINLOOPS = ("Q-loop", *(f"{layer}mainloop" for layer in _LAYERS))
#: A span's number in :func:`name_numbers` is the place of its name.
NAMES = ("", *(_PLAIN[kind] for kind in sorted(_PLAIN)), *_MAINLOOPS, *_ISSUES)
_FIRST_MAINLOOP, _FIRST_ISSUE = NAMES.index(_MAINLOOPS[0]), NAMES.index(_ISSUES[0])


@dataclass(frozen=True, slots=True)
class TileKinds:
    """The tiles of a launch, whose spans' ``index`` is a tile's place on its lane.

    Args:
        first: ``[lanes + 1]`` where each lane's tiles begin.
        remote: ``[n]`` whether a tile stores to another GPU.
        linear2: ``[n]`` whether a tile is of Linear-2; None for attention.
    """

    first: Ints
    remote: NDArray[np.bool_]
    linear2: NDArray[np.bool_] | None


def name_numbers(spans: NDArray[np.void], tiles: TileKinds | None) -> NDArray[np.uint8]:
    """Which of :data:`NAMES` each span has; ``[n]`` as ``spans`` (of :data:`SPAN_DTYPE`)."""
    numbers: NDArray[np.uint8] = spans["kind"].astype(np.uint8)
    if tiles is None:
        return numbers
    tile = tiles.first[spans["lane"]] + spans["index"]
    layer = np.zeros(len(spans), np.uint8) if tiles.linear2 is None else 1 + tiles.linear2[tile]
    numbers = np.where(spans["kind"] == SpanKind.MAINLOOP, _FIRST_MAINLOOP + layer, numbers)
    issues = _FIRST_ISSUE + len(_STORES) * layer + tiles.remote[tile]
    return np.where(spans["kind"] == SpanKind.ISSUE, issues, numbers).astype(np.uint8)
