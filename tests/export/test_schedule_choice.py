"""``xstage_tune.choose_schedule``: waves or interleaving for the routing at hand."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import xstage_tune
from tests.export.cases import FLASH, WAN, tuned, write
from xstage_tune.base.errors import UsageError
from xstage_tune.export.record import TunedConfig
from xstage_tune.export.schedule_choice import choose
from xstage_tune.families.megamoe.config import Schedule
from xstage_tune.families.megamoe.routing import busiest_rank, local_tokens_per_expert
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform
from xstage_tune.simulator.fused_kernels import SimulatedKernels

EVEN = [1536] * 32  # 8,192 tokens a rank, top-6, over 32 local experts
EXPORT = tuned(FLASH)
INTERLEAVED = tuned(FLASH, schedule={"kind": "interleaved", "lead_rows": 12})
#: A drain that keeps up with anything, and an output that is ready at once.
FREE = {"drain_bytes_per_s": 1e14, "l1_handover_ns": 1e-9, "l1_mainloop_ns": 1.0, "l1_weight_tile_bytes": 1.0}


def with_terms(export: TunedConfig, **terms: Any) -> TunedConfig:
    assert export.schedule_model is not None
    return export.model_copy(update={"schedule_model": export.schedule_model.model_copy(update=terms)})


def test_a_drain_limited_layer_is_interleaved_with_the_advised_lead() -> None:
    choice = choose(EXPORT, EVEN)
    assert choice.schedule.kind == "interleaved"
    assert choice.schedule.lead_rows == 12  # two D_knee of 4.6 rows, and half of one
    assert choice.stall_saved_ns > 0


def test_tuned_parameters_are_kept() -> None:
    deep = choose(tuned(FLASH, schedule={"kind": "interleaved", "lead_rows": 15}), EVEN)
    assert deep.schedule.lead_rows == 15
    shallow = with_terms(tuned(FLASH, schedule={"kind": "wave", "experts_per_wave": 4}), **FREE)
    assert choose(shallow, EVEN).schedule.experts_per_wave == 4


@pytest.mark.parametrize("terms", [{}, FREE], ids=["interleaved", "wave"])
def test_the_tuned_placement_is_kept_whatever_is_chosen(terms: dict[str, Any]) -> None:
    by_share = tuned(FLASH, schedule={"kind": "wave", "experts_per_wave": 4, "placement": "share"})
    assert choose(with_terms(by_share, **terms), EVEN).schedule.placement == "share"


def test_without_backpressure_or_waits_the_wave_stays() -> None:
    choice = choose(with_terms(EXPORT, **FREE), EVEN)
    assert (choice.schedule.kind, choice.stall_saved_ns) == ("wave", 0)


def test_a_tie_is_decided_by_what_the_search_found() -> None:
    assert choose(with_terms(INTERLEAVED, **FREE), EVEN).schedule.kind == "interleaved"


def test_saving_is_the_excess_of_a_run_behind_staging_and_capacity() -> None:
    """One wave of all experts, by hand: [(n - S)(V/R - T2) - Q/R]+, the interleaved tail fits into Q."""
    export = with_terms(EXPORT, experts_per_wave=32, l1_handover_ns=1e-9)
    model, block_m = export.schedule_model, export.config.block_m
    assert model is not None
    assert 1536 % block_m == 0
    tiles = ceil(32 * 1536 // block_m * model.l2_tiles / model.sms)
    drain_ns = model.sms * model.tile_bytes / model.drain_bytes_per_s * 1e9
    fill_ns = model.capacity_bytes / model.drain_bytes_per_s * 1e9
    excess_ns = drain_ns - model.l2_mainloop_ns
    assert (ceil(model.lead_rows * model.l2_tiles / model.sms) - 2) * excess_ns < fill_ns
    expected = (tiles - 2) * excess_ns - fill_ns
    assert choose(export, EVEN).stall_saved_ns == pytest.approx(expected, rel=1e-3)


def test_short_waves_wait_for_their_last_row() -> None:
    """A wave of one expert with one row waits for all of a Linear-1 tile, 32 times; interleaving once."""
    export = with_terms(EXPORT, **FREE, experts_per_wave=1, lead_rows=1)
    export = with_terms(export, l1_handover_ns=3000.0)
    model, block_m = export.schedule_model, export.config.block_m
    assert model is not None
    choice = choose(export, [block_m] * 32)
    assert choice.stall_saved_ns == pytest.approx(31 * (model.l1_mainloop_ns + 3000))
    assert choice.schedule.kind == "interleaved"


def test_a_cache_too_small_for_both_layers_leaves_the_wave() -> None:
    """The saving is small and every step reloads its weights: locality decides."""
    slow = with_terms(EXPORT, cache_bytes=1e6, memory_bytes_per_s=1e12)
    choice = choose(slow, EVEN)
    assert choice.locality_cost_ns > choice.stall_saved_ns
    assert choice.schedule.kind == "wave"


def test_no_tokens_leave_the_wave() -> None:
    choice = choose(EXPORT, [0] * 32)
    assert (choice.schedule.kind, choice.stall_saved_ns) == ("wave", 0)


@settings(deadline=None, max_examples=50)
@given(tokens=st.lists(st.integers(0, 60_000), min_size=32, max_size=32), drain=st.floats(1e10, 1e13))
def test_interleaving_is_never_chosen_against_the_costs_but_for_a_tie(
    tokens: list[int], drain: float
) -> None:
    """A tie goes to the tuned schedule, so whichever was tuned, the other needs a real gain."""
    waved = choose(with_terms(EXPORT, drain_bytes_per_s=drain), tokens)
    mixed = choose(with_terms(INTERLEAVED, drain_bytes_per_s=drain), tokens)
    gain = waved.stall_saved_ns - waved.locality_cost_ns
    assert np.isfinite(gain)
    assert mixed.stall_saved_ns - mixed.locality_cost_ns == gain
    assert waved.schedule.kind == "wave" or gain > 0
    assert mixed.schedule.kind == "interleaved" or gain < 0


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([1] * 31, "31 entries; a rank of 'megamoe/deepseek-v4-flash' has 32"),
        ([-1] + [1] * 31, r"tokens_per_expert\[0\] = -1 is negative"),
        ([1.5] * 32, "whole numbers"),
        ([float("nan")] * 32, "whole numbers"),
        ([[1] * 32], "whole numbers"),
        ([], "0 entries|whole numbers"),
    ],
)
def test_bad_tokens_are_refused(tmp_path: Path, tokens: list[Any], message: str) -> None:
    write(tmp_path, "a", EXPORT)
    with pytest.raises(UsageError, match=message):
        xstage_tune.choose_schedule(tmp_path, tokens)


def test_attention_has_no_schedule_to_choose() -> None:
    with pytest.raises(UsageError, match="no MoE layer"):
        choose(tuned(WAN), EVEN)


def test_a_bundle_of_one_layer_takes_the_export_of_the_nearest_tokens(tmp_path: Path) -> None:
    for n in (64, 1024, 8192):
        write(tmp_path, str(n), tuned(FLASH, f"tokens_per_rank={n}"))
    write(tmp_path, "attention", tuned(WAN))
    bundle = xstage_tune.load_bundle(tmp_path)
    few = xstage_tune.choose_schedule(bundle, [12] * 32).source.workload
    many = xstage_tune.choose_schedule(bundle, EVEN).source.workload
    assert (few.name, many.name) == (FLASH, FLASH)
    assert getattr(few, "tokens_per_rank", None) == 64
    assert getattr(many, "tokens_per_rank", None) == 8192


def test_a_bundle_of_several_layers_needs_the_workload(tmp_path: Path) -> None:
    write(tmp_path, "a", tuned(FLASH))
    write(tmp_path, "b", tuned("megamoe/deepseek-v3"))
    bundle = xstage_tune.load_bundle(tmp_path)
    with pytest.raises(UsageError, match="2 MoE layers"):
        xstage_tune.choose_schedule(bundle, EVEN)
    assert xstage_tune.choose_schedule(bundle, EVEN, FLASH).source.workload.name == FLASH


def test_platform_of_the_terms_is_the_papers() -> None:
    model = EXPORT.schedule_model
    assert model is not None
    assert model.drain_bytes_per_s == load_platform("paper-nvlink5").drain.bytes_per_s
    assert (model.sms, model.l1_tiles, model.l2_tiles) == (148, 32, 32)


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("name", [FLASH, "megamoe/hy3-preview", "megamoe/qwen3.5-397b-a17b"])
def test_the_choice_is_within_5_percent_of_the_better_simulated_schedule(name: str, skewed: bool) -> None:
    """A wrong choice may only be a close one."""
    keys = ["tokens_per_rank=4096", *(("routing.kind=zipf", "routing.alpha=1.0") if skewed else ())]
    layer, export = load_workload(name, keys), tuned(name, *keys)
    assert isinstance(layer, MoeWorkload)
    model = export.schedule_model
    assert model is not None
    chosen = choose(export, local_tokens_per_expert(layer, busiest_rank(layer))).schedule
    schedules = (
        Schedule(kind="wave", experts_per_wave=model.experts_per_wave),
        Schedule(kind="interleaved", lead_rows=model.lead_rows),
    )
    device = SimulatedKernels(load_platform("paper-nvlink5"))
    times = {
        schedule: device.run_kernel(
            layer, export.config.model_copy(update={"schedule": schedule}), 1
        ).median_ns("latency")
        for schedule in schedules
    }
    assert times[chosen] <= 1.05 * min(times.values())
