"""Chrome traces, plain or gzip: complete events, and pairs of begin and end."""

from __future__ import annotations

import zlib
from typing import Any

from xstage_tune.base.errors import UsageError
from xstage_tune.base.parsing import parse_json
from xstage_tune.launches.imported import Timeline
from xstage_tune.spans.timeline import Intervals

GZIP_MAGIC = b"\x1f\x8b"
#: Of the text. Parsed it takes ten times as much.
MOST_TEXT_BYTES = 128 << 20
_MOST_VALUES = 24_000_000
_NS_PER_US = 1e3
_MOST_KEY = 100
_OWN_LAUNCHES = "launches / launch"


def read_chrome_trace(data: bytes, origin: str, source: str) -> Timeline:
    """The spans of a trace; a lane is a thread of a process.

    Args:
        origin: the file, as errors name it.
        source: its name.

    Raises:
        UsageError: it is damaged, too large, or no trace.
    """
    text = _text(_inflated(data, origin) if data.startswith(GZIP_MAGIC) else data, origin)
    trace = _parsed(text, origin)
    events = _events(trace, origin)
    names = _thread_names(events)
    found = Intervals(origin)
    begun: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        phase = event.get("ph")
        if phase not in ("X", "B", "E"):
            continue
        process, thread = _thread(event)
        name = names.get((process, thread), f"process {process} / thread {thread}")
        if name == _OWN_LAUNCHES and _is_own(trace):
            continue
        lane = found.lane(name)
        if phase == "X":
            _add(found, lane, event, event.get("dur"))
        elif phase == "B":
            begun.setdefault(lane, []).append(event)
        elif begun.get(lane):
            first = begun[lane].pop()
            _add(found, lane, first, _number(event.get("ts")) - _number(first.get("ts")))
        else:
            found.left_out += 1
    found.left_out += sum(map(len, begun.values()))
    return found.timeline(source, "chrome-trace")


def _add(found: Intervals, lane: int, event: dict[str, Any], length_us: object) -> None:
    arguments = event.get("args")
    index, sm = (arguments.get("index"), arguments.get("sm")) if isinstance(arguments, dict) else (None, None)
    if isinstance(sm, int):
        found.of_sm(lane, sm)
    begin_ns = _NS_PER_US * _number(event.get("ts"))
    length_ns = _NS_PER_US * _number(length_us)
    told = index if isinstance(index, int) else None
    found.add(str(event.get("name", "")), lane, begin_ns, length_ns, told)


def _number(value: object) -> float:
    """NaN of what is none, and then no time is."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e300 else float("nan")


def _thread(event: dict[str, Any]) -> tuple[str, str]:
    return str(event.get("pid", ""))[:_MOST_KEY], str(event.get("tid", ""))[:_MOST_KEY]


def _thread_names(events: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """What metadata call the threads, each behind its process; ids tell two of one name apart."""
    processes: dict[str, str] = {}
    threads: dict[tuple[str, str], str] = {}
    for event in events:
        if event.get("ph") != "M" or not isinstance(event.get("args"), dict):
            continue
        name = str(event["args"].get("name", ""))
        if event.get("name") == "process_name":
            processes[_thread(event)[0]] = name
        elif event.get("name") == "thread_name":
            threads[_thread(event)] = name
    named: dict[str, tuple[str, str]] = {}
    for (process, thread), name in threads.items():
        full = f"{processes.get(process, f'process {process}')} / {name}"
        if full in named:
            full = f"{full} ({process}, {thread})"
        named[full] = (process, thread)
    return {thread: name for name, thread in named.items()}


def _is_own(trace: Any) -> bool:
    """Whether this tool wrote it: one slice of it covers each launch, and is no span."""
    about = trace.get("otherData") if isinstance(trace, dict) else None
    return isinstance(about, dict) and ("run" in about or "study" in about)


def _parsed(text: str, origin: str) -> Any:
    try:
        return parse_json(_closed(text), _MOST_VALUES)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{origin}: no JSON of a trace: {error}") from None


def _events(trace: Any, origin: str) -> list[dict[str, Any]]:
    events = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(events, list):
        raise UsageError(f"{origin}: no trace: it has no list traceEvents")
    return [event for event in events if isinstance(event, dict)]


def _closed(text: str) -> str:
    """A list whose end was never written, which the format allows, with its end."""
    whole = text.strip()
    return whole.rstrip(",") + "]" if whole.startswith("[") and not whole.endswith("]") else whole


def _text(data: bytes, origin: str) -> str:
    if len(data) > MOST_TEXT_BYTES:
        raise _too_large(origin)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{origin}: not UTF-8 text at byte {error.start}") from None


def _inflated(data: bytes, origin: str) -> bytes:
    inflate = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        text = inflate.decompress(data, MOST_TEXT_BYTES + 1)
    except zlib.error as error:
        raise UsageError(f"{origin}: damaged: {error}") from None
    if len(text) > MOST_TEXT_BYTES:
        raise _too_large(origin)
    if not inflate.eof:
        raise UsageError(f"{origin}: cut short: its gzip stream does not end", "copy or export it again")
    return text


def _too_large(origin: str) -> UsageError:
    return UsageError(
        f"{origin}: more than {MOST_TEXT_BYTES >> 20} MiB of JSON", "export a shorter part of the trace"
    )
