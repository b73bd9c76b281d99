"""What a store holds, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from xstage_tune.base.number_format import byte_count, duration
from xstage_tune.report.tables import Column, TableData
from xstage_tune.store.catalogue import Details, Entry


def entries_table(location: str, found: Sequence[Entry]) -> TableData:
    """A line a run or study."""
    columns = (
        Column("kind"), Column("id"), Column("begun, UTC"), Column("state"), Column("workload"),
        Column("platform"), Column("device"), Column("best", "right"), Column("trials or launches", "right"),
        Column("size", "right"),
    )  # fmt: skip
    return TableData(location, columns, tuple(map(_row, found)), tuple(_notes(found)))


def entry_words(entry: Entry) -> str:
    """One run or study in a line."""
    return ", ".join(part for part in (f"{entry.kind} {entry.id}", *_row(entry)[2:]) if part)


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
    rows += [(name, f"{count:,}") for name, count in details.parts.items()]
    rows += [("size", byte_count(entry.size_bytes))]
    rows += [("export", f"{export['path']} ({export['format']})") for export in details.exports]
    return TableData(f"{entry.kind} {entry.id}", (Column("what"), Column("value")), tuple(rows))


def _row(entry: Entry) -> tuple[str, ...]:
    return (
        entry.kind,
        entry.id,
        _time(entry.begun_at),
        entry.state,
        entry.workload,
        entry.platform,
        entry.device,
        "" if entry.best_ns is None else f"{duration(entry.best_ns)} {entry.objective}",
        f"{entry.trials:,}",
        byte_count(entry.size_bytes),
    )


def _notes(found: Sequence[Entry]) -> list[str]:
    if not found:
        return ["nothing of that kind"]
    stale = any(entry.state == "stale" for entry in found)
    return ["stale: its process died; a study of it can be resumed"] if stale else []


def _time(iso: str) -> str:
    return iso[:19].replace("T", " ")
