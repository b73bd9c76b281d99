"""What a lookup says of its answer: exact, nearest, stale or the default, and why."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest

import xstage_tune
from tests.export.cases import FLASH, WAN, changed, tuned, write
from tests.export.conftest import SetGpu
from xstage_tune.base.errors import UsageError
from xstage_tune.base.json_output import json_sha256, to_json
from xstage_tune.cuda.attention_variants import SHIPPED
from xstage_tune.export.bundle import Bundle
from xstage_tune.export.default_terms import default_terms
from xstage_tune.export.record import TunedConfig
from xstage_tune.export.token_distance import MAX_TOKEN_RATIO
from xstage_tune.families.binding import bind, default_config
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule
from xstage_tune.families.workload import Workload
from xstage_tune.families.workload_files import list_workloads, load_workload
from xstage_tune.platforms.gpus import compare
from xstage_tune.platforms.identity import GpuIdentity
from xstage_tune.platforms.loader import list_platforms, load_platform

PEER = load_platform("h200-peer")
PAPER = load_platform("paper-nvlink5")
H200 = PEER.gpu.identity
#: 114 SMs, PCIe.
H100_PCIE = GpuIdentity(
    name="NVIDIA H100 PCIe", form_factor="PCIe", sm_count=114, memory_bytes=85_520_809_984
)
FLUX = "fa-a2a/flux.1-1024px"
INTERLEAVED = {"kind": "interleaved", "lead_rows": 9}
EVEN = [1536] * 32


def bundle_of(folder: Path, *exports: TunedConfig) -> Bundle:
    for number, export in enumerate(exports):
        write(folder, str(number), export)
    return xstage_tune.load_bundle(folder)


def flash(tokens: int) -> Workload:
    return load_workload(FLASH, [f"tokens_per_rank={tokens}"])


def interleaved(tokens: int = 1000, **objective: Any) -> TunedConfig:
    """Of an H200, and not the default."""
    return tuned(FLASH, f"tokens_per_rank={tokens}", platform=PEER, schedule=INTERLEAVED, **objective)


# --- the distance in tokens


@pytest.mark.parametrize("asked", [8192, 1])
def test_for_tokens_out_of_reach_the_default_of_those_tokens_is_returned(tmp_path: Path, asked: int) -> None:
    found = bundle_of(tmp_path, interleaved(64)).lookup(flash(asked), gpu=H200)
    assert (found.match, found.differs) == ("default", ("tokens_per_rank",))
    assert found.config == default_config(flash(asked), PEER)
    assert any("64" in reason and str(asked) in reason for reason in found.reasons)
    assert found.source == interleaved(64)


def test_attention_has_a_limit_too(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, tuned(WAN, "tokens=1024", platform=PEER))
    asked = load_workload(WAN, ["tokens=65536"])
    found = bundle.lookup(asked, gpu=H200)
    assert (found.match, found.config) == ("default", default_config(asked, PEER))


@pytest.mark.parametrize("times", [MAX_TOKEN_RATIO, 1 / MAX_TOKEN_RATIO])
def test_up_to_the_limit_the_nearest_is_returned(tmp_path: Path, times: float) -> None:
    bundle = bundle_of(tmp_path, interleaved(1000))
    within, beyond = (1000 * times, 1000 * times * (1.01 if times > 1 else 0.99))
    found = bundle.lookup(flash(round(within)), gpu=H200)
    assert (found.match, found.config) == ("nearest", interleaved().config)
    assert found.reasons
    assert bundle.lookup(flash(round(beyond)), gpu=H200).match == "default"


def test_the_caller_sets_the_limit(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, interleaved(1000))
    assert bundle.lookup(flash(8000), gpu=H200, max_token_ratio=8).match == "nearest"
    assert bundle.lookup(flash(8001), gpu=H200, max_token_ratio=8).match == "default"
    assert bundle.lookup(flash(1), gpu=H200, max_token_ratio=math.inf).match == "nearest"
    assert bundle.lookup(flash(1001), gpu=H200, max_token_ratio=1).match == "default"
    assert bundle.lookup(flash(1000), gpu=H200, max_token_ratio=1).match == "exact"


@pytest.mark.parametrize("limit", [0.5, -1.0, math.nan])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, limit: float) -> None:
    with pytest.raises(UsageError, match="max_token_ratio"):
        bundle_of(tmp_path, interleaved()).lookup(flash(1000), max_token_ratio=limit)


def test_a_config_that_cannot_run_for_the_asked_tokens_is_not_returned(tmp_path: Path) -> None:
    """150 KV rows are two tiles of 128, which two CTAs share; 128 are one."""
    plain = tuned(WAN, "tokens=150", platform=PEER)
    split = {"kv_splits": 2, "block_n": 128, "output_staging": "dedicated-x1"}
    bundle = bundle_of(tmp_path, changed(plain, config=split))
    asked = load_workload(WAN, ["tokens=128"])
    found = bundle.lookup(asked, gpu=H200, max_token_ratio=2)
    assert (found.match, found.config) == ("default", default_config(asked, PEER))
    assert any("cannot run" in reason for reason in found.reasons)
    fits = bundle.lookup(load_workload(WAN, ["tokens=140"]), gpu=H200, max_token_ratio=2)
    assert not any("cannot run" in reason for reason in fits.reasons)


# --- the GPU


def test_the_same_gpu_is_exact_and_nothing_is_left_unchecked(tmp_path: Path) -> None:
    found = bundle_of(tmp_path, interleaved()).lookup(flash(1000), gpu=H200)
    assert (found.match, found.reasons, found.unchecked) == ("exact", (), ())


def test_on_another_gpu_the_default_for_its_sms_is_returned(tmp_path: Path) -> None:
    export = tuned(FLASH, "tokens_per_rank=64", platform=PEER, schedule=INTERLEAVED)
    found = bundle_of(tmp_path, export).lookup(flash(64), gpu=H100_PCIE)
    smaller = PEER.model_copy(update={"gpu": PEER.gpu.model_copy(update={"sm_count": 60})})
    of_60 = bundle_of(tmp_path, export).lookup(flash(64), gpu=H100_PCIE.model_copy(update={"sm_count": 60}))
    assert (found.match, found.differs) == ("default", ())
    assert any("NVIDIA H200" in reason and "NVIDIA H100 PCIe" in reason for reason in found.reasons)
    assert default_config(flash(64), smaller) != default_config(flash(64), PEER)
    assert of_60.config == default_config(flash(64), smaller)


def test_a_gpu_may_be_named(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, interleaved())
    assert bundle.lookup(flash(1000), gpu="NVIDIA H200").match == "exact"
    assert bundle.lookup(flash(1000), gpu="NVIDIA H20").match == "default"


def test_the_gpu_of_the_bundle_itself_may_be_given(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, interleaved())
    assert bundle.gpu == H200
    assert bundle.lookup(flash(1000), gpu=bundle.gpu).match == "exact"


def test_the_machine_is_asked_once_for_its_gpu(tmp_path: Path, set_gpu: SetGpu) -> None:
    bundle = bundle_of(tmp_path, interleaved())
    asked = set_gpu(H100_PCIE)
    assert [bundle.lookup(flash(1000)).match for _ in range(3)] == ["default"] * 3
    assert asked() == 1
    set_gpu(H200)
    assert bundle.lookup(flash(1000)).match == "exact"


def test_without_a_gpu_it_is_said_that_none_was_compared(tmp_path: Path, set_gpu: SetGpu) -> None:
    set_gpu(None)
    found = bundle_of(tmp_path, interleaved()).lookup(flash(1000))
    assert (found.match, found.reasons) == ("exact", ())
    assert any(text.startswith("GPU") for text in found.unchecked)


def test_what_an_old_export_does_not_know_of_its_gpu_is_not_compared_and_said(tmp_path: Path) -> None:
    old = changed(interleaved(), platform={"gpu_identity": None})
    found = bundle_of(tmp_path, old).lookup(flash(1000), gpu=H200)
    assert found.match == "exact"
    assert any("sm_count" in text for text in found.unchecked)
    assert xstage_tune.lookup(tmp_path, flash(1000), gpu="NVIDIA H20").match == "default"


def test_an_old_and_a_new_export_of_one_platform_go_together(tmp_path: Path) -> None:
    old = changed(interleaved(64), platform={"gpu_identity": None})
    bundle = bundle_of(tmp_path, old, interleaved())
    assert len(bundle.exports) == 2
    assert bundle.gpu == H200


# --- tool and kernels


def test_of_another_version_of_the_tool_it_is_stale(tmp_path: Path) -> None:
    export = changed(interleaved(), provenance={"tool_version": "0.0.7"})
    found = bundle_of(tmp_path, export).lookup(flash(1000), gpu=H200)
    assert (found.match, found.config, found.differs) == ("stale", export.config, ())
    assert any("0.0.7" in reason and xstage_tune.__version__ in reason for reason in found.reasons)


@pytest.mark.parametrize(
    ("export", "asked"),
    [
        (tuned(WAN, platform=PEER), load_workload(WAN)),
        (interleaved(basis="emulated", device="emulation on NVIDIA H200, kernels 0"), flash(1000)),
    ],
    ids=["attention", "emulated"],
)
def test_for_other_kernels_it_is_stale(tmp_path: Path, export: TunedConfig, asked: Workload) -> None:
    assert bundle_of(tmp_path, export).lookup(asked, gpu=H200).match == "exact"
    other = changed(export, provenance={"kernel_sha256": "12" * 32})
    found = bundle_of(tmp_path, other).lookup(asked, gpu=H200)
    assert (found.match, found.config) == ("stale", export.config)
    assert any("121212" in reason for reason in found.reasons)


def test_an_export_that_does_not_say_its_kernels_or_tool_is_not_compared_and_said(tmp_path: Path) -> None:
    old = changed(tuned(WAN, platform=PEER), provenance={"kernel_sha256": "", "tool_version": ""})
    found = bundle_of(tmp_path, old).lookup(load_workload(WAN), gpu=H200)
    assert (found.match, len(found.unchecked)) == ("exact", 2)


def test_stale_and_nearest_is_stale_and_says_both(tmp_path: Path) -> None:
    export = changed(interleaved(), provenance={"tool_version": "0.0.7"})
    found = bundle_of(tmp_path, export).lookup(flash(1001), gpu=H200)
    assert (found.match, found.differs) == ("stale", ("tokens_per_rank",))
    assert len(found.reasons) == 2


def test_stale_and_out_of_reach_is_the_default(tmp_path: Path) -> None:
    export = changed(interleaved(), provenance={"tool_version": "0.0.7"})
    found = bundle_of(tmp_path, export).lookup(flash(8), gpu=H200)
    assert found.match == "default"
    assert any("0.0.7" in reason for reason in found.reasons)


def test_a_stale_config_that_the_installed_rules_refuse_is_not_returned(tmp_path: Path) -> None:
    """A tile that was built once and is no more."""
    export = changed(tuned(WAN, platform=PEER), config={"block_n": 72}, provenance={"tool_version": "0.0.7"})
    found = bundle_of(tmp_path, export).lookup(load_workload(WAN), gpu=H200)
    assert (found.match, found.config) == ("default", default_config(load_workload(WAN), PEER))


def flux(tokens: int) -> Workload:
    """3 heads of a rank: up to 8,448 tokens are one round of tiles of 192 rows, and two of 128."""
    return load_workload(FLUX, [f"tokens={tokens}"])


def test_a_config_that_is_slower_than_the_default_for_the_asked_tokens_is_not_returned(
    tmp_path: Path,
) -> None:
    bundle = bundle_of(tmp_path, tuned(FLUX, "tokens=9000", platform=PEER))  # 128 rows
    near = bundle.lookup(flux(9200), gpu=H200)
    assert (near.match, near.config) == ("nearest", default_config(flux(9000), PEER))
    found = bundle.lookup(flux(8200), gpu=H200)
    assert (found.match, found.config) == ("default", default_config(flux(8200), PEER))
    assert any("longer than the default" in reason for reason in found.reasons)


def test_a_config_for_the_very_tokens_is_returned_whatever_a_closed_form_expects(tmp_path: Path) -> None:
    slow = {"block_m": 128, "block_n": 128, "output_staging": "alias-v"}
    bundle = bundle_of(tmp_path, changed(tuned(FLUX, "tokens=8200", platform=PEER), config=slow))
    assert bundle.lookup(flux(8200), gpu=H200).match == "exact"
    assert bundle.lookup(flux(8201), gpu=H200).match == "default"


def test_an_earlier_export_which_does_not_tell_what_is_slower_serves_as_it_did(tmp_path: Path) -> None:
    export = tuned(FLUX, "tokens=9000", platform=PEER)
    terms = export.default_terms
    assert terms is not None
    assert terms.compute is not None
    few = {
        "capacity_law": (),
        "capacity": (),
        "compute": terms.compute.model_copy(update={"attention": terms.compute.attention[:1]}),
    }
    bundle = bundle_of(tmp_path, changed(export, default_terms=few))
    assert bundle.lookup(flux(8200), gpu=H200).match == "nearest"


# --- the default without the platform's profile


@pytest.mark.parametrize("platform", list_platforms())
def test_what_an_export_carries_gives_the_platforms_own_default(platform: str) -> None:
    profile = load_platform(platform)
    terms = default_terms(profile)
    compared = 0
    for name in list_workloads():
        key = "tokens_per_rank" if name.startswith("megamoe/") else "tokens"
        for tokens in (8, 1000, 20_000):
            workload = load_workload(name, [f"{key}={tokens}"])
            try:
                expected = default_config(workload, profile)
            except UsageError:
                with pytest.raises(UsageError):
                    default_config(workload, terms)
            else:
                assert default_config(workload, terms) == expected
                compared += 1
    assert compared > 50


@pytest.mark.parametrize("platform", [one for one in list_platforms() if one.startswith("h200")])
@pytest.mark.parametrize("tokens", [1500, 8200, 50_000])
def test_what_an_export_carries_tells_what_is_slower_as_the_platform_does(platform: str, tokens: int) -> None:
    profile, asked = load_platform(platform), flux(tokens)
    whole, short = bind(asked, profile), bind(asked, default_terms(profile))
    slower = {config: whole.outgrown(config) is not None for config, head_dim in SHIPPED if head_dim == 128}
    assert {config: short.outgrown(config) is not None for config in slower} == slower
    assert len(set(slower.values())) == 2


def without_terms(export: TunedConfig) -> TunedConfig:
    return export.model_copy(update={"default_terms": None})


def test_an_old_export_takes_the_default_of_the_installed_platform(tmp_path: Path) -> None:
    found = bundle_of(tmp_path, without_terms(interleaved(8))).lookup(flash(8192), gpu=H200)
    assert (found.match, found.config) == ("default", default_config(flash(8192), PEER))


def test_where_nothing_gives_the_default_it_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    elsewhere = without_terms(changed(interleaved(), platform={"name": "elsewhere"}))
    bundle = bundle_of(tmp_path, elsewhere)
    assert bundle.lookup(flash(1000), gpu=H200).match == "exact"
    assert bundle.lookup(flash(8), gpu=H200, max_token_ratio=math.inf).match == "nearest"
    with pytest.raises(UsageError, match="elsewhere") as caught:
        bundle.lookup(flash(8), gpu=H200)
    assert "xstage-tune export" in caught.value.hint


def test_a_platform_of_that_name_but_another_gpu_does_not_stand_in(tmp_path: Path) -> None:
    other = without_terms(changed(interleaved(), platform={"name": "paper-nvlink5"}))
    with pytest.raises(UsageError, match="paper-nvlink5"):
        bundle_of(tmp_path, other).lookup(flash(8), gpu=H200)


def test_a_bundle_can_be_sent_to_another_process(tmp_path: Path) -> None:
    sent = pickle.loads(pickle.dumps(bundle_of(tmp_path, interleaved())))
    assert sent.lookup(flash(8), gpu=H200).config == default_config(flash(8), PEER)


def test_a_default_can_be_asked_for(tmp_path: Path) -> None:
    assert bundle_of(tmp_path, interleaved()).default_config(flash(64)) == default_config(flash(64), PEER)


# --- names


OWN = load_workload(FLASH, ["name=acme/own-layer", "top_k=4"]).model_dump()


def own(tokens: int) -> TunedConfig:
    workload = type(interleaved().workload).model_validate(OWN | {"tokens_per_rank": tokens})
    renamed = interleaved(tokens).model_copy(update={"workload": workload})
    return changed(renamed, provenance={"workload_sha256": json_sha256(workload)})


def test_a_name_of_the_bundle_needs_no_profile(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, own(512))
    found = xstage_tune.lookup(bundle, "acme/own-layer", gpu=H200)
    assert (found.match, found.source) == ("exact", own(512))


def test_a_name_of_the_bundle_comes_before_an_installed_one(tmp_path: Path) -> None:
    found = xstage_tune.lookup(bundle_of(tmp_path, interleaved(8)), FLASH, gpu=H200)
    assert (found.match, found.config) == ("exact", interleaved(8).config)


@pytest.mark.parametrize(
    ("workload", "export"), [("acme/own-layer", own(60_000)), (FLASH, interleaved(60_000))]
)
def test_tokens_take_the_place_of_the_named_ones(tmp_path: Path, workload: str, export: TunedConfig) -> None:
    bundle = bundle_of(tmp_path, own(512), own(8), interleaved(512))
    assert xstage_tune.lookup(bundle, workload, tokens=512, gpu=H200).match == "exact"
    far = xstage_tune.lookup(bundle, workload, tokens=60_000, gpu=H200)
    assert (far.match, far.config) == ("default", default_config(export.workload, PEER))
    with pytest.raises(UsageError, match="tokens_per_rank"):
        xstage_tune.lookup(bundle, workload, tokens=0, gpu=H200)


def test_a_name_that_is_several_exports_asks_which(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, own(512), own(8))
    with pytest.raises(UsageError, match="for 512, 8 tokens_per_rank") as caught:
        xstage_tune.lookup(bundle, "acme/own-layer", gpu=H200)
    assert "tokens=" in caught.value.hint


def test_a_name_that_is_several_exports_is_the_installed_profile_if_there_is_one(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, interleaved(512), interleaved(8192))
    found = xstage_tune.lookup(bundle, FLASH, gpu=H200)
    assert (found.match, found.source) == ("exact", interleaved(8192))


def test_a_path_of_a_profile_serves_still(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, tuned(FLASH, platform=PEER))
    assert xstage_tune.lookup(bundle, str(list_workloads()[FLASH]), gpu=H200).match == "exact"


# --- the schedule


def test_a_schedule_says_how_its_export_matches(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, interleaved(8192))
    exact = xstage_tune.choose_schedule(bundle, EVEN, gpu=H200)
    assert (exact.match, exact.reasons, exact.source) == ("exact", (), interleaved(8192))
    near = xstage_tune.choose_schedule(bundle, [1500] * 32, gpu=H200)
    assert (near.match, near.schedule) == ("nearest", exact.schedule)
    given = xstage_tune.choose_schedule(bundle, [12] * 32, FLASH, gpu=H200)
    assert given.match == "exact"


def test_out_of_reach_the_schedule_is_the_defaults_own(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, interleaved(8192))
    choice = xstage_tune.choose_schedule(bundle, [12] * 32, gpu=H200)
    default = default_config(flash(64), PEER)
    assert isinstance(default, MegaMoeConfig)
    assert (choice.match, choice.schedule, choice.found.config) == ("default", default.schedule, default)
    assert (choice.stall_saved_ns, choice.locality_cost_ns) == (None, None)
    free = xstage_tune.choose_schedule(bundle, [12] * 32, gpu=H200, max_token_ratio=math.inf)
    assert (free.match, type(free.schedule)) == ("nearest", Schedule)
    assert free.stall_saved_ns is not None


def test_a_schedule_of_a_stale_export_or_for_another_gpu_says_so(tmp_path: Path) -> None:
    stale = changed(interleaved(8192), provenance={"tool_version": "0.0.7"})
    bundle = bundle_of(tmp_path, stale)
    assert xstage_tune.choose_schedule(bundle, EVEN, gpu=H200).match == "stale"
    other = xstage_tune.choose_schedule(bundle, EVEN, gpu=H100_PCIE)
    assert other.match == "default"
    assert any("H100" in reason for reason in other.reasons)


# --- a search that had not ended


def test_of_a_search_that_had_not_ended_it_is_unfinished(tmp_path: Path) -> None:
    export = changed(interleaved(), objective={"unfinished": "it is interrupted"})
    found = bundle_of(tmp_path, export).lookup(flash(1000), gpu=H200)
    assert (found.match, found.config) == ("unfinished", export.config)
    assert any("it is interrupted" in reason for reason in found.reasons)


def test_unfinished_and_stale_it_is_stale_and_says_both(tmp_path: Path) -> None:
    export = changed(
        interleaved(), objective={"unfinished": "it is interrupted"}, provenance={"tool_version": "0.0.7"}
    )
    found = bundle_of(tmp_path, export).lookup(flash(1000), gpu=H200)
    assert found.match == "stale"
    assert len(found.reasons) == 2


# --- what a serving process may hand in, or find in the folder


@pytest.mark.parametrize("asked", [{"workload": None}, {"workload": flash(1000), "gpu": 5}])
def test_what_is_no_workload_or_no_gpu_is_one_of_the_tool_s_errors(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    bundle = bundle_of(tmp_path, interleaved())
    with pytest.raises(xstage_tune.UsageError):
        xstage_tune.lookup(bundle, **asked)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"workload": {"tokens_per_rank": 900}}, "workload_sha256"),
        ({"platform": {"gpu": "NVIDIA H20"}}, "NVIDIA H20"),
        ({"default_terms": {"path": "host"}}, "default_terms has host"),
        ({"objective": {"ns": 1.0}}, "below objective.bound_ns"),
        ({"workload": {"tokens_per_rank": 10**30}}, "64 bits"),
        ({"objective": {"ns": 10**400}}, "objective.ns"),
        ({"objective": {"ties": 10**30}}, "objective.ties"),
        ({"config": {"warp_split": 2}}, "config.warp_split"),
        ({"config": {"warp_split": [[[]]]}}, "config.warp_split"),
    ],
)
def test_an_export_that_is_not_to_be_believed_is_left_out_and_named(
    tmp_path: Path, keys: dict[str, dict[str, Any]], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    edited = interleaved(1024).keys()
    for section, values in keys.items():
        edited[section] |= values
    (tmp_path / "edited.json").write_text(json.dumps(edited))
    with pytest.raises(UsageError, match=r"edited\.json") as caught:
        xstage_tune.load_bundle(tmp_path)
    assert told in str(caught.value)
    bundle = bundle_of(tmp_path, interleaved(512))
    (left_out,) = bundle.left_out
    assert "edited.json" in left_out
    assert told in left_out
    assert told in caplog.text
    found = xstage_tune.lookup(bundle, flash(512), gpu=H200)
    assert found.match == "exact"
    assert any(told in one for one in found.unchecked)
    with pytest.raises(UsageError, match="no export for the layer") as caught:
        xstage_tune.lookup(bundle, WAN)
    assert any(told in one for one in caught.value.others)


def test_a_config_of_another_kind_than_its_workload_is_left_out(tmp_path: Path) -> None:
    attention = tuned(WAN, platform=PEER)
    mixed = interleaved().model_copy(update={"config": attention.config})
    with pytest.raises(UsageError, match="for a workload of kind"):
        bundle_of(tmp_path, mixed)


def test_a_config_that_was_edited_into_one_that_cannot_run_is_not_given(tmp_path: Path) -> None:
    export = interleaved()
    too_large = export.config.model_copy(update={"pipeline_stages": 64})
    bundle = bundle_of(tmp_path, export.model_copy(update={"config": too_large}))
    found = xstage_tune.lookup(bundle, export.workload, gpu=H200)
    assert (found.match, found.config) == ("default", default_config(export.workload, PEER))
    assert any("cannot run" in reason for reason in found.reasons)


def test_of_another_version_an_edited_workload_is_stale_and_said(tmp_path: Path) -> None:
    """Workloads gain keys, so that the hash alone proves nothing."""
    export = changed(interleaved(512), provenance={"tool_version": "0.0.1", "workload_sha256": "ab" * 32})
    found = xstage_tune.lookup(bundle_of(tmp_path, export), flash(512), gpu=H200)
    assert found.match == "stale"
    assert any("its hash" in reason for reason in found.reasons)


def test_a_platform_that_was_forced_on_a_gpu_is_said_and_serves_that_gpu_alone(tmp_path: Path) -> None:
    small = H200.model_copy(update={"name": "NVIDIA H20", "memory_bytes": 96 * 2**30})
    differences = compare(H200, small, "peer").words()
    forced = changed(interleaved(), platform={"other_gpu": differences})
    bundle = bundle_of(tmp_path, forced)
    there = xstage_tune.lookup(bundle, flash(1000), gpu=small)
    assert (there.match, there.config) == ("forced", forced.config)
    assert any(differences in reason for reason in there.reasons)
    assert xstage_tune.lookup(bundle, flash(1000)).match == "forced"  # no GPU is known
    for other in (H200, H100_PCIE):
        assert xstage_tune.lookup(bundle, flash(1000), gpu=other).match == "default"


@pytest.mark.parametrize("depth", [90, 400, 900, 100_000])
def test_a_file_that_nests_deeply_is_one_of_the_tool_s_errors(tmp_path: Path, depth: int) -> None:
    text = to_json(interleaved().keys()).rstrip().removesuffix("}")
    (tmp_path / "deep.json").write_text(f'{text}, "more": {"[" * depth}{"]" * depth}}}')
    with pytest.raises(xstage_tune.UsageError, match=r"deep\.json"):
        xstage_tune.load_bundle(tmp_path)


def test_files_that_nothing_can_read_name_themselves(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(xstage_tune.UsageError, match=r"deep\.json"):
        xstage_tune.load_bundle(tmp_path)
