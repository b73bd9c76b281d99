"""Imported bursts that were emulated, beside what was recorded of them."""

from __future__ import annotations

from collections.abc import Iterator

from xstage_tune.base.number_format import byte_count, count, duration, factor
from xstage_tune.experiments.burst_replay import ReplayedBursts, ReplayResult
from xstage_tune.report.sentences import other_gpu_note
from xstage_tune.report.tables import Column, Columns, TableData, number, table


def replay_table(result: ReplayResult) -> TableData:
    """A line a timeline."""
    request = result.request
    columns: Columns[ReplayedBursts] = (
        Column("timeline", lambda one: one.bursts.source),
        number("bursts", lambda one: one.bursts.gap_ns.size, count),
        number("SMs", lambda one: one.bursts.producers, count),
        number("recorded", lambda one: one.bursts.makespan_ns, duration),
        number("emulated", lambda one: one.makespan_ns, duration),
        number("over recorded", lambda one: one.makespan_ns / one.bursts.makespan_ns, factor),
        number("mean T_RS recorded", lambda one: float(one.bursts.length_ns.mean()), duration),
        number("mean T_RS emulated", lambda one: one.issue_ns, duration),
    )
    title = (
        f"Bursts of {byte_count(request.burst_bytes)} by {request.flavour} on {request.platform.name}, "
        f"{result.device}"
    )
    return table(title, columns, result.replayed, notes=_notes(result))


def _notes(result: ReplayResult) -> Iterator[str]:
    yield "recorded gaps are spun, waits in them too; from the earliest span to the last burst accepted"
    if result.request.other_gpu:
        yield other_gpu_note(result.request.platform, result.request.other_gpu)
