"""The hash in an export: damage to any of its keys is seen, and no other config is given for it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import tomli_w

import xstage_tune
from tests.export.cases import FLASH, WAN, tuned, write
from xstage_tune.base.errors import UsageError
from xstage_tune.export.bundle import load_bundle
from xstage_tune.export.record import sealed


@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_a_changed_digit_of_the_config_is_not_believed(tmp_path: Path, suffix: str) -> None:
    keys = sealed(tuned(FLASH).keys())
    text = json.dumps(keys) if suffix == ".json" else tomli_w.dumps(keys)
    file = tmp_path / f"flash{suffix}"
    file.write_text(text)
    assert xstage_tune.lookup(file, FLASH).match == "exact"
    file.write_text(
        text.replace('"staging_depth": 2', '"staging_depth": 3').replace("depth = 2", "depth = 3")
    )
    assert file.read_text() != text
    with pytest.raises(UsageError, match="damaged or edited") as refusal:
        load_bundle(file)
    assert "remove sha256" in refusal.value.hint


def test_the_rest_of_a_bundle_serves(tmp_path: Path) -> None:
    keys = sealed(tuned(FLASH).keys())
    keys["objective"]["ties"] += 1
    (tmp_path / "flash.json").write_text(json.dumps(keys))
    write(tmp_path, "wan", tuned(WAN))
    bundle = load_bundle(tmp_path)
    assert [export.workload.name for export in bundle.exports] == [WAN]
    assert "damaged or edited" in bundle.left_out[0]


def test_what_is_edited_on_purpose_and_earlier_exports_have_no_hash(tmp_path: Path) -> None:
    keys = tuned(FLASH).keys()
    keys["config"]["staging_depth"] = 3
    (tmp_path / "flash.toml").write_text(tomli_w.dumps(keys))
    assert "sha256" not in tomllib.loads((tmp_path / "flash.toml").read_text())
    assert load_bundle(tmp_path).exports[0].config.model_dump()["staging_depth"] == 3
