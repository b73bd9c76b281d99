"""Sizes that DeepGEMM's schedules derive from a launch's shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xstage_tune.families.megamoe.static_schedules import clamped_lag_units, wave_experts


def test_a_wave_fills_the_sms_twice_and_divides_the_experts() -> None:
    """Rows of 32 tiles on 148 SMs: 296 tiles are 10 experts of one row, and 16 is the next divisor of 32."""
    shape = {"local_experts": 32, "block_m": 128, "linear1_tiles": 32, "sms": 148}
    assert wave_experts(tokens_per_expert=128, **shape) == 16
    assert wave_experts(tokens_per_expert=129, **shape) == 8  # two rows
    assert wave_experts(tokens_per_expert=10_000, **shape) == 1


def test_where_most_experts_have_no_token_one_wave_has_them_all() -> None:
    shape = {"local_experts": 32, "block_m": 16, "linear1_tiles": 1000, "sms": 148}
    assert wave_experts(tokens_per_expert=0.99, **shape) == 32
    assert wave_experts(tokens_per_expert=1.0, **shape) == 1


@given(st.integers(1, 300), st.floats(0.0, 1e5), st.sampled_from([16, 192]), st.integers(1, 300))
def test_a_wave_is_never_out_of_range(experts: int, tokens: float, block_m: int, tiles: int) -> None:
    found = wave_experts(
        local_experts=experts, tokens_per_expert=tokens, block_m=block_m, linear1_tiles=tiles, sms=132
    )
    assert 1 <= found <= experts
    assert experts % found == 0


@pytest.mark.parametrize(("units", "lag"), [(1, 8), (17, 8), (40, 18), (142, 64), (1000, 64)])
def test_the_clamped_lag_is_0_45_of_the_units_between_8_and_64(units: int, lag: int) -> None:
    assert clamped_lag_units(units) == lag
