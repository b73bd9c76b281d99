"""Spans of a MoE launch, told apart by layer and added up by SM."""

from __future__ import annotations

import numpy as np
import pytest

from xstage_tune.base.spans import LANE_DTYPE, SPAN_DTYPE, SpanKind, SpanTable
from xstage_tune.families.megamoe.spans import LANES, moe_spans

TICKS_PER_NS = 2


def table(ctas: int, spans: list[tuple[int, SpanKind, int, int]]) -> SpanTable:
    """Of spans (lane, kind, index, ns); every lane runs for 1,000 ns."""
    lanes = np.zeros(ctas * LANES, LANE_DTYPE)
    lanes["lane"] = np.arange(len(lanes))
    lanes["timer_end_ns"], lanes["tick_end"] = 1000, 1000 * TICKS_PER_NS
    rows = np.zeros(len(spans), SPAN_DTYPE)
    for row, (lane, kind, index, ns) in zip(rows, spans, strict=True):
        row["lane"], row["kind"], row["index"] = lane, kind, index
        row["duration_ticks"] = ns * TICKS_PER_NS
    return SpanTable(rows, lanes)


def test_mainloops_are_told_apart_by_layer() -> None:
    found = moe_spans(
        table(
            1,
            [
                (0, SpanKind.MAINLOOP, 0, 40),
                (1, SpanKind.MAINLOOP, 0, 42),
                (0, SpanKind.MAINLOOP, 3, 20),
                (2, SpanKind.ISSUE, 3, 7),
            ],
        )
    )
    assert found.l1_ns.tolist() == [40, 42]
    assert found.l2_ns.tolist() == [20]
    assert found.issue_ns.tolist() == [7]
    assert found.launch_ns == 1000


def test_stall_is_both_waits_of_a_consumer_mean_over_the_sms() -> None:
    waits = [
        (0, SpanKind.STAGING_STALL, 0, 10),
        (1, SpanKind.STAGING_STALL, 0, 30),
        (LANES, SpanKind.DEPENDENCY_WAIT, 1, 100),
    ]
    assert moe_spans(table(2, waits)).stall_ns == pytest.approx((10 + 30 + 100) / 4)


def test_a_launch_without_spans_has_none() -> None:
    found = moe_spans(table(1, []))
    assert found.stall_ns == 0
    assert found.l1_ns.size == 0
