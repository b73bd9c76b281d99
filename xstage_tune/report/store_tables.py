"""What a store holds, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from xstage_tune.base.number_format import byte_count, count, duration
from xstage_tune.base.text import printable
from xstage_tune.report.tables import Column, Columns, TableData, number, pairs, table
from xstage_tune.store.catalogue import Details, Entry


def _best(entry: Entry) -> str:
    return "" if entry.best_ns is None else f"{duration(entry.best_ns)} {entry.objective}"


_COLUMNS: Columns[Entry] = (
    Column("kind", lambda entry: entry.kind),
    Column("id", lambda entry: entry.id),
    Column("begun, UTC", lambda entry: _time(entry.begun_at)),
    Column("state", lambda entry: entry.state),
    Column("workload", lambda entry: entry.workload),
    Column("platform", lambda entry: entry.platform),
    Column("device", lambda entry: entry.device),
    number(
        "best", lambda entry: "" if entry.best_ns is None else f"{duration(entry.best_ns)} {entry.objective}"
    ),
    number("trials or launches", lambda entry: entry.trials, count),
    number("size", lambda entry: entry.size_bytes, byte_count),
)


def entries_table(location: str, found: Sequence[Entry]) -> TableData:
    """A line a run or study."""
    return table(location, _COLUMNS, found, notes=_notes(found))


def entry_line(entry: Entry) -> str:
    """One run or study in a line."""
    cells = (column.cell(entry) for column in _COLUMNS[2:])
    return printable(", ".join(filter(None, (f"{entry.kind} {entry.id}", *cells))))


def details_table(details: Details) -> TableData:
    """All of one run or study."""
    entry = details.entry
    rows = [
        ("state", entry.state),
        ("begun", _time(entry.begun_at)),
        ("ended", _time(entry.finished_at) if entry.finished_at else "-"),
        ("workload", entry.workload or "-"),
        ("platform", entry.platform or "-"),
        ("device", entry.device),
    ]
    rows += [("suite", entry.suite)] if entry.suite else []
    rows += [(f"best {entry.objective}", duration(entry.best_ns))] if entry.best_ns is not None else []
    rows += [(name, str(value)) for name, value in details.about.items()]
    rows += [(name, count(parts)) for name, parts in details.parts.items()]
    rows += [("size", byte_count(entry.size_bytes))]
    rows += [("export", f"{export['path']} ({export['format']})") for export in details.exports]
    return pairs(f"{entry.kind} {entry.id}", rows)


def _notes(found: Sequence[Entry]) -> list[str]:
    if not found:
        return ["nothing of that kind"]
    stale = any(entry.state == "stale" for entry in found)
    return ["stale: its process died; a study of it can be resumed"] if stale else []


def _time(iso: str) -> str:
    return iso[:19].replace("T", " ")
