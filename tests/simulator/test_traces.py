"""Spans and time series of a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from tests.simulator.cases import launches, paper_drain, repeated
from xstage_tune.base.errors import UsageError
from xstage_tune.base.spans import SpanKind
from xstage_tune.launches.streams import Streams, independent_streams
from xstage_tune.simulator.drain import DrainModel
from xstage_tune.simulator.pipeline import PipelineConfig, simulate
from xstage_tune.simulator.traces import ISSUE_ROLE, occupancy, pipeline_spans, tensor_activity

TICK_NS = 1 / 16


@given(launch=launches())
@settings(deadline=None, max_examples=40)
def test_spans_hold_every_tile_and_every_wait(launch: tuple[Streams, DrainModel]) -> None:
    streams, drain = launch
    run = simulate(streams, drain, PipelineConfig(staging_slots=1))
    table = pipeline_spans(run)
    kind = table.spans["kind"]
    mainloop = table.duration_ns()[kind == SpanKind.MAINLOOP]
    assert streams.tiles <= mainloop.size <= streams.tiles + np.count_nonzero(run.stall_ns)
    assert mainloop.sum() == pytest.approx(streams.mainloop_ns.sum(), abs=TICK_NS * mainloop.size)
    issue = kind == SpanKind.ISSUE
    by_tile = np.lexsort((table.spans["index"][issue], table.spans["lane"][issue]))
    assert table.duration_ns()[issue][by_tile] == pytest.approx(run.issue_ns, abs=TICK_NS)
    assert (table.spans["role"][issue] == ISSUE_ROLE).all()
    stalls = table.duration_ns()[kind == SpanKind.STAGING_STALL]
    assert stalls.sum() == pytest.approx(run.stall_ns.sum(), abs=TICK_NS * (len(stalls) + 1))
    assert table.end_ns().max(initial=0.0) <= run.makespan_ns + TICK_NS
    assert (np.diff(table.spans["lane"].astype(int)) >= 0).all()
    same_lane = np.diff(table.spans["lane"]) == 0
    assert (np.diff(table.spans["begin_ticks"].astype(np.int64))[same_lane] >= 0).all()
    assert table.lanes["recorded"].sum() == len(table.spans)
    assert table.lanes["issued"].sum() == streams.tiles


def test_a_wait_for_a_counter_is_a_span() -> None:
    streams = replace(
        independent_streams(np.array([0, 1, 2]), np.array([1000.0, 400.0])),
        waits_on=np.array([-1, 0], np.int32),
        signals=np.array([0, -1], np.int32),
        counters=1,
    )
    drain = replace(paper_drain(2))
    table = pipeline_spans(simulate(streams, drain, PipelineConfig(signal_ns=200.0)))
    waits = table.spans[table.spans["kind"] == SpanKind.DEPENDENCY_WAIT]
    assert waits["lane"].tolist() == [1]
    assert waits["duration_ticks"].tolist() == [1200 * 16]


def test_occupancy_rises_fills_and_drains_as_an_isolated_burst_does() -> None:
    streams = independent_streams(np.arange(149), np.zeros(148), remote_bytes=48 * 1024.0)
    run = simulate(streams, paper_drain(), PipelineConfig(trace_occupancy=True))
    exact = occupancy(run)
    capacity = 4.25 * 2**20
    inject, drain = 148 * 32768 / 760, 717.0
    full_ns = capacity / (inject - drain)
    volume = 148 * 48 * 1024
    assert exact.time_ns[[0, 1]] == pytest.approx([0.0, full_ns])
    assert exact.value[1] == capacity
    assert exact.time_ns[-2:] == pytest.approx([(volume - capacity) / drain, volume / drain])
    assert exact.value[-2:] == pytest.approx([capacity, 0.0])
    sampled = occupancy(run, samples=101)
    assert sampled.time_ns.size == 101
    assert sampled.value.max() == pytest.approx(capacity)
    assert sampled.value[0] == sampled.value[-1] == 0.0


def test_an_untraced_run_says_how_to_trace() -> None:
    run = simulate(repeated(148, 1, 100.0, 1024.0), paper_drain(), PipelineConfig())
    with pytest.raises(UsageError, match="no occupancy trace"):
        occupancy(run)


def test_activity_is_the_part_of_sms_in_a_mainloop() -> None:
    streams = independent_streams(np.array([0, 1, 2]), np.array([1000.0, 250.0]))
    run = simulate(streams, paper_drain(2), PipelineConfig())
    activity = tensor_activity(run, bins=4)
    assert activity.time_ns == pytest.approx([125.0, 375.0, 625.0, 875.0])
    assert activity.value == pytest.approx([1.0, 0.5, 0.5, 0.5])


@given(launch=launches())
@settings(deadline=None, max_examples=40)
def test_activity_adds_up_to_the_mainloops(launch: tuple[Streams, DrainModel]) -> None:
    streams, drain = launch
    run = simulate(streams, drain, PipelineConfig(staging_slots=1))
    activity = tensor_activity(run, bins=7)
    busy_ns = activity.value.sum() * run.end_ns / 7 * streams.sms
    assert busy_ns == pytest.approx(streams.mainloop_ns.sum(), rel=1e-9)
    assert activity.value.min() >= -1e-12
    assert activity.value.max() <= 1 + 1e-12


def test_a_span_longer_than_the_table_holds_is_refused() -> None:
    run = simulate(repeated(1, 1, 3e8, 0.0), paper_drain(1), PipelineConfig())
    with pytest.raises(UsageError, match="MAINLOOP span exceeds 268 ms"):
        pipeline_spans(run)
