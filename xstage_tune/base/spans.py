"""Spans: what one launch recorded, in one structured dtype for every device.

A span is an interval on one *lane* (a CTA, or a CTA role). Its times are integer ticks of the
lane's own clock: ``clock64`` cycles of one SM on a GPU, a fixed fraction of a nanosecond in a
simulation. A lane row carries two (timer, tick) pairs, taken at the lane's start and end; they
give the true tick length and put all lanes on one time axis (``clock64`` is per SM, so ticks of
two lanes must never be compared directly).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class SpanKind(IntEnum):
    """What a span covers. The numbers are stored: never reuse one."""

    ISSUE = 1  # a burst of remote stores, first store to the last one accepted
    MAINLOOP = 2  # a tile's compute: one GEMM mainloop or one Q-loop
    STAGING_STALL = 3  # a mainloop role waits for a staging slot
    DEPENDENCY_WAIT = 4  # a mainloop role waits for a counter of other CTAs


#: One row a span, 20 bytes. ``begin_ticks`` counts from the lane's ``tick_begin``.
SPAN_DTYPE = np.dtype(
    [
        ("begin_ticks", "<u8"),
        ("duration_ticks", "<u4"),
        ("index", "<u4"),  # burst, tile or iteration number on this lane
        ("lane", "<u2"),
        ("kind", "u1"),  # SpanKind
        ("role", "u1"),  # role inside the lane's CTA; 0 where there is one role
    ]
)

#: One row a lane. ``timer_*_ns`` is a clock common to all lanes (``%globaltimer`` on a GPU).
LANE_DTYPE = np.dtype(
    [
        ("timer_begin_ns", "<u8"),
        ("tick_begin", "<u8"),
        ("timer_end_ns", "<u8"),
        ("tick_end", "<u8"),
        ("recorded", "<u4"),  # spans kept
        ("dropped", "<u4"),  # spans that found the staging buffer full
        ("issued", "<u4"),  # bursts issued, recorded or not
        ("lane", "<u2"),
        ("sm_id", "<u2"),
    ]
)


@dataclass(frozen=True, slots=True)
class SpanTable:
    """The spans of one launch on one rank, with the clocks of its lanes.

    Args:
        spans: ``[n]`` of :data:`SPAN_DTYPE`, ordered by lane, then by begin.
        lanes: ``[lanes]`` of :data:`LANE_DTYPE`, row ``i`` being lane ``i``.
    """

    spans: NDArray[np.void]
    lanes: NDArray[np.void]

    def ns_per_tick(self) -> NDArray[np.float64]:
        """Length of a tick in ns, ``[lanes]``, from a lane's two clock pairs; NaN where its clock stood."""
        timer_ns = (self.lanes["timer_end_ns"] - self.lanes["timer_begin_ns"]).astype(np.float64)
        ticks = (self.lanes["tick_end"] - self.lanes["tick_begin"]).astype(np.float64)
        rate = np.full(len(ticks), np.nan)
        np.divide(timer_ns, ticks, out=rate, where=ticks > 0)
        return rate

    def origin_ns(self) -> int:
        """The earliest lane's timer at its start: zero of :meth:`begin_ns`."""
        return int(self.lanes["timer_begin_ns"].min())

    def begin_ns(self) -> NDArray[np.float64]:
        """Begin of every span on the common axis, ``[n]``, in ns after :meth:`origin_ns`."""
        lane = self.spans["lane"]
        offset_ns = (self.lanes["timer_begin_ns"] - np.uint64(self.origin_ns())).astype(np.float64)
        begin: NDArray[np.float64] = offset_ns[lane] + self.spans["begin_ticks"] * self.ns_per_tick()[lane]
        return begin

    def duration_ns(self) -> NDArray[np.float64]:
        """Length of every span in ns, ``[n]``."""
        duration: NDArray[np.float64] = self.spans["duration_ticks"] * self.ns_per_tick()[self.spans["lane"]]
        return duration

    def end_ns(self) -> NDArray[np.float64]:
        """End of every span on the common axis, ``[n]``, in ns after :meth:`origin_ns`."""
        return self.begin_ns() + self.duration_ns()

    def dropped(self) -> int:
        """Spans that were measured but not kept, over all lanes."""
        return int(self.lanes["dropped"].sum())


#: A record as ``kernels/include/xstage/recorder.cuh`` writes it. Its tag is, in the tool's own kernels, kind
#: (4 bits) | role (4 bits) | index (24 bits).
RECORD_DTYPE = np.dtype([("begin_cycles", "<u4"), ("duration_cycles", "<u4"), ("tag", "<u4")])


def decode_records(records: NDArray[np.void], lanes: NDArray[np.void]) -> SpanTable:
    """Turn a device's record buffer into a span table.

    Args:
        records: ``[lanes, capacity]`` of :data:`RECORD_DTYPE`, of which row ``i`` holds
            ``lanes["recorded"][i]`` records.
        lanes: ``[lanes]`` of :data:`LANE_DTYPE`.
    """
    table, tag = untagged_spans(records, lanes)
    table.spans["role"] = (tag >> 24) & 0xF
    table.spans["kind"] = tag >> 28
    return table


def untagged_spans(
    records: NDArray[np.void], lanes: NDArray[np.void]
) -> tuple[SpanTable, NDArray[np.unsignedinteger]]:
    """As :func:`decode_records`, with kind and role at 0; and the tags ``[n]`` that they are read from."""
    kept = np.arange(records.shape[1], dtype=np.uint32) < lanes["recorded"][:, None]
    flat = records[kept]
    spans = np.zeros(flat.size, SPAN_DTYPE)
    spans["begin_ticks"] = flat["begin_cycles"]
    spans["duration_ticks"] = flat["duration_cycles"]
    spans["index"] = flat["tag"] & 0xFFFFFF
    spans["lane"] = np.repeat(np.arange(len(lanes), dtype=np.uint16), lanes["recorded"])
    return SpanTable(spans, lanes), flat["tag"]
