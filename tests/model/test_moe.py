"""Equations 11-16 against Table 2, and their reduction to the Burst-Gap law."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model import paper
from xstage_tune.model import burst_gap, moe

properties = settings(deadline=None, max_examples=100)
mainloops = st.floats(1, 1e5)
frees = st.floats(1, 1e4)
volumes = st.floats(1, 1e8)
rates = st.floats(1e9, 1e12)
tiles = st.integers(1, 64)


@pytest.mark.parametrize("model", paper.TABLE_2)
class TestTable2:
    def test_wave_stall_is_span_less_the_next_linear2(self, model: str) -> None:
        row = paper.TABLE_2[model]
        stall = moe.critical_path_stall_ns(span_ns=1e3 * row.wave_span, cover_ns=1e3 * row.l2_mainloop)
        assert stall / 1e3 == pytest.approx(row.wave_stall, abs=0.011)  # three columns rounded to 0.01

    def test_interleaved_stall_is_covered_by_the_inserted_linear1(self, model: str) -> None:
        row = paper.TABLE_2[model]
        stall = moe.critical_path_stall_ns(span_ns=1e3 * row.interleaved_span, cover_ns=1e3 * row.l1_mainloop)
        assert stall == row.interleaved_stall

    def test_wave_span_is_no_longer_than_the_drain_of_148_tiles(self, model: str) -> None:
        drain = burst_gap.drain_ns(
            volume_bytes=148 * 48 * paper.KIB, drain_bytes_per_s=paper.DRAIN_BYTES_PER_S
        )
        assert 1e3 * paper.TABLE_2[model].wave_span <= drain


class TestReductions:
    """Equations 11, 13 and 14 as the paper writes them are laws 3 and 10 at the gap of equation 12."""

    @given(mainloops, frees, volumes, rates)
    @properties
    def test_wave_period_is_the_drain_while_it_dominates(
        self, l2: float, free: float, volume: float, rate: float
    ) -> None:
        gap = moe.interleaved_gap_ns(l1_mainloop_ns=9e3, l2_mainloop_ns=l2, l1_tiles=0, l2_tiles=1)
        issue = burst_gap.issue_ns(
            gap_ns=gap, free_issue_ns=free, volume_bytes=volume, drain_bytes_per_s=rate
        )
        drain = burst_gap.drain_ns(volume_bytes=volume, drain_bytes_per_s=rate)
        assert issue + l2 == pytest.approx(max(drain, free + l2), rel=1e-9)

    @given(mainloops, mainloops, tiles, tiles, frees, volumes, rates)
    @properties
    def test_equation_13_is_the_law_at_the_interleaved_gap(
        self, l1: float, l2: float, n1: int, n2: int, free: float, volume: float, rate: float
    ) -> None:
        law = {"free_issue_ns": free, "volume_bytes": volume, "drain_bytes_per_s": rate}
        gap = moe.interleaved_gap_ns(l1_mainloop_ns=l1, l2_mainloop_ns=l2, l1_tiles=n1, l2_tiles=n2)
        wave_ns = float(burst_gap.issue_ns(gap_ns=l2, **law)) - free
        interleaved_ns = max(0.0, wave_ns - n1 / n2 * l1)
        rounding = 1e-9 * float(burst_gap.drain_ns(volume_bytes=volume, drain_bytes_per_s=rate) + gap + free)
        assert burst_gap.issue_ns(gap_ns=gap, **law) - free == pytest.approx(interleaved_ns, abs=rounding)

    @given(mainloops, mainloops, tiles, tiles, frees, volumes, rates)
    @properties
    def test_equation_14_is_the_rate_bound_at_the_interleaved_gap(
        self, l1: float, l2: float, n1: int, n2: int, free: float, volume: float, rate: float
    ) -> None:
        gap = moe.interleaved_gap_ns(l1_mainloop_ns=l1, l2_mainloop_ns=l2, l1_tiles=n1, l2_tiles=n2)
        test = burst_gap.design_test(
            gap_ns=gap, free_issue_ns=free, volume_bytes=volume, drain_bytes_per_s=rate, capacity_bytes=0
        )
        injection = n2 * volume / (n2 * (free + l2) + n1 * l1) * 1e9
        assert test.injection_bytes_per_s == pytest.approx(injection, rel=1e-9)
        if abs(injection - rate) > 1e-9 * rate:
            assert test.rate_ok == (injection < rate)

    def test_no_linear1_in_the_cycle_leaves_the_wave_gap(self) -> None:
        gap = moe.interleaved_gap_ns(l1_mainloop_ns=9770, l2_mainloop_ns=5300, l1_tiles=0, l2_tiles=1)
        assert gap == 5300


def test_interleaving_suffices_for_dit_moe_where_the_wave_does_not() -> None:
    row = paper.TABLE_2["DiT-MoE"]
    recovery = burst_gap.recovery_gap_ns(
        volume_bytes=148 * 48 * paper.KIB,
        drain_bytes_per_s=paper.DRAIN_BYTES_PER_S,
        free_issue_ns=1.5 * paper.FREE_ISSUE_NS,
    )
    mix = {"l1_mainloop_ns": 1e3 * row.l1_mainloop, "l2_mainloop_ns": 1e3 * row.l2_mainloop, "l2_tiles": 1}
    assert moe.interleaved_gap_ns(**mix, l1_tiles=0) < recovery
    assert moe.interleaved_gap_ns(**mix, l1_tiles=1) >= recovery


def test_lead_knee_of_deepseek_v4_flash() -> None:
    # 128 columns * 148 SMs / (2 * 2048): the two Linear-1 halves of one row
    assert moe.lead_knee_rows(block_n=128, producers=148, intermediate=2048) == 4.625


def test_lead_knee_refuses_an_intermediate_size_of_zero() -> None:
    with pytest.raises(ValueError, match="intermediate"):
        moe.lead_knee_rows(block_n=128, producers=148, intermediate=0)


def test_cycle_without_linear2_is_refused() -> None:
    with pytest.raises(ValueError, match="l2_tiles"):
        moe.interleaved_gap_ns(l1_mainloop_ns=1, l2_mainloop_ns=1, l1_tiles=1, l2_tiles=0)
