"""A skeleton as a launch: what fits, what is refused and how that is said, which spans are kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emulation_kernels.cases import attention_skeleton, listed_skeleton, moe_skeleton
from xstage_tune.base.errors import UsageError
from xstage_tune.cuda.skeletons_layout import TILE_MOMENTS
from xstage_tune.cuda.skeletons_plan import LaunchPlan, Target, plan_launch
from xstage_tune.families.megamoe.order import Interleaved
from xstage_tune.families.megamoe.scheduling import MoeScheduling
from xstage_tune.launches.skeletons import Skeleton
from xstage_tune.launches.streams import independent_streams

TARGET = Target(sm_count=132, shared_bytes=231_424, cycles_per_ns=1.98, most_ns=2e9)


def end_of_shared(plan: LaunchPlan) -> int:
    return plan.offsets["moments"] + plan.most_kept * TILE_MOMENTS.itemsize


@pytest.mark.parametrize("listed", [False, True])
def test_tables_lie_behind_the_slots_without_overlap_and_fit(listed: bool) -> None:
    plan = plan_launch(moe_skeleton(slots=3, listed=listed), TARGET)
    offsets = list(plan.offsets.values())
    assert offsets[0] == 3 * plan.slot_bytes
    assert offsets == sorted(offsets)
    assert all(offset % 16 == 0 for offset in offsets)
    assert end_of_shared(plan) <= TARGET.shared_bytes
    assert (plan.listed is None) != listed


def test_as_many_slots_as_are_said_to_fit_do_and_no_more() -> None:
    with pytest.raises(
        UsageError, match=r"40 staging slots of 8192 bytes do not fit .*: (\d+) fit"
    ) as caught:
        plan_launch(moe_skeleton(slots=40), TARGET)
    fit = int(caught.value.message.split(": ")[-1].split()[0])
    plan = plan_launch(moe_skeleton(slots=fit), TARGET)
    assert end_of_shared(plan) <= TARGET.shared_bytes
    with pytest.raises(UsageError, match="do not fit"):
        plan_launch(moe_skeleton(slots=fit + 1), TARGET)


def test_a_tile_larger_than_shared_memory_says_that_none_fits() -> None:
    with pytest.raises(UsageError, match="0 fit") as caught:
        plan_launch(moe_skeleton(slots=1, tile_bytes=300_000), TARGET)
    assert "smaller tiles" in caught.value.hint


def with_mainloops(mainloop_ns: list[float]) -> Skeleton:
    return listed_skeleton(independent_streams(np.array([0, 1, len(mainloop_ns)]), np.array(mainloop_ns)))


@pytest.mark.parametrize("nothing", [0.0, 0.1])
def test_a_mainloop_of_nothing_is_named(nothing: float) -> None:
    with pytest.raises(UsageError, match="listed tiles: tile 1 of SM 1 has a mainloop of 0 ns"):
        plan_launch(with_mainloops([100.0, 100.0, nothing]), TARGET)


@pytest.mark.parametrize("long", [[3e9], [1.5e9, 1.5e9], [1e30]])
def test_mainloops_longer_than_a_launch_may_take_are_refused(long: list[float]) -> None:
    with pytest.raises(UsageError, match=r"the mainloops of SM 1 take \S+ s, more than the 2 s") as caught:
        plan_launch(with_mainloops([100.0, *long]), TARGET)
    assert caught.value.hint


def test_more_sms_than_the_gpu_has_are_refused() -> None:
    with pytest.raises(UsageError, match="a launch of 133 SMs does not fit a GPU of 132"):
        plan_launch(attention_skeleton(sms=133), TARGET)


def test_a_gpu_of_more_sms_than_the_kernel_has_room_for_is_refused() -> None:
    with pytest.raises(UsageError, match="up to 256 SMs, not on one of 300"):
        plan_launch(attention_skeleton(), replace(TARGET, sm_count=300))


@pytest.mark.parametrize("slots", [0, -1])
def test_a_launch_needs_a_slot(slots: int) -> None:
    with pytest.raises(UsageError, match="staging slots must be 1 or more"):
        plan_launch(moe_skeleton(slots=slots), TARGET)


def test_local_bytes_must_be_one_for_each_tile() -> None:
    skeleton = moe_skeleton()
    for wrong in (skeleton.local_bytes[1:], -skeleton.local_bytes):
        with pytest.raises(UsageError, match="local_bytes must be"):
            plan_launch(replace(skeleton, local_bytes=wrong), TARGET)


def test_streams_of_another_order_or_with_other_counters_are_refused() -> None:
    skeleton = moe_skeleton()
    assert skeleton.scheduling is not None
    fewer = replace(skeleton.scheduling.grid, sms=2)
    waiting = replace(skeleton.streams, waits_on=np.roll(skeleton.streams.waits_on, 1))
    for other in (
        replace(skeleton, scheduling=MoeScheduling(fewer, Interleaved(1))),
        replace(skeleton, streams=waiting),
    ):
        with pytest.raises(UsageError, match="not those of the scheduling"):
            plan_launch(other, TARGET)


def test_bytes_are_rounded_to_whole_vectors_and_some_to_one() -> None:
    streams = independent_streams(np.array([0, 4]), np.ones(4) * 50, remote_bytes=np.array([0.0, 1, 23, 25]))
    plan = plan_launch(listed_skeleton(streams, local_bytes=7.0), TARGET)
    assert plan.remote_bytes.tolist() == [0, 16, 16, 32]
    assert plan.local_bytes.tolist() == [16] * 4
    assert plan.slot_bytes == 128


def test_lengths_become_cycles_of_the_clock() -> None:
    plan = plan_launch(moe_skeleton(slot_offset=0.5), TARGET)
    assert set(plan.plans["mainloop_cycles"].tolist()) == {7920, 3960}
    assert set(plan.plans["slot_offset_cycles"].tolist()) == {3960, 1980}


@given(tiles=st.integers(65, 3000), kept=st.integers(64, 900))
@settings(deadline=None, max_examples=60)
def test_kept_tiles_fill_the_room_and_are_evenly_spread(tiles: int, kept: int) -> None:
    skeleton = attention_skeleton(tiles=tiles, sms=1)
    room = plan_launch(skeleton, TARGET).offsets["moments"] + kept * TILE_MOMENTS.itemsize
    plan = plan_launch(skeleton, replace(TARGET, shared_bytes=room))
    places = np.flatnonzero(plan.kept)
    assert places.size == min(kept, tiles) == plan.most_kept
    # The gaps of a golden-ratio sequence have three lengths, the longest less than 3 times the mean.
    assert np.diff(places, prepend=-1, append=tiles).max() <= 3 * tiles / places.size + 1
    for period in (2, 3, 4):
        if places.size > 8 * period:
            counts = np.bincount(places % period, minlength=period)
            assert counts.max() <= 1.5 * counts.min() + 2


def test_lanes_are_spread_over_the_gpu() -> None:
    plan = plan_launch(attention_skeleton(sms=66), TARGET)
    lane_of_sm = plan.lane_of_sm()
    assert lane_of_sm[:6].tolist() == [0, 0xFFFF, 1, 0xFFFF, 2, 0xFFFF]
    assert np.count_nonzero(lane_of_sm != 0xFFFF) == 66
