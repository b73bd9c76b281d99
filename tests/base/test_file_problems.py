"""Every problem of a user's file is told at once, each with the file, the key, its value and what may be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.conftest import RunCli
from tests.export.cases import tuned
from xstage_tune.base.errors import UsageError
from xstage_tune.export.bundle import load_bundle
from xstage_tune.families.config_files import load_config
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform

LAYER = load_workload("megamoe/mixtral-8x7b").model_dump(mode="json", exclude_none=True)
PLATFORM = load_platform("paper-nvlink5").model_dump(mode="json", exclude_none=True)
CONFIG = {
    "kind": "attention",
    "block_m": 128,
    "block_n": 128,
    "kv_stages": 2,
    "output_staging": "alias-v",
    "tile_order": "sequential",
    "store_flavour": "st.v4",
}


def problems(load: Callable[[Path], object], path: Path, keys: dict[str, Any]) -> list[str]:
    path.write_text(json.dumps(keys) if path.suffix == ".json" else tomli_w.dumps(keys))
    with pytest.raises(UsageError) as caught:
        load(path)
    told = [caught.value.message, *caught.value.others]
    assert all(line.startswith(f"{path}: ") and "\n" not in line for line in told)
    return told


def test_of_a_workload(tmp_path: Path) -> None:
    keys = LAYER | {"name": "My Layer", "hidden": -5, "precision": "w2", "colour": 3}
    del keys["top_k"]
    unknown, name, hidden, top_k, precision = problems(
        lambda path: load_workload(str(path)), tmp_path / "mine.toml", keys
    )
    assert "unknown key 'colour' (and 4 more)" in unknown
    assert "name = 'My Layer'" in name
    assert "lower case letters" in name
    assert "hidden = -5: should be greater than 0" in hidden
    assert "key 'top_k' is missing" in top_k
    assert "for example 2" in top_k
    assert "precision = 'w2': should be 'bf16', 'w8a8' or 'w4a8'" in precision


def test_of_keys_that_do_not_go_together(tmp_path: Path) -> None:
    keys = LAYER | {"experts": 12, "top_k": 16, "tokens_per_rank": 2**31 - 1}
    told = problems(lambda path: load_workload(str(path)), tmp_path / "mine.toml", keys)
    assert [key in line for key, line in zip(("experts", "top_k", "tokens_per_rank"), told, strict=True)]


def test_of_a_platform(tmp_path: Path) -> None:
    keys = json.loads(json.dumps(PLATFORM))
    keys["drain"]["bytes_per_s"] = 0
    keys["issue"][0]["ns"] = "long"
    drain, issue = problems(lambda path: load_platform(str(path)), tmp_path / "mine.toml", keys)
    assert "drain.bytes_per_s = 0: should be greater than 0" in drain
    assert "issue[0].ns = 'long': should be a valid number" in issue


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_of_numbers_whose_products_are_none(tmp_path: Path, size: float) -> None:
    keys = json.loads(json.dumps(PLATFORM))
    keys["issue"][0]["ns"] = size
    (issue,) = problems(lambda path: load_platform(str(path)), tmp_path / "mine.toml", keys)
    assert f"issue[0].ns = {size}: should be 0, or of a size from 1e-60 to 1e60" in issue


def test_of_a_platform_that_no_calibration_writes(tmp_path: Path) -> None:
    keys = json.loads(json.dumps(PLATFORM))
    keys["drain"]["ci95"] = [1.0, 2.0]
    keys["issue"][0] |= {"ci95": [800.0, 700.0], "producers": 149}
    told = problems(lambda path: load_platform(str(path)), tmp_path / "mine.toml", keys)
    for key, line in zip(("drain.ci95", "issue[0].ci95", "149 producers"), told, strict=True):
        assert key in line


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_of_a_config(tmp_path: Path, suffix: str) -> None:
    keys = CONFIG | {"block_m": 0, "tile_order": "random"}
    told = problems(load_config, tmp_path / f"mine{suffix}", keys)
    for key, line in zip(("block_m = 0", "tile_order = 'random'"), told, strict=True):
        assert key in line


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_of_an_export_the_keys_as_the_file_has_them(tmp_path: Path, suffix: str) -> None:
    """Which kind of config it is chosen by is no key of the file."""
    keys = tuned().keys()
    keys["config"] |= {"warp_split": 2, "block_n": -1}
    keys["workload"]["hidden"] = 0
    unknown, block_n, hidden = problems(load_bundle, tmp_path / f"newer{suffix}", keys)
    assert "unknown key 'config.warp_split'" in unknown
    assert "config.block_n = -1: " in block_n
    assert "workload.hidden = 0: " in hidden


def test_a_line_that_is_no_toml_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('kind = "moe"\nname = mine\n')
    with pytest.raises(UsageError, match=r"at line 2, column 8\): name = mine"):
        load_workload(str(path))


def test_each_is_a_line_on_stderr(run_cli: RunCli, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(tomli_w.dumps(LAYER | {"hidden": 0, "intermediate": 0}))
    code, out, err = run_cli("workloads", "show", str(path))
    assert (code, out) == (2, "")
    assert [line.split(": ")[:3] for line in err.splitlines()] == [["xstage-tune", "error", str(path)]] * 2


def test_a_long_value_is_cut(tmp_path: Path) -> None:
    (line,) = problems(
        lambda path: load_workload(str(path)), tmp_path / "mine.toml", LAYER | {"precision": "w" * 5000}
    )
    assert len(line) < 300 + len(str(tmp_path))
