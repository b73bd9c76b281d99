"""Equations 17-21 against section 4.3 and Table 3."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model import paper
from xstage_tune.model import attention, burst_gap

KV_TILE_NS = 790.0
BURST = {"volume_bytes": 148 * 32 * paper.KIB, "drain_bytes_per_s": paper.DRAIN_BYTES_PER_S}
FREE = {"free_issue_ns": paper.FREE_ISSUE_NS}


def test_output_tile_of_128_rows_in_bf16_is_32_kib() -> None:
    assert attention.output_tile_bytes(block_m=128, head_dim=128, element_bytes=2) == 32 * paper.KIB


def test_converges_by_about_1000_tokens() -> None:
    tokens = attention.converged_tokens(
        recovery_gap_ns=burst_gap.recovery_gap_ns(**FREE, **BURST), block_n=128, kv_tile_ns=KV_TILE_NS
    )
    assert tokens == pytest.approx(1000, abs=50)


@given(st.floats(1e3, 1e6), st.floats(1, 1e4))
@settings(deadline=None, max_examples=100)
def test_q_loop_of_the_converged_length_is_the_recovery_gap(recovery: float, kv_tile: float) -> None:
    tokens = attention.converged_tokens(recovery_gap_ns=recovery, block_n=128, kv_tile_ns=kv_tile)
    assert tokens / 128 * kv_tile == pytest.approx(recovery, rel=1e-9)


@given(st.floats(1e3, 1e6), st.floats(1, 1e4))
@settings(deadline=None, max_examples=100)
def test_two_ctas_on_a_tile_double_the_converged_length(recovery: float, kv_tile: float) -> None:
    at = {"recovery_gap_ns": recovery, "block_n": 128, "kv_tile_ns": kv_tile}
    tokens = attention.converged_tokens(**at, kv_splits=2)
    assert tokens == pytest.approx(2 * attention.converged_tokens(**at), rel=1e-9)
    assert tokens / (2 * 128) * kv_tile == pytest.approx(recovery, rel=1e-9)


@given(st.integers(1, 100_000), st.integers(1, 256), st.integers(1, 4))
def test_q_loops_go_over_whole_kv_tiles_of_a_whole_split(tokens: int, block_n: int, splits: int) -> None:
    kv_tiles = math.ceil(tokens / block_n)
    found = attention.q_loop_kv_tiles(tokens=tokens, block_n=block_n, kv_splits=splits)
    assert found == math.ceil(kv_tiles / splits)
    assert attention.q_loop_kv_tiles(tokens=tokens, block_n=block_n) == kv_tiles


def test_overhead_falls_with_the_sequence_and_is_gone_at_8192_tokens() -> None:
    tokens = np.array([256, 512, 1024, 8192])
    gap = tokens / 128 * KV_TILE_NS
    overhead = burst_gap.issue_ns(gap_ns=gap, **FREE, **BURST) - paper.FREE_ISSUE_NS  # equation 18
    assert (np.diff(overhead) <= 0).all()
    # 4,849,664 B at 717 B/ns, less two KV tiles of 790 ns, less the 760 ns of issue
    assert overhead[0] == pytest.approx(6763.83 - 1580 - 760, abs=0.01)
    assert overhead[2] == overhead[3] == 0


def test_double_buffering_covers_up_to_its_window() -> None:
    left = attention.critical_path_overhead_ns(overhead_ns=[100, 400, 900], cover_ns=400)
    assert left.tolist() == [0, 0, 500]


def test_completion_coupled_exposure_does_not_shrink_with_the_sequence_and_sums_over_bursts() -> None:
    # one way over NVLink takes 0.8 us (H100) to 1.5 us
    exposure = attention.completion_coupled_exposure_ns(**BURST, latency_ns=1000, cover_ns=0)
    assert exposure == pytest.approx(7763.83, abs=0.01)
    # four heads of 8192 and of 65,536 tokens, in tiles of 128 rows over 148 SMs
    waves = np.array([math.ceil(4 * 64 / 148), math.ceil(4 * 512 / 148)])
    short, long = attention.total_exposure_ns(output_bursts=waves, exposure_ns=exposure)
    # the paper's prediction grows from about 16 us to about 120 us
    assert short == pytest.approx(16_000, rel=0.1)
    assert long == pytest.approx(120_000, rel=0.1)


def test_completion_coupled_exposure_is_never_negative() -> None:
    assert attention.completion_coupled_exposure_ns(**BURST, latency_ns=0, cover_ns=1e5) == 0


@pytest.mark.parametrize("generation", paper.TABLE_3)
class TestTable3:
    def test_hiding_ratio(self, generation: str) -> None:
        rows = paper.TABLE_3[generation]
        hidden = 100 * attention.hiding_ratio(
            fused_ns=np.array(rows.fused) * 1e3,
            attention_ns=np.array(rows.attention) * 1e3,
            serial_ns=np.array(rows.serial) * 1e3,
        )
        # printed as whole percents; at or above 100 the paper prints "about 100"
        assert np.minimum(hidden, 100) == pytest.approx(rows.hiding_percent, abs=0.6)

    def test_speedup_stays_under_the_ideal_within_noise(self, generation: str) -> None:
        rows = paper.TABLE_3[generation]
        fused, serial, alone = np.array(rows.fused), np.array(rows.serial), np.array(rows.attention)
        assert serial / fused == pytest.approx(rows.speedup, abs=0.001)
        ideal = attention.ideal_speedup(all_to_all_ns=serial - alone, attention_ns=alone)
        assert (np.array(rows.speedup) <= 1.01 * ideal).all()  # the DVFS band of 0.7% in section 5.3

    def test_hiding_ratio_follows_from_the_residual(self, generation: str) -> None:
        rows = paper.TABLE_3[generation]
        fused, serial, alone = np.array(rows.fused), np.array(rows.serial), np.array(rows.attention)
        residual = attention.residual_ns(fused_ns=fused, attention_ns=alone)
        hidden = attention.hiding_ratio(fused_ns=fused, attention_ns=alone, serial_ns=serial)
        assert residual == pytest.approx((1 - hidden) * (serial - alone), abs=1e-9 * alone.max())


def test_hiding_ratio_needs_something_to_hide() -> None:
    with pytest.raises(ValueError, match="serial_ns - attention_ns"):
        attention.hiding_ratio(fused_ns=100, attention_ns=100, serial_ns=100)


def test_residual_may_be_negative() -> None:
    assert attention.residual_ns(fused_ns=1429.2, attention_ns=1439.4) == pytest.approx(-10.2)
