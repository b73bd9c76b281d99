"""The skeleton run by CPU threads: all bytes arrive, the rules of the pipeline hold, faults are named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.emulation_kernels.cases import attention_skeleton, deadlocked_skeleton, moe_skeleton
from tests.emulation_kernels.host_skeleton import SHARED_BYTES, HostRun, run_on_host
from xstage_tune.base.errors import DeviceError, FindingError
from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.base.spans import SpanKind, SpanTable
from xstage_tune.cuda.skeletons_result import lane_totals, raise_fault, require_order, span_table
from xstage_tune.families.megamoe.order import Alternating, ClampedLag, ExpertWave, Interleaved
from xstage_tune.families.megamoe.placement import Placement
from xstage_tune.launches.skeletons import Skeleton
from xstage_tune.launches.streams import NO_COUNTER, Streams

#: The stand-ins' clock and the table's are the same machine's; spans are rounded to ticks of half a ns.
TICK_NS = 0.5


def checked(skeleton: Skeleton, **options: int) -> tuple[HostRun, SpanTable, NDArray[np.void]]:
    """Run, and require what holds for any launch."""
    run = run_on_host(skeleton, **options)
    raise_fault(run.fault, run.plan)
    require_order(run.recorded, run.plan)
    assert run.wrong_bytes == 0
    table = span_table(run.recorded, run.plan)
    return run, table, lane_totals(run.recorded, table.ns_per_tick())


def by_tile(table: SpanTable, streams: Streams, kind: SpanKind) -> tuple[NDArray, NDArray]:
    """First begin and last end of the spans of one kind, ``[tiles]``; NaN for a tile without any."""
    mine = table.spans["kind"] == kind
    tile = streams.first[table.spans["lane"][mine]] + table.spans["index"][mine]
    begin, end = np.full(streams.tiles, np.inf), np.full(streams.tiles, -np.inf)
    np.minimum.at(begin, tile, table.begin_ns()[mine])
    np.maximum.at(end, tile, table.end_ns()[mine])
    none = ~np.isfinite(begin)
    begin[none] = end[none] = np.nan
    return begin, end


def assert_pipeline_rules(run: HostRun, table: SpanTable, streams: Streams, slots: int) -> None:
    loop_begin, loop_end = by_tile(table, streams, SpanKind.MAINLOOP)
    issue_begin, issue_end = by_tile(table, streams, SpanKind.ISSUE)
    assert (loop_end - loop_begin >= streams.mainloop_ns - TICK_NS).all()
    assert (issue_begin >= loop_end - TICK_NS).all()
    for first, end in zip(streams.first[:-1], streams.first[1:], strict=True):
        # In order, one at a time, by either storing role.
        assert (issue_begin[first + 1 : end] >= issue_end[first : end - 1] - TICK_NS).all()
        # A mainloop ends in a slot that an earlier tile has left.
        assert (loop_end[first + slots : end] >= issue_end[first : end - slots] - TICK_NS).all()
    for tile in np.flatnonzero(streams.waits_on != NO_COUNTER):
        signallers = streams.signals == streams.waits_on[tile]
        reached = np.where(streams.signals_at_end, loop_end, issue_end)[signallers]
        assert loop_begin[tile] >= reached.max() - TICK_NS
    assert run.checked_bytes > 0


@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("slot_offset", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("dependencies", [False, True])
def test_a_layer_runs_by_the_rules_of_the_pipeline(
    slots: int, slot_offset: float, dependencies: bool
) -> None:
    skeleton = moe_skeleton(slots=slots, slot_offset=slot_offset, dependencies=dependencies)
    run, table, totals = checked(skeleton)
    assert_pipeline_rules(run, table, skeleton.streams, slots)
    assert totals["tiles"].tolist() == np.diff(skeleton.streams.first).tolist()


@pytest.mark.parametrize("dependencies", [False, True])
def test_register_stores_do_as_bulk_copies_do(dependencies: bool) -> None:
    skeleton = moe_skeleton(flavour="st.v4", dependencies=dependencies, tokens=(128, 0, 130), sms=2)
    run, table, _ = checked(skeleton)
    assert_pipeline_rules(run, table, skeleton.streams, 2)


@pytest.mark.parametrize(
    "skeleton",
    [
        moe_skeleton(ExpertWave(1)),
        moe_skeleton(ExpertWave(2), slots=1),
        moe_skeleton(Interleaved(7)),
        moe_skeleton(Alternating()),
        moe_skeleton(ClampedLag()),
        moe_skeleton(cta_group=2, sms=5),
        moe_skeleton(placement=Placement((3, 1, 0), (1, 2, 4))),
        moe_skeleton(listed=True),
        moe_skeleton(coupled=True),
        moe_skeleton(remote_fraction=1.0, tile_bytes=6160.0),
        moe_skeleton(remote_fraction=0.0),
        attention_skeleton(),
    ],
    ids=lambda skeleton: f"{skeleton.scheduling and skeleton.scheduling.schedule}",
)
def test_every_schedule_source_and_size_of_store_arrives(skeleton: Skeleton) -> None:
    run, table, _ = checked(skeleton, launch=5)
    assert_pipeline_rules(run, table, skeleton.streams, skeleton.staging_slots)


@pytest.mark.parametrize("flavour", ["st.v4", "tma"])
def test_rings_keep_their_last_lap(flavour: StoreFlavour) -> None:
    skeleton = replace(attention_skeleton(tiles=23, sms=2), flavour=flavour)
    # Five tiles a ring, entered in the middle.
    run, _, _ = checked(skeleton, ring_bytes=2 * 5 * 4096, launch=3)
    assert run.checked_bytes == 2 * 5 * 4096


def test_sms_without_a_lane_stay_idle() -> None:
    skeleton = attention_skeleton(sms=2)
    run, _, totals = checked(skeleton, sm_count=5)
    assert run.recorded.lanes["sm_id"].tolist() == [0, 2]
    assert totals["tiles"].tolist() == [9, 9]


def test_totals_are_exact_where_spans_are_a_sample() -> None:
    skeleton = attention_skeleton(tiles=150, sms=2)
    run, table, totals = checked(skeleton, shared_bytes=16_000)
    assert 0.4 < run.plan.kept.mean() < 1.0
    assert totals["tiles"].tolist() == [150, 150]
    assert totals["mainloop_ns"].min() >= 150 * 1500.0
    issue = table.spans[table.spans["kind"] == SpanKind.ISSUE]
    assert len(issue) == np.count_nonzero(run.plan.kept)
    np.testing.assert_array_equal(issue["index"], run.plan.place_of_tile[run.plan.kept])


def test_totals_are_the_sums_of_the_spans() -> None:
    skeleton = moe_skeleton(slots=1, slot_offset=0.5)
    _, table, totals = checked(skeleton)
    names = {
        SpanKind.MAINLOOP: "mainloop_ns",
        SpanKind.STAGING_STALL: "staging_stall_ns",
        SpanKind.DEPENDENCY_WAIT: "dependency_wait_ns",
        SpanKind.ISSUE: "issue_ns",
    }
    for kind, name in names.items():
        mine = table.spans["kind"] == kind
        sums = np.bincount(table.spans["lane"][mine], table.duration_ns()[mine], len(totals))
        np.testing.assert_allclose(totals[name], sums, rtol=1e-9, atol=TICK_NS)
    # All of the mainloop role's time is in one of its spans: it ends with its last mainloop.
    waits = totals["mainloop_ns"] + totals["staging_stall_ns"] + totals["dependency_wait_ns"]
    assert (waits <= totals["finish_ns"] + TICK_NS).all()


def test_a_counter_that_nobody_raises_is_named_with_cta_role_tile_expected_and_seen() -> None:
    run = run_on_host(deadlocked_skeleton(), most_ns=1e8)
    said = r"CTA [01] \(SM [01]\), loader role, tile 0: waited for counter [01] to reach 1, and saw 0"
    with pytest.raises(DeviceError, match=said):
        raise_fault(run.fault, run.plan)


def test_another_order_than_expected_is_found() -> None:
    run = run_on_host(moe_skeleton())
    assert run.plan.order_check is not None
    expected = run.plan.order_check.copy()
    expected[1] += 1
    with pytest.raises(FindingError, match="other tiles than expected on 1 of 3 CTAs, the first being CTA 1"):
        require_order(run.recorded, replace(run.plan, order_check=expected))


def test_a_launch_as_tight_as_shared_memory_allows_runs() -> None:
    skeleton = moe_skeleton(slots=27, dependencies=True)
    _, table, _ = checked(skeleton, shared_bytes=SHARED_BYTES)
    assert len(table.spans) > 0
