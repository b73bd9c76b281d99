"""Layers whose sizes no tile divides: searched, audited and emulated, with the padding in every number."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import tomli_w

from tests.configs.cases import BLACKWELL, hopper, megamoe_config, moe
from tests.conftest import RunCli
from xstage_tune.base.errors import UsageError
from xstage_tune.base.progress import NoProgress
from xstage_tune.families.architecture import architecture_of
from xstage_tune.families.binding import bind, fused_launch
from xstage_tune.families.megamoe.bound import BoundMegaMoe
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.routing import busiest_rank, local_tokens_per_expert
from xstage_tune.families.megamoe.tile_times import moe_tile_times
from xstage_tune.families.megamoe.tiling import linear_tiles, row_tiles
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.search.driver import run_search
from xstage_tune.search.journal import NoJournal
from xstage_tune.search.ranking import rank_configs
from xstage_tune.search.request import SearchRequest
from xstage_tune.search.space import build_space, default_axes
from xstage_tune.simulator.device import SimulatedDevice
from xstage_tune.simulator.fused_kernels import SimulatedKernels

PLATFORMS = [BLACKWELL, hopper()]


def odd_layer(**changes: Any) -> MoeWorkload:
    """22.5 N-tiles of 128 columns in Linear-2, 45 in Linear-1, and depths of 22.5 stages."""
    return moe(**({"hidden": 2880, "intermediate": 2880, "tokens_per_rank": 256} | changes))


def test_the_last_tiles_of_a_row_are_partial_and_a_pair_has_an_empty_one() -> None:
    paired, alone = (architecture_of(platform) for platform in PLATFORMS)
    assert row_tiles(2880, 128, paired).parts() == ((1.0, 22), (0.5, 1), (0.0, 1))
    assert row_tiles(2880, 128, alone).parts() == ((1.0, 22), (0.5, 1))
    assert row_tiles(2880, 64, paired).parts() == ((1.0, 45), (0.0, 1))
    assert row_tiles(4096, 128, paired).parts() == ((1.0, 32),)


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: platform.name)
@pytest.mark.parametrize("block_n", [64, 128, 192])
def test_every_column_is_stored_once_and_no_padding(platform: PlatformProfile, block_n: int) -> None:
    layer = odd_layer()
    config = megamoe_config(block_m=64, block_n=block_n, pipeline_stages=2)
    launch = fused_launch(layer, config, platform)
    rows = int(local_tokens_per_expert(layer, busiest_rank(layer)).sum())
    combine = rows * layer.hidden * OUTPUT_BYTES
    activations = rows * layer.intermediate * layer.activation_bytes
    remote = float(launch.streams.remote_bytes.sum())
    assert remote == pytest.approx(combine * layer.combine_remote_fraction)
    assert remote + float(launch.local_bytes.sum()) == pytest.approx(combine + activations)


def test_padding_is_computed() -> None:
    """22.5 stages of 128 take the time of 23; a row of 22.5 tiles has 23."""
    config = megamoe_config(block_m=64, block_n=128, pipeline_stages=6)
    times = moe_tile_times(config, odd_layer(), hopper())
    rows = np.array([64])
    assert times.compute_ns(rows, 2880) == times.compute_ns(rows, 2944)
    assert times.load_ns(rows, 2880) < times.load_ns(rows, 2944)  # zeros beyond the matrix are not loaded
    launch = fused_launch(odd_layer(), config, hopper())
    assert launch.streams.tiles == bind(odd_layer(), hopper()).tiles(config)
    assert launch.streams.tiles % (45 + 23) == 0
    assert launch.linear2 is not None
    computed_ns = launch.streams.mainloop_ns[launch.linear2]
    assert computed_ns.min() >= float(times.compute_ns(np.array([1]), 2944)[0])


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: platform.name)
@pytest.mark.parametrize("precision", ["bf16", "w8a8", "w4a8"])
@pytest.mark.parametrize("shape", [(2880, 2880), (1040, 544), (1408, 5632)])
def test_bounds_hold_for_partial_tiles(
    platform: PlatformProfile, precision: str, shape: tuple[int, int]
) -> None:
    hidden, intermediate = shape
    if precision == "w4a8":
        hidden, intermediate = 32 * -(-hidden // 32), 32 * -(-intermediate // 32)
    layer = odd_layer(hidden=hidden, intermediate=intermediate, precision=precision)
    few = {"pipeline_stages": (2, 4), "epilogue_warps": (8,), "lead_rows": (2, 12)}  # nothing of tiles' sizes
    found = build_space(layer, platform, default_axes(layer, platform) | few)
    partial = [config for config in found.configs if is_partial(config, layer, platform)]
    pool = partial or found.configs
    chosen = pool[:: max(1, len(pool) // 12)]
    bounds_ns = rank_configs(chosen, layer, platform, "latency").bound_ns
    kernels = SimulatedKernels(platform)
    for config, bound_ns in zip(chosen, bounds_ns, strict=True):
        assert kernels.run_kernel(layer, config, 1).latency_ns[0] >= bound_ns * (1 - 1e-9), config.label


def is_partial(config: object, layer: MoeWorkload, platform: PlatformProfile) -> bool:
    assert isinstance(config, MegaMoeConfig)
    return any(tiles.filled < 1 for tiles in linear_tiles(config, layer, architecture_of(platform)))


def test_partial_tiles_are_searched_only_where_no_value_of_the_axis_divides() -> None:
    divided = build_space(moe(), BLACKWELL)
    assert not any(is_partial(config, moe(), BLACKWELL) for config in divided.configs)
    cut = next(cut for cut in divided.infeasible if cut.limit_name == "divisibility")
    assert "is not a multiple of block_n = 192" in cut.nearest
    odd = odd_layer()
    assert {config.block_n for config in build_space(odd, BLACKWELL).configs} == {64, 128, 192, 256}


@pytest.mark.usefixtures("few_configs")
def test_a_search_needs_no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> Any:
        raise UsageError("no default fits")

    monkeypatch.setattr(BoundMegaMoe, "default", none)
    layer = odd_layer()
    found = build_space(layer, BLACKWELL)
    assert (found.default, found.no_default) == (None, "no default fits")
    request = SearchRequest(workload=layer, platform=BLACKWELL, trials=5)
    result = run_search(request, found, SimulatedDevice(BLACKWELL), NoJournal(), NoProgress())
    assert result.default is None
    assert result.baseline in result.heuristics.values()
    assert any("no default fits" in warning for warning in result.warnings)


@pytest.mark.usefixtures("few_configs")
@pytest.mark.parametrize("name", ["gpt-oss-120b", "gpt-oss-20b"])
@pytest.mark.parametrize("platform", ["paper-nvlink5", "h200-peer"])
def test_gpt_oss_is_searched_audited_and_emulated(run_cli: RunCli, name: str, platform: str) -> None:
    asked = ("-w", f"megamoe/{name}", "--set", "tokens_per_rank=512", "--format", "json")
    found = json.loads(run_cli("search", *asked, "-p", platform, "--trials", "5").stdout)
    assert found["best"]["objective_ns"] <= found["default"]["objective_ns"]
    audited = json.loads(run_cli("audit", *asked, "-p", platform).stdout)
    assert audited["verdict"] in ("piggyback", "reshape")
    emulated = run_cli("emulate", *asked, "--device", "simulator", "--platform", platform, "--repeats", "1")
    assert emulated.exit_code == 0


@pytest.mark.usefixtures("few_configs")
def test_the_answer_of_an_odd_layer_is_exported(run_cli: RunCli, tmp_path: Any) -> None:
    file = tmp_path / "layer.toml"
    file.write_text(tomli_w.dumps(odd_layer().model_dump(exclude_none=True)))
    assert run_cli("search", "-w", str(file), "-p", "h200-peer", "--trials", "4").exit_code == 0
    out = tmp_path / "tuned.json"
    assert run_cli("export", "--study", "latest", "--format", "json", "-o", str(out)).exit_code == 0
    model = json.loads(out.read_text())["schedule_model"]
    block_n = json.loads(out.read_text())["config"]["block_n"]
    assert model["l2_tiles"] == -(-2880 // block_n)
