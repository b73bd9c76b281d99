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
    @given(mainloops, frees, volumes, rates)
    @properties
    def test_wave_period_is_the_drain_while_it_dominates(
        self, l2: float, free: float, volume: float, rate: float
    ) -> None:
        issue = moe.wave_issue_ns(
            l2_mainloop_ns=l2, free_issue_ns=free, volume_bytes=volume, drain_bytes_per_s=rate
        )
        drain = burst_gap.drain_ns(volume_bytes=volume, drain_bytes_per_s=rate)
        assert issue + l2 == pytest.approx(max(drain, free + l2), rel=1e-9)

    @given(mainloops, mainloops, tiles, tiles, frees, volumes, rates)
    @properties
    def test_equation_13_is_equation_4_at_the_interleaved_gap(
        self, l1: float, l2: float, n1: int, n2: int, free: float, volume: float, rate: float
    ) -> None:
        law = {"free_issue_ns": free, "volume_bytes": volume, "drain_bytes_per_s": rate}
        gap = moe.interleaved_gap_ns(l1_mainloop_ns=l1, l2_mainloop_ns=l2, l1_tiles=n1, l2_tiles=n2)
        wave = burst_gap.issue_overhead_ns(gap_ns=l2, **law)
        overhead = moe.interleaved_overhead_ns(
            wave_overhead_ns=wave, l1_mainloop_ns=l1, l1_tiles=n1, l2_tiles=n2
        )
        rounding = 1e-9 * float(burst_gap.drain_ns(volume_bytes=volume, drain_bytes_per_s=rate) + gap)
        assert overhead == pytest.approx(burst_gap.issue_overhead_ns(gap_ns=gap, **law), abs=rounding)

    @given(mainloops, mainloops, tiles, tiles, frees, volumes, rates)
    @properties
    def test_equation_14_compares_the_cycle_injection_with_the_drain(
        self, l1: float, l2: float, n1: int, n2: int, free: float, volume: float, rate: float
    ) -> None:
        mix = {"l1_mainloop_ns": l1, "l2_mainloop_ns": l2, "l1_tiles": n1, "l2_tiles": n2}
        injection = moe.interleaved_injection_bytes_per_s(**mix, free_issue_ns=free, volume_bytes=volume)
        gap = moe.interleaved_gap_ns(**mix)
        assert injection == pytest.approx(
            burst_gap.injection_bytes_per_s(gap_ns=gap, free_issue_ns=free, volume_bytes=volume), rel=1e-9
        )
        if abs(injection - rate) > 1e-9 * rate:
            suffices = moe.interleaving_suffices(
                **mix, free_issue_ns=free, volume_bytes=volume, drain_bytes_per_s=rate
            )
            assert suffices == (injection < rate)

    def test_no_linear1_in_the_cycle_leaves_the_wave_gap(self) -> None:
        gap = moe.interleaved_gap_ns(l1_mainloop_ns=9770, l2_mainloop_ns=5300, l1_tiles=0, l2_tiles=1)
        assert gap == 5300


def test_interleaving_suffices_for_dit_moe_where_the_wave_does_not() -> None:
    row = paper.TABLE_2["DiT-MoE"]
    burst = {
        "volume_bytes": 148 * 48 * paper.KIB,
        "drain_bytes_per_s": paper.DRAIN_BYTES_PER_S,
        "free_issue_ns": 1.5 * paper.FREE_ISSUE_NS,
    }
    mix = {"l1_mainloop_ns": 1e3 * row.l1_mainloop, "l2_mainloop_ns": 1e3 * row.l2_mainloop, "l2_tiles": 1}
    assert not moe.interleaving_suffices(**mix, l1_tiles=0, **burst)
    assert moe.interleaving_suffices(**mix, l1_tiles=1, **burst)


def test_span_adds_staging_to_the_issue_time() -> None:
    assert moe.remote_store_span_ns(free_issue_ns=760, overhead_ns=4000, staging_ns=500) == 5260


def test_lead_knee_of_deepseek_v4_flash() -> None:
    # 128 columns * 148 SMs / (2 * 2048): the two Linear-1 halves of one row
    assert moe.lead_knee_rows(block_n=128, producers=148, intermediate=2048) == 4.625


def test_lead_knee_refuses_an_intermediate_size_of_zero() -> None:
    with pytest.raises(ValueError, match="intermediate"):
        moe.lead_knee_rows(block_n=128, producers=148, intermediate=0)


def test_cycle_without_linear2_is_refused() -> None:
    with pytest.raises(ValueError, match="l2_tiles"):
        moe.interleaved_gap_ns(l1_mainloop_ns=1, l2_mainloop_ns=1, l1_tiles=1, l2_tiles=0)
