"""Which configs there are."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.configs.cases import BLACKWELL, attention, attention_config, hopper, megamoe_config, moe
from tests.search.cases import SMALL_AXES, as_megamoe, drained, small_space
from xstage_tune.base.errors import UsageError
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.binding import bind, check_config, default_config, family_of_config
from xstage_tune.families.megamoe.config import Schedule
from xstage_tune.families.workload_files import load_workload
from xstage_tune.search.space import build_space, default_axes, params_of


def test_every_combination_is_a_config_or_cut() -> None:
    space = small_space()
    tiles = 3 * 2 * 1 * 2 * 3 * 1
    schedules = 3 + 4 + 1 + 1  # waves, leads, alternating, clamped lag
    assert space.size == tiles * schedules
    assert len(set(space.configs)) == len(space.configs)
    assert {cut.limit_name for cut in space.infeasible} == {"tensor memory"}
    # Three accumulators of 192x128 are 288 KiB of 256.
    assert sum(cut.configs for cut in space.infeasible) == 2 * schedules
    assert space.infeasible[0].used == 3 * 192 * 128 * 4 + 5120


def test_schedule_parameters_appear_only_under_their_schedule() -> None:
    kinds = Counter(as_megamoe(config).schedule.kind for config in small_space().configs)
    tiles = kinds["alternating"]
    assert kinds == {
        "wave": 3 * tiles, "interleaved": 4 * tiles, "alternating": tiles, "clamped-lag": tiles,
    }  # fmt: skip
    for config in small_space().configs:
        assert family_of_config(config).config_of(params_of(config)) == config


def test_placement_by_share_is_among_a_config_s_values() -> None:
    config = megamoe_config(Schedule(kind="interleaved", lead_rows=4, placement="share"))
    params = params_of(config)
    assert params["placement"] == "share"
    assert family_of_config(config).config_of(params) == config


def test_the_space_is_the_same_every_time() -> None:
    assert small_space() == small_space()


@pytest.mark.parametrize("name", ["megamoe/deepseek-v4-flash", "megamoe/dit-moe-g-2", "fa-a2a/cogvideox-5b"])
@pytest.mark.parametrize("platform", [BLACKWELL, hopper()], ids=lambda platform: platform.name)
def test_the_default_and_the_heuristics_are_in_the_space(name: str, platform: object) -> None:
    workload = load_workload(name)
    space = build_space(workload, platform)  # type: ignore[arg-type]
    known = [default_config(workload, platform), *bind(workload, platform).heuristics().values()]  # type: ignore[arg-type]
    assert all(config in space.index for config in known)


def test_what_is_in_the_space_fits() -> None:
    space = build_space(attention(), hopper())
    assert len(space.configs) >= 100
    assert all(check_config(config, attention(), hopper()).feasible for config in space.configs)


def test_tiles_are_split_only_where_the_kernel_is_built_for_it() -> None:
    split_axes, axes = (default_axes(attention(), platform) for platform in (hopper(), BLACKWELL))
    assert (split_axes["kv_splits"], axes["kv_splits"]) == ((1, 2), (1,))
    space = build_space(attention(), hopper())
    whole = build_space(attention(), hopper(), split_axes | {"kv_splits": (1,)})
    assert space.size == 2 * whole.size
    assert space.configs[: len(whole.configs)] == whole.configs  # of equal ones those come first
    split = [c for c in space.configs[len(whole.configs) :] if isinstance(c, AttentionConfig)]
    assert len(split) == len(space.configs) - len(whole.configs) > 50
    assert {(c.kv_splits, c.block_m, c.hands_stores_over) for c in split} == {(2, 128, True)}
    for config in space.configs:
        assert family_of_config(config).config_of(params_of(config)) == config


def test_values_of_before_tiles_were_split_are_of_a_config_that_splits_none() -> None:
    params = params_of(attention_config())
    assert params.pop("kv_splits") == 1
    assert family_of_config(attention_config()).config_of(params) == attention_config()


def test_an_infeasible_space_says_which_limit_binds() -> None:
    axes = SMALL_AXES | {"pipeline_stages": (20, 24)}
    with pytest.raises(UsageError, match="break the limit of shared memory; nearest: shared memory: "):
        build_space(drained(), BLACKWELL, axes)


def test_an_sm_too_small_for_anything_says_so() -> None:
    assert BLACKWELL.compute is not None
    tiny = BLACKWELL.compute.model_copy(update={"shared_bytes_per_cta": 4096})
    platform = BLACKWELL.model_copy(update={"compute": tiny})
    for workload in (moe(), attention()):
        with pytest.raises(UsageError, match=r"shared memory: .* B of 4,096"):
            build_space(workload, platform)
