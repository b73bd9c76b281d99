"""Runs to figures: the common window and the traps that it designs out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.calibration.conftest import PORTS, TRUTH
from tests.calibration.fluid import LOOP_NS, Fluid, FluidDevice, with_dropped
from tests.calibration.points import (
    KIB,
    isolated_figures,
    isolated_point,
    periodic_figures,
    periodic_point,
)
from xstage_tune.base.spans import SpanTable
from xstage_tune.calibration.reduce import PeriodicFigures, UnusableRun, reduce_run

EXACT = replace(TRUTH, rate_jitter=0.0)


@pytest.mark.parametrize(("k", "burst_bytes"), [(33, 8 * KIB), (12, 2 * KIB), (4, 32 * KIB)])
def test_saturated_rate_is_the_drain_rate_however_uneven_the_service(k: int, burst_bytes: int) -> None:
    figures = periodic_figures(EXACT, periodic_point(k, burst_bytes, window_ns=2_000_000))
    uneven = figures.lane_bytes_per_s.max() / figures.lane_bytes_per_s.min()
    assert uneven > 1.3
    # Interpolation is off by a fraction of a burst a producer at each edge, of hundreds in the window.
    assert figures.bytes_per_s == pytest.approx(EXACT.drain_bytes_per_s, rel=2e-3)


def test_producers_that_stop_after_a_fixed_number_of_bursts_do_not_overstate_the_rate() -> None:
    point = periodic_point(16, 8 * KIB)
    fixed = replace(EXACT, fixed_bursts=120)
    run = FluidDevice(fixed).burst(point)
    figures = periodic_figures(fixed, point)
    begins, ends = run.table.begin_ns(), run.table.end_ns()
    periods = [
        (ends[run.table.spans["lane"] == lane].max() - begins[run.table.spans["lane"] == lane].min()) / 120
        for lane in range(16)
    ]
    naive = 16 * 8 * KIB / np.mean(periods) * 1e9
    assert naive > 1.15 * EXACT.drain_bytes_per_s  # the trap is there
    assert figures.bytes_per_s == pytest.approx(EXACT.drain_bytes_per_s, rel=5e-3)


def test_filling_phase_is_left_out() -> None:
    # Offered 5% above R: Q = 4 MB takes 1.5 ms to fill, in which bytes go in at 1.05 R.
    k, burst_bytes = 33, 8 * KIB
    free_ns = EXACT.free_issue_ns(burst_bytes)
    period_ns = k * burst_bytes / (1.05 * EXACT.drain_bytes_per_s) * 1e9
    gap_ns = int(period_ns - free_ns - LOOP_NS)
    steady = replace(EXACT, start_jitter_ns=0.0, jitter=0.0)
    figures = periodic_figures(steady, periodic_point(k, burst_bytes, gap_ns, window_ns=6_000_000))
    assert figures.bytes_per_s == pytest.approx(steady.drain_bytes_per_s, rel=3e-3)
    assert figures.window_ns < 4_700_000


@settings(deadline=None, max_examples=15)
@given(
    k=st.integers(1, 33),
    burst_kib=st.integers(2, 32),
    gap_ns=st.integers(0, 40_000),
)
def test_issue_plus_gap_is_the_period(k: int, burst_kib: int, gap_ns: int) -> None:
    figures = reduce_run(
        FluidDevice(TRUTH).burst(periodic_point(k, burst_kib * KIB, gap_ns, window_ns=3_000_000))
    )
    assert isinstance(figures, PeriodicFigures)
    # Equal but for the partial bursts at the two edges of the window.
    edge = 2 / figures.bursts
    assert figures.issue_ns + figures.gap_ns == pytest.approx(figures.period_ns, rel=edge)


def test_gap_is_the_realised_one() -> None:
    figures = periodic_figures(TRUTH, periodic_point(8, 4 * KIB, 5_000))
    # The asked-for gap, the loop, and half the start jitter on average.
    assert figures.gap_ns == pytest.approx(5_000 + LOOP_NS + TRUTH.start_jitter_ns / 2, abs=3)


def test_mean_over_bursts_follows_the_law_where_the_mean_of_producers_does_not() -> None:
    figures = periodic_figures(EXACT, periodic_point(12, 16 * KIB, window_ns=4_000_000))
    law_ns = figures.point.volume_bytes / EXACT.drain_bytes_per_s * 1e9 - figures.gap_ns
    assert figures.issue_ns == pytest.approx(law_ns, rel=0.01)
    by_producer_ns = figures.point.burst_bytes / figures.lane_bytes_per_s * 1e9 - figures.gap_ns
    assert by_producer_ns.mean() > 1.03 * law_ns


def test_one_producer_is_measured() -> None:
    figures = periodic_figures(TRUTH, periodic_point(1, 8 * KIB, 10_000))
    assert figures.issue_ns == pytest.approx(TRUTH.free_issue_ns(8 * KIB), rel=0.01)
    assert figures.sm_ids.shape == (1,)


def test_dropped_tails_shorten_the_window_and_leave_the_rate_right() -> None:
    point = periodic_point(33, 2 * KIB)
    run = FluidDevice(EXACT).burst(point)
    cut = reduce_run(with_dropped(run, 150))
    whole = reduce_run(run)
    assert isinstance(cut, PeriodicFigures)
    assert isinstance(whole, PeriodicFigures)
    assert cut.health.dropped > 0
    assert cut.window_ns < 0.7 * whole.window_ns
    assert cut.bytes_per_s == pytest.approx(EXACT.drain_bytes_per_s, rel=0.01)


def test_a_window_that_drops_left_too_short_is_unusable_and_says_so() -> None:
    run = with_dropped(FluidDevice(TRUTH).burst(periodic_point(33, 2 * KIB)), 3)
    figures = reduce_run(run)
    assert isinstance(figures, UnusableRun)
    assert "spans were dropped" in figures.reason


def test_too_few_bursts_are_unusable() -> None:
    figures = reduce_run(FluidDevice(TRUTH).burst(periodic_point(33, 32 * KIB, window_ns=60_000)))
    assert isinstance(figures, UnusableRun)
    assert "bursts" in figures.reason


def test_no_spans_at_all_are_unusable() -> None:
    run = FluidDevice(TRUTH).burst(periodic_point(4, 2 * KIB, window_ns=20_000))
    figures = reduce_run(with_dropped(run, 0))
    assert isinstance(figures, UnusableRun)


def test_a_stopped_clock_is_unusable() -> None:
    run = FluidDevice(TRUTH).burst(periodic_point(4, 2 * KIB))
    lanes = run.table.lanes.copy()
    lanes["tick_end"][2] = lanes["tick_begin"][2]
    figures = reduce_run(replace(run, table=SpanTable(run.table.spans, lanes)))
    assert isinstance(figures, UnusableRun)
    assert "clock" in figures.reason


def test_a_missing_producer_is_unusable() -> None:
    run = FluidDevice(TRUTH).burst(periodic_point(4, 2 * KIB))
    figures = reduce_run(replace(run, launch=replace(run.launch, producers=5)))
    assert isinstance(figures, UnusableRun)
    assert figures.reason == "4 of 5 producers reported"


def test_clock_rate_comes_from_the_clock_pairs() -> None:
    figures = periodic_figures(TRUTH, periodic_point(4, 2 * KIB))
    assert figures.health.sm_clock_mhz == pytest.approx(1980, rel=1e-3)


def test_isolated_issue_time_is_the_mean_over_producers_and_the_slowest_is_kept_beside() -> None:
    truth = replace(EXACT, jitter=0.0, start_jitter_ns=0.0)
    volume = 33 * 256 * KIB
    run = FluidDevice(truth).burst(isolated_point(33, 256 * KIB))
    figures = isolated_figures(truth, isolated_point(33, 256 * KIB))
    burst = run.table.duration_ns()[run.table.spans["index"] == 5]
    assert figures.issue_ns == pytest.approx(burst.mean(), rel=1e-3)
    # The fluid's queue is shared by all, so its last byte is accepted when equation 7 says.
    slowest_ns = (volume - truth.capacity_bytes(33)) / truth.drain_bytes_per_s * 1e9
    assert figures.slowest_ns == pytest.approx(slowest_ns, rel=1e-3)
    assert figures.issue_ns < 0.97 * slowest_ns


def test_first_isolated_burst_warms_up_and_is_left_out() -> None:
    figures = isolated_figures(TRUTH, isolated_point(8, 4 * KIB, bursts=9))
    assert len(figures.burst_ns) == 8


def test_isolated_run_with_too_few_whole_bursts_is_unusable() -> None:
    run = with_dropped(FluidDevice(TRUTH).burst(isolated_point(8, 4 * KIB, bursts=9)), 3)
    figures = reduce_run(run)
    assert isinstance(figures, UnusableRun)
    assert "2 bursts were recorded by all" in figures.reason


def test_ports_cover_the_device() -> None:
    assert sorted(sm for port in PORTS for sm in port) == list(range(Fluid().sm_count))
