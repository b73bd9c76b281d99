"""A run as spans and as series over time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.activity import Series, activity
from xstage_tune.base.errors import UsageError
from xstage_tune.base.spans import LANE_DTYPE, SPAN_DTYPE, SpanKind, SpanTable
from xstage_tune.launches.streams import Floats
from xstage_tune.simulator.pipeline import PipelineRun

#: A simulated lane's clock.
TICKS_PER_NS = 16

MAINLOOP_ROLE = 0
ISSUE_ROLE = 1


def lane_rows(end_ns: float, recorded: NDArray[np.int64], sm_ids: NDArray[np.int64]) -> NDArray[np.void]:
    """Lane table of a simulation: every clock starts at 0 and ends at ``end_ns``, rounded up."""
    lanes = np.zeros(recorded.size, LANE_DTYPE)
    lanes["timer_end_ns"] = max(1, int(np.ceil(end_ns)))
    lanes["tick_end"] = lanes["timer_end_ns"] * TICKS_PER_NS
    lanes["recorded"] = recorded
    lanes["issued"] = recorded
    lanes["lane"] = np.arange(recorded.size)
    lanes["sm_id"] = sm_ids
    return lanes


def span_rows(
    lane: NDArray[np.int64],
    index: NDArray[np.int64],
    begin_ns: Floats,
    end_ns: Floats,
    *,
    kind: SpanKind,
    role: int,
) -> NDArray[np.void]:
    """Spans of one kind, times rounded to ticks.

    Raises:
        UsageError: a span is too long for the table.
    """
    spans = np.empty(lane.size, SPAN_DTYPE)
    begin = np.rint(begin_ns * TICKS_PER_NS).astype(np.uint64)
    duration = np.rint(end_ns * TICKS_PER_NS).astype(np.uint64) - begin
    longest = np.iinfo(np.uint32).max
    if duration.size and duration.max() > longest:
        raise UsageError(f"a simulated {kind.name} span exceeds {longest / TICKS_PER_NS / 1e6:.0f} ms")
    spans["begin_ticks"] = begin
    spans["duration_ticks"] = duration
    spans["index"] = index
    spans["lane"] = lane
    spans["kind"] = kind
    spans["role"] = role
    return spans


def pipeline_spans(run: PipelineRun) -> SpanTable:
    """Spans of every tile: MAINLOOP, ISSUE (T_RS), and the waits that took any time.

    ``index`` is the tile's place in its SM's order. A mainloop that waits for its slot on the way has two
    MAINLOOP spans, one before and one after the wait.
    """
    streams, times = run.streams, run.times
    sm = streams.sm_of_tile()
    place = np.arange(streams.tiles) - streams.first[sm]
    slot_at = times.begin + streams.slot_offset_ns
    waited = times.stall > 0
    from_begin = ~waited | (streams.slot_offset_ns > 0)
    parts = [span_rows(sm, place, times.issue, times.accepted, kind=SpanKind.ISSUE, role=ISSUE_ROLE)]
    intervals = (
        (SpanKind.MAINLOOP, times.begin, np.where(waited, slot_at, times.end), from_begin),
        (SpanKind.MAINLOOP, slot_at + times.stall, times.end, waited & (times.end > slot_at + times.stall)),
        (SpanKind.STAGING_STALL, slot_at, slot_at + times.stall, waited),
        (SpanKind.DEPENDENCY_WAIT, times.ready, times.begin, times.begin > times.ready),
    )
    for kind, begin, end, some in intervals:
        parts.append(span_rows(sm[some], place[some], begin[some], end[some], kind=kind, role=MAINLOOP_ROLE))
    spans = np.concatenate(parts)
    spans = spans[np.lexsort((spans["begin_ticks"], spans["lane"]))]
    recorded = np.bincount(spans["lane"], minlength=streams.sms)
    lanes = lane_rows(run.makespan_ns, recorded, np.arange(streams.sms))
    lanes["issued"] = np.diff(streams.first)
    return SpanTable(spans, lanes)


def occupancy(run: PipelineRun, samples: int | None = None) -> Series:
    """Bytes in the queue: the exact breakpoints, or ``samples`` evenly spaced values up to the drained end.

    Raises:
        UsageError: the run did not trace its occupancy.
    """
    if not run.occupancy.size and run.accepted_bytes > 0:
        raise UsageError(
            "the run has no occupancy trace", "simulate with PipelineConfig(trace_occupancy=True)"
        )
    drained = np.array([[run.drained_ns, 0.0]])
    breakpoints = np.concatenate((np.zeros((1, 2)), run.occupancy, drained))
    if samples is None:
        return Series(breakpoints[:, 0], breakpoints[:, 1])
    grid = np.linspace(0.0, breakpoints[-1, 0], samples)
    return Series(grid, np.interp(grid, breakpoints[:, 0], breakpoints[:, 1]))


def tensor_activity(run: PipelineRun, bins: int) -> Series:
    """Fraction of the SMs whose mainloop runs, averaged over each of ``bins`` equal parts of the launch.

    ``time_ns`` holds the middle of each part. Waits for a slot or a counter are not activity.
    """
    times, offset = run.times, run.streams.slot_offset_ns
    begins = np.concatenate((times.begin, times.begin + offset + times.stall))
    ends = np.concatenate((times.begin + offset, times.end))
    return activity(begins, ends, until_ns=run.end_ns, lanes=run.streams.sms, bins=bins)
