"""Tile times, and what weights that do not fit L2 cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from xstage_tune.base.errors import UsageError
from xstage_tune.families.megamoe.compute import ComputeModel, MoeShape, compute_model, moe_mainloop_ns
from xstage_tune.families.megamoe.order import (
    LINEAR1,
    LINEAR2,
    ExpertWave,
    Interleaved,
    MoeGrid,
    megamoe_order,
)
from xstage_tune.platforms.loader import load_platform

SHAPE = MoeShape(hidden=4096, intermediate=2048, block_n=128, weight_bytes=1, activation_bytes=1)
MODEL = ComputeModel(flop_per_s=4e15, efficiency=0.75, fill_ns=50.0, memory_bytes_per_s=8e12, l2_bytes=1e12)


def grid(rows: int = 40, block_m: int = 192, partial: int = 0) -> MoeGrid:
    tokens = rows * block_m - partial
    return MoeGrid((tokens, tokens), block_m=block_m, l1_tiles=32, l2_tiles=32, sms=148)


def test_a_full_tile_takes_its_work_at_the_rate_of_its_sm() -> None:
    tiles = grid()
    order = megamoe_order(tiles, ExpertWave(1))
    mainloop_ns = moe_mainloop_ns(MODEL, SHAPE, tiles, order)
    per_sm = 4e15 * 0.75 / 148
    settled = order.row % 40 > 20
    linear1 = mainloop_ns[settled & (order.layer == LINEAR1)]
    linear2 = mainloop_ns[settled & (order.layer == LINEAR2)]
    assert linear1 == pytest.approx(50 + 2 * 192 * 128 * 4096 / per_sm * 1e9)
    assert linear2 == pytest.approx(50 + 2 * 192 * 128 * 2048 / per_sm * 1e9)


def test_a_partial_row_is_padded_to_the_granularity() -> None:
    tiles = grid(partial=150)  # 42 tokens, padded to 48
    order = megamoe_order(tiles, ExpertWave(1))
    mainloop_ns = moe_mainloop_ns(MODEL, SHAPE, tiles, order)
    last = (order.row == 39) & (order.layer == LINEAR1)
    expected = 50 + 2 * 48 * 128 * 4096 / (4e15 * 0.75 / 148) * 1e9
    assert mainloop_ns[last] == pytest.approx(expected)


def test_new_weights_come_from_memory() -> None:
    """One row an expert: no tile is used twice, so a step cannot beat its weights' way from memory."""
    tiles = MoeGrid((192,) * 64, block_m=192, l1_tiles=32, l2_tiles=32, sms=148)
    slow = replace(MODEL, memory_bytes_per_s=1e12)
    order = megamoe_order(tiles, ExpertWave(64))
    mainloop_ns = moe_mainloop_ns(slow, SHAPE, tiles, order)
    first_step = order.first[:-1]
    weights = 148 * 128 * 4096
    assert mainloop_ns[first_step] == pytest.approx(50 + weights / 1e12 * 1e9)


def total_ns(l2_bytes: float, lead_rows: int) -> float:
    tiles = MoeGrid((192 * 12,) * 16, block_m=192, l1_tiles=32, l2_tiles=32, sms=148)
    model = replace(MODEL, l2_bytes=l2_bytes, memory_bytes_per_s=2e12)
    order = megamoe_order(tiles, Interleaved(lead_rows))
    return float(moe_mainloop_ns(model, SHAPE, tiles, order).sum())


def test_a_working_set_beyond_l2_costs_and_grows_with_the_lead() -> None:
    """Linear-1 holds 16.8 MB, Linear-2 8.4 MB of weights an expert; a row in flight 0.4 MB."""
    fits = [total_ns(1e9, lead) for lead in (5, 40)]
    tight = [total_ns(30e6, lead) for lead in (5, 40)]
    assert tight[0] > fits[0]
    assert tight[1] > fits[1]
    assert tight[1] / fits[1] > tight[0] / fits[0]


def test_the_model_of_a_platform() -> None:
    model = compute_model(load_platform("paper-nvlink5"), "fp8")
    assert model.flop_per_s == 4.5e15
    assert model.l2_bytes == 132_120_576
    with pytest.raises(UsageError, match=r"no compute\.tensor rate for 'fp4'"):
        compute_model(load_platform("paper-nvlink5"), "fp4")


def test_a_platform_without_a_compute_section_is_refused() -> None:
    bare = load_platform("paper-nvlink5").model_copy(update={"compute": None})
    with pytest.raises(UsageError, match=r"no compute\.tensor rate"):
        compute_model(bare, "bf16")


@pytest.mark.parametrize(
    "wrong", [{"flop_per_s": 0.0}, {"efficiency": 1.5}, {"fill_ns": -1.0}, {"l2_bytes": np.nan}]
)
def test_impossible_figures_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="compute model"):
        replace(MODEL, **wrong)
