"""Equations 1-10: hand-worked values of the paper, and the properties that make it a law."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.model import paper
from xstage_tune.model import burst_gap

PLATFORM = {"drain_bytes_per_s": paper.DRAIN_BYTES_PER_S}
ALIGNED_32K = {"volume_bytes": paper.PRODUCERS * 32 * paper.KIB, **PLATFORM}
FREE = {"free_issue_ns": paper.FREE_ISSUE_NS}

gaps = st.floats(0, 1e6)
frees = st.floats(1, 1e5)
volumes = st.floats(1, 1e9)
rates = st.floats(1e9, 1e12)
properties = settings(deadline=None, max_examples=100)


class TestHandWorkedValues:
    def test_48_kib_from_148_producers_drains_in_10_1_us(self) -> None:
        drain = burst_gap.drain_ns(volume_bytes=148 * 48 * 1024, **PLATFORM)
        assert drain == pytest.approx(7_274_496 / 717, rel=1e-12)  # bytes over bytes/ns
        assert drain == pytest.approx(10_100, rel=0.01)

    def test_recovery_gap_is_6_0_us(self) -> None:
        gap = burst_gap.recovery_gap_ns(**FREE, **ALIGNED_32K)
        assert gap == pytest.approx(6_000, abs=50)

    def test_peak_outstanding_is_4_1_mib_and_fits_the_capacity(self) -> None:
        peak = burst_gap.peak_outstanding_bytes(**FREE, **ALIGNED_32K)
        assert peak / paper.MIB == pytest.approx(4.1, abs=0.05)
        assert peak < paper.CAPACITY_BYTES

    def test_capacity_follows_from_the_isolated_knee_at_33_kib(self) -> None:
        knee = paper.PRODUCERS * 33 * paper.KIB
        assert knee / paper.MIB == pytest.approx(4.77, abs=0.005)
        capacity = burst_gap.peak_outstanding_bytes(**FREE, volume_bytes=knee, **PLATFORM)
        assert capacity / paper.MIB == pytest.approx(4.25, abs=0.005)

    def test_isolated_burst_stays_free_below_the_knee_and_rises_at_the_drain_rate_above(self) -> None:
        knee = paper.PRODUCERS * 33 * paper.KIB
        law = {**FREE, **PLATFORM, "capacity_bytes": paper.CAPACITY_BYTES}
        assert burst_gap.isolated_issue_ns(volume_bytes=knee * 0.97, **law) == paper.FREE_ISSUE_NS
        rise = np.diff(burst_gap.isolated_issue_ns(volume_bytes=[6e6, 7e6], **law))
        assert rise[0] == pytest.approx(1e6 / 717, rel=1e-9)

    def test_zero_gap_period_is_volume_over_rate(self) -> None:
        assert burst_gap.steady_period_ns(gap_ns=0, **FREE, **ALIGNED_32K) == pytest.approx(6763.83, abs=0.01)

    def test_completion_coupling_adds_the_whole_drain_to_the_gap(self) -> None:
        period = burst_gap.completion_coupled_period_ns(gap_ns=80_000, **ALIGNED_32K)
        assert period == pytest.approx(86_763.83, abs=0.01)


class TestLaw:
    @given(frees, volumes, rates)
    @properties
    def test_is_continuous_at_the_recovery_gap(self, free: float, volume: float, rate: float) -> None:
        law = {"free_issue_ns": free, "volume_bytes": volume, "drain_bytes_per_s": rate}
        corner = float(burst_gap.recovery_gap_ns(**law))
        step = 1e-3
        around = np.array([max(corner - step, 0), corner, corner + step])
        issue = burst_gap.issue_ns(gap_ns=around, **law)
        # the slope is never steeper than -1; the rest is rounding of V/R
        drain = burst_gap.drain_ns(volume_bytes=volume, drain_bytes_per_s=rate)
        assert np.ptp(issue) <= 2 * step + 1e-9 * float(drain)

    @given(gaps, frees, volumes, rates)
    @properties
    def test_is_monotone_in_volume_gap_and_rate(
        self, gap: float, free: float, volume: float, rate: float
    ) -> None:
        def issue(gap_ns: float = gap, volume_bytes: float = volume, rate_: float = rate) -> float:
            return float(
                burst_gap.issue_ns(
                    gap_ns=gap_ns, free_issue_ns=free, volume_bytes=volume_bytes, drain_bytes_per_s=rate_
                )
            )

        assert issue(volume_bytes=1.1 * volume) >= issue()
        assert issue(gap_ns=1.1 * gap) <= issue()
        assert issue(rate_=1.1 * rate) <= issue()

    @given(gaps, frees, volumes, rates)
    @properties
    def test_period_is_issue_plus_gap(self, gap: float, free: float, volume: float, rate: float) -> None:
        law = {"gap_ns": gap, "free_issue_ns": free, "volume_bytes": volume, "drain_bytes_per_s": rate}
        issue = burst_gap.issue_ns(**law)
        assert burst_gap.period_ns(issue_ns=issue, gap_ns=gap) == pytest.approx(
            burst_gap.steady_period_ns(**law), rel=1e-9
        )

    @given(gaps, frees, volumes, rates)
    @properties
    def test_issue_is_free_issue_plus_overhead(
        self, gap: float, free: float, volume: float, rate: float
    ) -> None:
        law = {"gap_ns": gap, "free_issue_ns": free, "volume_bytes": volume, "drain_bytes_per_s": rate}
        drain = burst_gap.drain_ns(volume_bytes=volume, drain_bytes_per_s=rate)
        overhead = max(0.0, float(drain) - gap - free)  # equation 4
        assert burst_gap.issue_ns(**law) == pytest.approx(free + overhead, rel=1e-9)

    @given(frees, volumes, rates)
    @properties
    def test_zero_gap_overhead_is_the_recovery_gap_and_the_time_to_drain_the_peak(
        self, free: float, volume: float, rate: float
    ) -> None:
        law = {"free_issue_ns": free, "volume_bytes": volume, "drain_bytes_per_s": rate}
        recovery = burst_gap.recovery_gap_ns(**law)
        overhead = burst_gap.issue_ns(gap_ns=0, **law) - free
        assert overhead == pytest.approx(recovery, abs=1e-9 * (free + float(recovery)))
        peak = burst_gap.peak_outstanding_bytes(**law)
        drain = burst_gap.drain_ns(volume_bytes=volume, drain_bytes_per_s=rate)
        assert burst_gap.drain_ns(volume_bytes=peak, drain_bytes_per_s=rate) == pytest.approx(
            recovery, abs=1e-9 * float(drain)
        )

    @given(frees, volumes, rates, st.floats(0, 1e9))
    @properties
    def test_isolated_issue_is_free_exactly_while_the_peak_fits(
        self, free: float, volume: float, rate: float, capacity: float
    ) -> None:
        law = {"free_issue_ns": free, "volume_bytes": volume, "drain_bytes_per_s": rate}
        peak = float(burst_gap.peak_outstanding_bytes(**law))
        assume(abs(peak - capacity) > 1e-9 * volume)  # either side of rounding
        issue = burst_gap.isolated_issue_ns(**law, capacity_bytes=capacity)
        assert (issue <= free) == (peak < capacity)

    def test_units_scale_together(self) -> None:
        base = burst_gap.issue_ns(gap_ns=100, free_issue_ns=10, volume_bytes=1e6, drain_bytes_per_s=1e9)
        slower = burst_gap.issue_ns(gap_ns=1e5, free_issue_ns=1e4, volume_bytes=1e6, drain_bytes_per_s=1e6)
        assert slower == pytest.approx(1000 * base, rel=1e-12)

    def test_broadcasts_producers_against_gaps(self) -> None:
        volume = np.array([[1e6], [2e6]])
        issue = burst_gap.issue_ns(gap_ns=[0, 10, 20], free_issue_ns=5, volume_bytes=volume, **PLATFORM)
        assert issue.shape == (2, 3)


class TestSoftCorner:
    @given(gaps, frees, volumes, rates)
    @properties
    def test_a_width_of_zero_is_the_plain_law(
        self, gap: float, free: float, volume: float, rate: float
    ) -> None:
        law = {"gap_ns": gap, "free_issue_ns": free, "volume_bytes": volume, "drain_bytes_per_s": rate}
        assert burst_gap.softened_issue_ns(**law, width_fraction=0) == burst_gap.issue_ns(**law)

    @given(gaps, frees, volumes, rates, st.floats(1e-6, 0.5))
    @properties
    def test_lies_above_the_plain_law_by_at_most_width_ln_2(
        self, gap: float, free: float, volume: float, rate: float, fraction: float
    ) -> None:
        law = {"gap_ns": gap, "free_issue_ns": free, "volume_bytes": volume, "drain_bytes_per_s": rate}
        plain = burst_gap.issue_ns(**law)
        soft = burst_gap.softened_issue_ns(**law, width_fraction=fraction)
        width = fraction * volume / rate * 1e9
        assert plain <= soft <= (plain + width * math.log(2)) * (1 + 1e-12)

    def test_is_widest_at_the_recovery_gap(self) -> None:
        law = {**FREE, **ALIGNED_32K}
        corner = float(burst_gap.recovery_gap_ns(**law))
        soft = burst_gap.softened_issue_ns(gap_ns=corner, **law, width_fraction=0.05)
        width = 0.05 * float(burst_gap.drain_ns(**ALIGNED_32K))
        assert soft == pytest.approx(paper.FREE_ISSUE_NS + width * math.log(2), rel=1e-9)


ALIGNED_LAW = {**FREE, **ALIGNED_32K, "capacity_bytes": paper.CAPACITY_BYTES}


class TestDesignTest:
    def test_attention_at_8192_tokens_may_piggyback(self) -> None:
        outcome = burst_gap.design_test(gap_ns=80_000, **ALIGNED_LAW)
        assert outcome.satisfied
        assert outcome.injection_bytes_per_s == pytest.approx(4_849_664 / 80_760 * 1e9, rel=1e-12)

    def test_a_gap_under_recovery_breaks_the_rate_bound_alone(self) -> None:
        outcome = burst_gap.design_test(gap_ns=5_900, **ALIGNED_LAW)
        assert (bool(outcome.rate_ok), bool(outcome.capacity_ok)) == (False, True)
        assert not outcome.satisfied

    def test_a_burst_over_capacity_breaks_the_capacity_bound_alone(self) -> None:
        outcome = burst_gap.design_test(gap_ns=80_000, **{**ALIGNED_LAW, "volume_bytes": 148 * 48 * 1024})
        assert (bool(outcome.rate_ok), bool(outcome.capacity_ok)) == (True, False)

    @given(frees, volumes, rates)
    @properties
    def test_rate_bound_holds_at_the_recovery_gap_itself(
        self, free: float, volume: float, rate: float
    ) -> None:
        law = {"free_issue_ns": free, "volume_bytes": volume, "drain_bytes_per_s": rate}
        corner = float(burst_gap.recovery_gap_ns(**law))
        assert burst_gap.design_test(gap_ns=corner, **law, capacity_bytes=0).rate_ok

    @given(gaps, frees, volumes, rates)
    @properties
    def test_rate_bound_compares_injection_with_drain(
        self, gap: float, free: float, volume: float, rate: float
    ) -> None:
        outcome = burst_gap.design_test(
            gap_ns=gap, free_issue_ns=free, volume_bytes=volume, drain_bytes_per_s=rate, capacity_bytes=0
        )
        assume(abs(outcome.injection_bytes_per_s - rate) > 1e-9 * rate)
        assert outcome.rate_ok == (outcome.injection_bytes_per_s < rate)


class TestInvalidInput:
    @pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, [1.0, -1.0]])
    def test_names_the_argument(self, bad: float | list[float]) -> None:
        with pytest.raises(ValueError, match="gap_ns"):
            burst_gap.issue_ns(gap_ns=bad, **FREE, **ALIGNED_32K)

    def test_refuses_a_drain_rate_of_zero(self) -> None:
        with pytest.raises(ValueError, match="drain_bytes_per_s"):
            burst_gap.drain_ns(volume_bytes=1, drain_bytes_per_s=0)

    def test_refuses_a_period_of_zero(self) -> None:
        with pytest.raises(ValueError, match=r"free_issue_ns \+ gap_ns"):
            burst_gap.injection_bytes_per_s(gap_ns=0, free_issue_ns=0, volume_bytes=1)
