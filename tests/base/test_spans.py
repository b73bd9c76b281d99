"""Spans: records of a device become a table on one time axis."""

from __future__ import annotations

import numpy as np

from xstage_tune.base.spans import LANE_DTYPE, RECORD_DTYPE, SpanKind, SpanTable, decode_records


def two_lanes() -> SpanTable:
    """Lane 0 ticks at 2 GHz from 1,000 ns on; lane 1 at 1 GHz from 1,500 ns on, with one span dropped."""
    lanes = np.zeros(2, LANE_DTYPE)
    lanes["lane"] = [0, 1]
    lanes["sm_id"] = [7, 3]
    lanes["timer_begin_ns"] = [1_000, 1_500]
    lanes["timer_end_ns"] = [2_000, 2_500]
    lanes["tick_begin"] = [50_000, 9_000_000]
    lanes["tick_end"] = [52_000, 9_001_000]
    lanes["recorded"] = [2, 1]
    lanes["dropped"] = [0, 1]
    records = np.zeros((2, 3), RECORD_DTYPE)
    records[0, 0] = (100, 400, (1 << 28) | 0)
    records[0, 1] = (900, 200, (1 << 28) | (2 << 24) | 1)
    records[1, 0] = (100, 400, (1 << 28) | 0xFFFFFF)
    records[1, 1:] = (12345, 12345, 0xFFFFFFFF)  # left by an earlier launch
    return decode_records(records, lanes)


def test_only_recorded_spans_are_decoded_lane_by_lane() -> None:
    spans = two_lanes().spans
    assert spans["lane"].tolist() == [0, 0, 1]
    assert spans["index"].tolist() == [0, 1, 0xFFFFFF]
    assert spans["role"].tolist() == [0, 2, 0]
    assert spans["kind"].tolist() == [SpanKind.ISSUE] * 3


def test_lanes_of_different_clocks_share_one_axis() -> None:
    table = two_lanes()
    assert table.origin_ns() == 1_000
    assert table.ns_per_tick().tolist() == [0.5, 1.0]
    assert table.begin_ns().tolist() == [50.0, 450.0, 600.0]
    assert table.duration_ns().tolist() == [200.0, 100.0, 400.0]
    assert table.end_ns().tolist() == [250.0, 550.0, 1000.0]


def test_dropped_spans_are_counted() -> None:
    assert two_lanes().dropped() == 1


def test_no_records_make_an_empty_table() -> None:
    lanes = np.zeros(3, LANE_DTYPE)
    table = decode_records(np.zeros((3, 0), RECORD_DTYPE), lanes)
    assert len(table.spans) == 0
    assert table.begin_ns().shape == (0,)
