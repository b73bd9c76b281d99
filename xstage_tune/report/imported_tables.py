"""What an imported timeline holds: its spans by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from xstage_tune.base.number_format import count, counted, duration
from xstage_tune.base.spans import SpanTable
from xstage_tune.launches.imported import ImportedSpans
from xstage_tune.report.figure import Floats
from xstage_tune.report.tables import Column, Columns, TableData, number, table

_MOST_ROWS = 30


@dataclass(frozen=True, slots=True)
class NamedSpans:
    """The spans of one name.

    Args:
        kind: of them in the table.
        lanes: that have some.
        duration_ns: of each.
    """

    name: str
    kind: int
    lanes: int
    duration_ns: Floats

    @property
    def total_ns(self) -> float:
        """Of all lanes together."""
        return float(self.duration_ns.sum())


def by_name(about: ImportedSpans, spans: SpanTable) -> list[NamedSpans]:
    """The names of a timeline, those that take longest first."""
    found, kind = [], spans.spans["kind"]
    duration_ns = spans.duration_ns()
    for one in np.unique(kind).tolist():
        of_kind = kind == one
        lanes = np.unique(spans.spans["lane"][of_kind]).size
        found.append(NamedSpans(about.names[one], one, lanes, duration_ns[of_kind]))
    return sorted(found, key=attrgetter("total_ns"), reverse=True)


def imported_tables(about: ImportedSpans, spans: SpanTable) -> TableData:
    """Spans by name: how many, how long."""
    columns: Columns[NamedSpans] = (
        Column("span", lambda one: one.name),
        number("spans", lambda one: one.duration_ns.size, count),
        number("lanes", lambda one: one.lanes, count),
        number("total", lambda one: one.total_ns, duration),
        number("median", lambda one: float(np.median(one.duration_ns)), duration),
        number("p95", lambda one: float(np.quantile(one.duration_ns, 0.95)), duration),
        number("longest", lambda one: float(one.duration_ns.max()), duration),
    )
    named = by_name(about, spans)
    return table(about.source, columns, named[:_MOST_ROWS], notes=_notes(about, spans, len(named)))


def _notes(about: ImportedSpans, spans: SpanTable, names: int) -> Iterator[str]:
    whole_ns = float(spans.end_ns().max() - spans.begin_ns().min())
    total = counted(len(spans.spans), "span")
    yield f"{total} on {counted(len(spans.lanes), 'lane')} in {duration(whole_ns)}, {about.format}"
    if names > _MOST_ROWS:
        yield f"{names - _MOST_ROWS} more names, which take less"
    if dropped := spans.dropped():
        yield f"{counted(dropped, 'span')} dropped: give the buffer more capacity"
    if about.left_out:
        yield f"{counted(about.left_out, 'span')} left out: without a begin, an end or a length"
