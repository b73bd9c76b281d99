"""Which platform a command rests on where none is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from xstage_tune.base.errors import UsageError
from xstage_tune.platforms.choice import chosen_platform
from xstage_tune.platforms.identity import GpuIdentity, GpuLink
from xstage_tune.platforms.loader import load_platform, save_platform
from xstage_tune.platforms.template import platform_template

H200 = GpuIdentity(
    name="NVIDIA H200",
    form_factor="SXM",
    sm_count=132,
    memory_bytes=143_771 << 20,
    nvlink=GpuLink(generation=4, count=18),
    pcie=GpuLink(generation=5, count=16),
    mig=False,
)
H20 = H200.model_copy(update={"name": "NVIDIA H20", "sm_count": 78, "memory_bytes": 97_871 << 20})


def own(folder: Path, name: str, of: str = "h200-host", **provenance_keys: Any) -> None:
    """Put a profile among the user's own."""
    profile = load_platform(of)
    provenance = profile.provenance.model_copy(update={"replayed_from": None} | provenance_keys)
    changed = profile.model_copy(update={"name": name, "provenance": provenance})
    save_platform(changed, folder / f"{name}.toml")


def refusal(**where: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        chosen_platform(None, **where)
    return caught.value


def test_the_one_that_is_named_whatever_else_there_is(own_platforms: Path) -> None:
    own(own_platforms, "mine")
    chosen = chosen_platform("paper-nvlink5", present=H20)
    assert (chosen.profile.name, chosen.why) == ("paper-nvlink5", "")


def test_the_only_one_of_the_user_s_and_why(own_platforms: Path) -> None:
    own(own_platforms, "mine")
    chosen = chosen_platform(None)
    assert chosen.profile.name == "mine"
    assert "platform mine: your own" in chosen.why


def test_a_shipped_one_is_never_taken_unnamed() -> None:
    error = refusal()
    assert "you have calibrated none" in error.message
    for name in ("h200-host", "h200-peer", "paper-nvlink5"):
        assert name in error.hint


def test_of_several_one_must_be_named(own_platforms: Path) -> None:
    own(own_platforms, "mine")
    own(own_platforms, "other")
    error = refusal()
    assert "mine (NVIDIA H200, host), other (NVIDIA H200, host)" in error.message
    assert "--platform" in error.hint


def test_of_several_calibrations_of_one_gpu_and_path_the_newest_and_it_is_said(own_platforms: Path) -> None:
    for name, hour in {"second": 9, "third": 11, "first": 8}.items():
        own(own_platforms, name, created_at=f"2026-12-01T{hour:02}:00:00.000000Z", run_id=f"cal-{hour}")
    own(own_platforms, "link", "h200-peer", created_at="2026-12-01T12:00:00Z", run_id="cal-12")
    for where in ({"path": "host"}, {"path": "host", "present": H200}, {"preferred": "host"}):
        chosen = chosen_platform(None, **where)
        assert chosen.profile.name == "third"
        assert "the newest of your 3 calibrations of NVIDIA H200" in chosen.why
        assert "first, second" in chosen.why
    assert "4 of your own fit" in refusal().message  # of two paths


@pytest.mark.parametrize(
    "second",
    [
        {"created_at": "2026-12-01T08:00:00Z", "run_id": "cal-8"},  # a copy
        {"created_at": "2026-12-02", "run_id": ""},  # written by hand
        {"created_at": "yesterday", "run_id": "cal-9"},
    ],
)
def test_what_is_no_later_calibration_is_not_taken_for_one(
    own_platforms: Path, second: dict[str, str]
) -> None:
    own(own_platforms, "mine", created_at="2026-12-01T08:00:00Z", run_id="cal-8")
    own(own_platforms, "other", **second)
    assert "which platform? 2 of your own fit" in refusal().message


def test_of_several_the_one_of_the_path(own_platforms: Path) -> None:
    own(own_platforms, "mine")
    own(own_platforms, "linked", "h200-peer")
    assert chosen_platform(None, path="peer").profile.name == "linked"
    assert chosen_platform(None, path="host").profile.name == "mine"
    assert chosen_platform(None, present=H200, preferred="peer").profile.name == "linked"
    assert "2 of your own fit" in refusal(present=H200).message


def test_a_path_that_none_is_of(own_platforms: Path) -> None:
    own(own_platforms, "mine")
    error = refusal(path="peer")
    assert "none of your own fits on path 'peer': mine (host)" in error.message
    assert "xstage-tune calibrate --path peer" in error.hint


def test_of_several_the_one_of_the_gpu_present(own_platforms: Path) -> None:
    own(own_platforms, "mine")
    other = load_platform("h200-host")
    gpu = other.gpu.model_copy(update={"name": "NVIDIA H20", "sm_count": 132})
    save_platform(other.model_copy(update={"name": "h20", "gpu": gpu}), own_platforms / "h20.toml")
    chosen = chosen_platform(None, present=H200)
    assert chosen.profile.name == "mine"
    assert "calibrated on this GPU" in chosen.why


def test_one_of_another_gpu_is_not_taken_for_the_one_present(own_platforms: Path) -> None:
    own(own_platforms, "mine")
    error = refusal(present=H20)
    assert "none of your own is of this GPU, NVIDIA H20" in error.message
    assert "mine: name NVIDIA H200, not NVIDIA H20" in error.message


def test_what_was_not_compared_is_said(own_platforms: Path) -> None:
    profile = load_platform("h200-host").figures()
    save_platform(profile.model_copy(update={"name": "old"}), own_platforms / "old.toml")
    chosen = chosen_platform(None, present=H200)
    assert "not compared: form_factor, mig, memory_bytes, pcie.generation, pcie.count" in chosen.why


def test_a_replayed_one_counts_only_where_nothing_was_measured(own_platforms: Path) -> None:
    own(own_platforms, "replayed-h200-host", replayed_from="h200-host")
    chosen = chosen_platform(None)
    assert chosen.profile.name == "replayed-h200-host"
    assert "replayed from the recording h200-host, of NVIDIA H200" in chosen.why
    own(own_platforms, "mine")
    assert chosen_platform(None).profile.name == "mine"


def test_a_broken_file_of_the_user_s_is_none(own_platforms: Path) -> None:
    own(own_platforms, "mine")
    (own_platforms / "broken.toml").write_text("name = ")
    assert chosen_platform(None).profile.name == "mine"


def test_an_unchanged_template_is_never_taken_unnamed(own_platforms: Path) -> None:
    (own_platforms / "template.toml").write_text(platform_template("template"))
    assert "template" in refusal().message
    own(own_platforms, "mine", replayed_from="h200-host")
    assert chosen_platform(None).profile.name == "mine"
    assert chosen_platform("template").profile.name == "template"


@pytest.mark.parametrize("exponent", [-0.1, 2.5, 1e3])
def test_a_capacity_law_with_an_exponent_that_nothing_has_is_refused(tmp_path: Path, exponent: float) -> None:
    law = next(law for law in load_platform("h200-host").capacity_law if law.law == "power")
    path = tmp_path / "steep.toml"
    save_platform(load_platform("h200-host"), path)
    path.write_text(path.read_text().replace(f"exponent = {law.exponent}", f"exponent = {exponent}"))
    with pytest.raises(UsageError, match=r"steep\.toml: capacity_law\[\d\]\.exponent"):
        load_platform(str(path))
