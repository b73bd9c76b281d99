"""Small made-up launches for the store to keep."""

from __future__ import annotations

import numpy as np

from xstage_tune.base.spans import LANE_DTYPE, SPAN_DTYPE, SpanKind, SpanTable
from xstage_tune.launches.bursts import BURSTS, BurstPoint, BurstRun
from xstage_tune.launches.device import GpuState, LaunchInfo, Outcome, Verification
from xstage_tune.store.launches import StoredLaunch

STATE = GpuState(1980, 3201, 312.5, 41, ("sw_power_cap",))


def make_burst(seed: int = 0, lanes: int = 4, bursts: int = 50) -> BurstRun:
    """A periodic launch of ``lanes * bursts`` spans that differ with the seed."""
    rng = np.random.default_rng(seed)
    duration = rng.integers(1_000, 60_000, (lanes, bursts))
    begin = np.cumsum(duration + 2_000, axis=1) - duration
    spans = np.zeros(lanes * bursts, SPAN_DTYPE)
    spans["begin_ticks"], spans["duration_ticks"] = begin.ravel(), duration.ravel()
    spans["index"], spans["lane"] = np.tile(np.arange(bursts), lanes), np.repeat(np.arange(lanes), bursts)
    spans["kind"] = SpanKind.ISSUE
    clocks = np.zeros(lanes, LANE_DTYPE)
    clocks["timer_begin_ns"] = 10**18 + rng.integers(0, 1_000, lanes)
    clocks["timer_end_ns"] = clocks["timer_begin_ns"] + np.uint64(3_000_000)
    clocks["tick_begin"] = rng.integers(0, 2**60, lanes)
    clocks["tick_end"] = clocks["tick_begin"] + np.uint64(6_000_000)
    clocks["recorded"] = clocks["issued"] = bursts
    clocks["lane"], clocks["sm_id"] = np.arange(lanes), rng.permutation(lanes)
    point = BurstPoint("periodic", "host", "st.v4", lanes, 8192, 1_000, window_ns=3_000_000, repeat=seed)
    info = LaunchInfo(
        kernel="burst_periodic",
        kernel_sha256="ab" * 32,
        registers=40,
        spill_bytes=0,
        shared_bytes=65536,
        timer_tick_ns=32,
        elapsed_ns=4_000_000,
        started_at="2026-01-02T03:04:05.000006+00:00",
        before=STATE,
        after=None,
        producers=lanes,
    )
    return Outcome(point, None, info, Verification(1 << 20, 0), SpanTable(spans, clocks))


def stored_burst(launch: StoredLaunch, rank: int = 0) -> BurstRun:
    """A launch of the store as the device returned it."""
    point = launch.point_as(BURSTS)
    return Outcome(point, None, launch.info, launch.verification, launch.table(rank))


def assert_same_burst(found: BurstRun, expected: BurstRun) -> None:
    """Equal in every field, the arrays byte for byte."""
    assert (found.launch, found.verification, found.info) == (
        *(expected.launch, expected.verification, expected.info),
    )
    assert found.table.spans.tobytes() == expected.table.spans.tobytes()
    assert found.table.lanes.tobytes() == expected.table.lanes.tobytes()
