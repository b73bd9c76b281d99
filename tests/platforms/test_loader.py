"""Finding, reading and writing platform profiles, and what a user is told when one is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from xstage_tune.base.assets import data_dir
from xstage_tune.base.errors import ExitCode, UsageError
from xstage_tune.platforms.loader import is_current, list_platforms, load_platform, save_platform
from xstage_tune.platforms.schema import IssuePoint, PlatformProfile

Load = Callable[[str], PlatformProfile]

SHIPPED = sorted(path.stem for path in (data_dir("profiles") / "platforms").glob("*.toml"))


@pytest.fixture
def load_text(tmp_path: Path) -> Load:
    """Load a profile from its text."""

    def load(text: str) -> PlatformProfile:
        path = tmp_path / "given.toml"
        path.write_text(text, encoding="utf-8")
        return load_platform(str(path))

    return load


def refusal(load: Load, text: str) -> str:
    with pytest.raises(UsageError) as caught:
        load(text)
    assert caught.value.exit_code == ExitCode.USAGE
    assert "\n" not in caught.value.message
    assert "given.toml" in caught.value.message
    return caught.value.message


class TestShipped:
    def test_the_paper_platform_ships(self) -> None:
        assert "paper-nvlink5" in SHIPPED

    @pytest.mark.parametrize("name", SHIPPED)
    def test_loads_under_its_own_name_with_a_source_for_every_number(self, name: str) -> None:
        profile = load_platform(name)
        assert profile.name == name
        sources = [profile.drain.source, *(p.source for p in profile.issue)]
        sources += [point.source for point in profile.capacity]
        if profile.compute is not None:
            sources += [profile.compute.source, *(rate.source for rate in profile.compute.tensor)]
            sources += [tile.source for tile in profile.compute.attention]
        assert all(sources)

    @pytest.mark.parametrize("name", SHIPPED)
    def test_round_trip_is_exact(self, name: str, tmp_path: Path) -> None:
        profile = load_platform(name)
        save_platform(profile, tmp_path / "copy.toml")
        assert load_platform(str(tmp_path / "copy.toml")) == profile

    def test_the_paper_platform_carries_the_published_numbers(self) -> None:
        profile = load_platform("paper-nvlink5")
        assert profile.gpu.sm_count == 148
        assert profile.drain.bytes_per_s == 717e9
        assert [(p.producers, p.burst_bytes, p.ns) for p in profile.issue] == [(148, 32 * 1024, 760.0)]
        assert [(p.producers, p.bytes) for p in profile.capacity] == [(148, 4.25 * 2**20)]


class TestNames:
    def test_a_path_works_where_a_name_does(self, load_text: Load, profile_toml: str) -> None:
        assert load_text(profile_toml).name == "tiny"

    def test_own_profiles_are_found_by_name(self, own_platforms: Path, profile_toml: str) -> None:
        (own_platforms / "tiny.toml").write_text(profile_toml)
        assert load_platform("tiny").gpu.name == "Test GPU"
        assert list(list_platforms()) == sorted([*SHIPPED, "tiny"])

    def test_an_own_profile_hides_the_shipped_one(self, own_platforms: Path, profile_toml: str) -> None:
        (own_platforms / "paper-nvlink5.toml").write_text(profile_toml)
        assert load_platform("paper-nvlink5").name == "tiny"

    def test_an_unknown_name_lists_the_nearest(self) -> None:
        with pytest.raises(UsageError, match="unknown platform 'paper-nvlnk5'") as caught:
            load_platform("paper-nvlnk5")
        assert "paper-nvlink5" in caught.value.hint

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"nowhere\.toml does not exist"):
            load_platform(str(tmp_path / "nowhere.toml"))

    def test_a_name_never_leaves_the_folders(self, own_platforms: Path) -> None:
        (own_platforms.parent / "outside.toml").write_text("")
        with pytest.raises(UsageError, match="unknown platform"):
            load_platform("../outside")


class TestBadContent:
    def test_more_producers_than_sms(self, load_text: Load, profile_toml: str) -> None:
        message = refusal(load_text, profile_toml.replace("sm_count = 8", "sm_count = 7"))
        assert "issue has a point of 8 producers, and gpu.sm_count is 7" in message

    def test_a_drain_rate_above_the_copy_engine_s(self, load_text: Load, profile_toml: str) -> None:
        drain = "bytes_per_s = 50e9\ncopy_engine_bytes_per_s = 40e9"
        message = refusal(load_text, profile_toml.replace("bytes_per_s = 50e9", drain))
        assert "drain.bytes_per_s = 5e+10 is above drain.copy_engine_bytes_per_s = 4e+10" in message

    def test_a_drain_rate_far_above_the_copy_engine_s_in_a_wide_interval(
        self, load_text: Load, profile_toml: str
    ) -> None:
        drain = "bytes_per_s = 50e9\nci95 = [30e9, 60e9]\ncopy_engine_bytes_per_s = 40e9"
        message = refusal(load_text, profile_toml.replace("bytes_per_s = 50e9", drain))
        assert "drain.bytes_per_s = 5e+10 is far above drain.copy_engine_bytes_per_s = 4e+10" in message

    @pytest.mark.parametrize("interval", ["[40e9, 49e9]", "[51e9, 60e9]"])
    def test_a_drain_rate_outside_its_own_interval(
        self, load_text: Load, profile_toml: str, interval: str
    ) -> None:
        drain = f"bytes_per_s = 50e9\nci95 = {interval}"
        message = refusal(load_text, profile_toml.replace("bytes_per_s = 50e9", drain))
        assert "drain.bytes_per_s = 5e+10 is outside its own drain.ci95 = [" in message

    @pytest.mark.parametrize("points", ["issue", "capacity"])
    def test_an_interval_that_begins_behind_its_end(self, load_text: Load, points: str) -> None:
        keys = load_platform("h200-host").model_dump(mode="json", exclude_none=True)
        keys[points][0]["ci95"].reverse()
        assert f"{points}[0].ci95 = [" in refusal(load_text, tomli_w.dumps(keys))

    def test_missing_key(self, load_text: Load, profile_toml: str) -> None:
        message = refusal(load_text, profile_toml.replace("sm_count = 8\n", ""))
        assert "key 'gpu.sm_count' is missing" in message

    def test_misspelt_key_names_the_nearest_before_what_it_left_missing(
        self, load_text: Load, profile_toml: str
    ) -> None:
        message = refusal(load_text, profile_toml.replace("bytes_per_s", "bytes_pers"))
        assert "unknown key 'drain.bytes_pers'; did you mean 'bytes_per_s'? (and 1 more)" in message

    def test_misspelt_key_in_a_list_entry(self, load_text: Load, profile_toml: str) -> None:
        message = refusal(load_text, profile_toml.replace("burst_bytes", "burst_byte"))
        assert "unknown key 'issue[0].burst_byte'; did you mean 'burst_bytes'?" in message

    def test_misspelt_key_in_an_optional_section(self, load_text: Load, profile_toml: str) -> None:
        text = f"{profile_toml}\n[corner]\nwidth_fractoin = 0.1\n"
        assert "did you mean 'width_fraction'?" in refusal(load_text, text)

    def test_unknown_key_like_no_other(self, load_text: Load, profile_toml: str) -> None:
        message = refusal(load_text, profile_toml.replace("[gpu]", "[gpu]\nzzz = 1"))
        assert message.endswith("unknown key 'gpu.zzz'")

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            ("-50e9", "greater than 0"),
            ("0", "greater than 0"),
            ("nan", "finite"),
            ("inf", "finite"),
            ("'50e9'", "number"),
            ("true", "number"),
        ],
    )
    def test_bad_number_says_key_value_and_reason(
        self, load_text: Load, profile_toml: str, value: str, reason: str
    ) -> None:
        message = refusal(load_text, profile_toml.replace("50e9", value))
        assert "drain.bytes_per_s = " in message
        assert reason in message

    @pytest.mark.parametrize("value", ["8.5", "'8'", "true", "-8", "0"])
    def test_bad_count(self, load_text: Load, profile_toml: str, value: str) -> None:
        assert "gpu.sm_count = " in refusal(
            load_text, profile_toml.replace("sm_count = 8", f"sm_count = {value}")
        )

    def test_unknown_flavour_lists_the_known_ones(self, load_text: Load, profile_toml: str) -> None:
        message = refusal(load_text, profile_toml.replace('"st.v4"', '"st.v8"'))
        assert "issue[0].flavour = 'st.v8'" in message
        assert "'st.v4' or 'tma'" in message

    def test_invalid_toml_gives_the_line(self, load_text: Load, profile_toml: str) -> None:
        message = refusal(load_text, profile_toml.replace('name = "tiny"', 'name = "tiny'))
        assert "invalid TOML" in message
        assert "line 2" in message

    def test_not_text(self, tmp_path: Path) -> None:
        path = tmp_path / "given.toml"
        path.write_bytes(b"name = '\xff'")
        with pytest.raises(UsageError, match="not UTF-8 text at byte 8"):
            load_platform(str(path))

    def test_no_issue_points(self, load_text: Load, profile_toml: str) -> None:
        head, _, tail = profile_toml.partition("[[issue]]")
        text = "issue = []\n" + head + tail[tail.index("[provenance]") :]
        assert "issue: " in refusal(load_text, text)

    def test_the_same_point_twice(self, load_text: Load, profile_toml: str) -> None:
        head, _, tail = profile_toml.partition("[[issue]]")
        entry, _, rest = tail.partition("[provenance]")
        text = f"{head}[[issue]]{entry}[[issue]]{entry}[provenance]{rest}"
        assert "issue has two entries for ('st.v4', 8, 2048)" in refusal(load_text, text)

    def test_the_same_tile_twice(self, load_text: Load) -> None:
        text = (data_dir("profiles") / "platforms" / "h200-host.toml").read_text()
        entries = text.split("[[compute.attention]]")
        again = "[[compute.attention]]".join([*entries[:2], *entries[1:]])
        assert "compute: attention has two entries for ('bf16', 128, 64, 128)" in refusal(load_text, again)

    def test_a_capacity_law_without_its_parameter(self, load_text: Load, profile_toml: str) -> None:
        law = "[[capacity_law]]\nflavour='st.v4'\nlaw='power'\nscale_bytes=1.0\nrms_relative_error=0.0\n"
        assert "law 'power' needs the key 'exponent'" in refusal(load_text, f"{profile_toml}\n{law}")

    def test_another_schema_version(self, load_text: Load, profile_toml: str) -> None:
        message = refusal(load_text, profile_toml.replace("schema_version = 1", "schema_version = 2"))
        assert "schema_version = 2" in message


class TestSave:
    def test_refuses_to_overwrite_without_force(self, tmp_path: Path) -> None:
        profile, path = load_platform("paper-nvlink5"), tmp_path / "mine.toml"
        path.write_text("precious")
        with pytest.raises(UsageError, match=r"mine\.toml exists") as caught:
            save_platform(profile, path)
        assert "--force" in caught.value.hint
        assert path.read_text() == "precious"
        save_platform(profile, path, force=True)
        assert load_platform(str(path)) == profile

    def test_same_profile_gives_the_same_bytes(self, tmp_path: Path) -> None:
        profile = load_platform("paper-nvlink5")
        for name in ("a.toml", "b.toml"):
            save_platform(profile, tmp_path / name)
        assert (tmp_path / "a.toml").read_bytes() == (tmp_path / "b.toml").read_bytes()

    def test_numpy_numbers_are_kept_exactly(self, tmp_path: Path, load_text: Load, profile_toml: str) -> None:
        point = IssuePoint(
            flavour="tma",
            producers=np.int64(8),
            burst_bytes=np.int32(4096),
            ns=np.float64(0.1) * 3,
            source="x",
        )
        profile = load_text(profile_toml)
        profile = profile.model_copy(update={"issue": (*profile.issue, point)})
        save_platform(profile, tmp_path / "numpy.toml")
        assert load_platform(str(tmp_path / "numpy.toml")) == profile

    def test_makes_the_folder(self, tmp_path: Path) -> None:
        save_platform(load_platform("paper-nvlink5"), tmp_path / "new" / "mine.toml")
        assert (tmp_path / "new" / "mine.toml").is_file()

    def test_a_full_disk_leaves_nothing_behind(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_space(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", no_space)
        with pytest.raises(UsageError, match=r"cannot write .*mine\.toml: No space left on device"):
            save_platform(load_platform("paper-nvlink5"), tmp_path / "out" / "mine.toml")
        assert list((tmp_path / "out").iterdir()) == []


def test_a_profile_without_split_times_has_no_key_of_them() -> None:
    """Nor had it before tiles were split, so that its hash, by which studies know it, is the same."""
    platform = load_platform("paper-nvlink5")
    assert platform.compute is not None
    assert [tile.split for tile in platform.compute.attention] == [None] * len(platform.compute.attention)
    for keys in platform.model_dump()["compute"]["attention"]:
        assert set(keys) == {
            "dtype", "block_m", "block_n", "head_dim", "kv_tile_ns", "fixed_ns", "staging_ns", "source",
        }  # fmt: skip
    shared = load_platform("h200-host")
    assert shared.compute is not None
    assert {"kv_tile_ns", "exchange_ns", "staging_ns"} == set(
        shared.model_dump()["compute"]["attention"][0]["split"]
    )


def test_a_profile_that_its_name_no_longer_finds_is_not_current() -> None:
    platform = load_platform("h200-host")
    assert is_current(platform)
    drain = platform.drain.model_copy(update={"bytes_per_s": 1e9})
    assert not is_current(platform.model_copy(update={"drain": drain}))
    assert is_current(platform.model_copy(update={"name": "of another node", "drain": drain}))


def test_what_was_recorded_can_be_shown_beside_a_broken_file_of_its_name(own_platforms: Path) -> None:
    recorded = load_platform("h200-host")
    own_platforms.mkdir(parents=True, exist_ok=True)
    (own_platforms / "h200-host.toml").write_text("name = ")
    assert not is_current(recorded)
