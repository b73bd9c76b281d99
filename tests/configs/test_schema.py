"""Config files and their keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tomli_w

from tests.configs.cases import attention_config, megamoe_config
from xstage_tune.base.errors import UsageError
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.config_files import config_from_keys, config_keys, load_config
from xstage_tune.families.megamoe.config import Schedule

CONFIGS = [
    megamoe_config(),
    megamoe_config(Schedule(kind="wave", experts_per_wave=4)),
    megamoe_config(Schedule(kind="interleaved", lead_rows=8)),
    megamoe_config(Schedule(kind="alternating", placement="share")),
    attention_config(output_staging="dedicated-x2"),
    attention_config(output_staging="dedicated-x1", kv_splits=2),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.label)
def test_a_config_reads_back_from_toml_and_json(config: KernelConfig, tmp_path: Path) -> None:
    keys = config_keys(config)
    (tmp_path / "config.toml").write_text(tomli_w.dumps(keys))
    (tmp_path / "config.json").write_text(json.dumps({"objective_ns": 1.0, "config": keys}))
    assert load_config(tmp_path / "config.toml") == config
    assert load_config(tmp_path / "config.json") == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_m": -1}, "block_m = -1"),
        ({"block_m": "128"}, "block_m = '128'"),
        ({"blok_m": 128}, "unknown key 'blok_m'; did you mean 'block_m'"),
        ({"schedule": {"kind": "wave"}}, "needs the key 'experts_per_wave'"),
        ({"schedule": {"kind": "alternating", "lead_rows": 4}}, "'lead_rows' is for kind 'interleaved'"),
        ({"schedule": {"kind": "waves"}}, "schedule.kind = 'waves'"),
        ({"schedule": {"kind": "alternating", "placement": "odd"}}, "schedule.placement = 'odd'"),
        ({"kind": "gemm"}, "kind = 'gemm': should be one of megamoe, attention"),
    ],
)
def test_a_wrong_key_is_named_with_its_file(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        config_from_keys(config_keys(megamoe_config()) | changes, "tuned.toml")
    assert caught.value.message.startswith("tuned.toml: ")
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.toml", "kind = ", "invalid TOML"),
        ("c.json", "{", "invalid JSON"),
        ("c.json", "[1]", "not a JSON object"),
        ("c.yaml", "", "neither .toml nor .json"),
    ],
)
def test_a_broken_file_is_named(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        load_config(tmp_path / name)


def test_a_config_of_before_placement_is_even() -> None:
    keys = config_keys(megamoe_config())
    del keys["schedule"]["placement"]
    assert config_from_keys(keys, "old.json") == megamoe_config()


def test_placement_by_share_is_in_the_label() -> None:
    assert (
        "wave of 4, by share"
        in megamoe_config(Schedule(kind="wave", experts_per_wave=4, placement="share")).label
    )


def test_a_config_of_before_tiles_were_split_splits_none() -> None:
    keys = config_keys(attention_config())
    assert keys.pop("kv_splits") == 1
    assert config_from_keys(keys, "old.json") == attention_config()


def test_a_split_is_in_the_label() -> None:
    config = attention_config(output_staging="dedicated-x1", kv_splits=2)
    assert config.label == "128x128, KV in 2 parts, 2 KV stages, dedicated-x1, sequential, st.v4"
    assert "parts" not in attention_config().label


def test_three_ctas_share_no_tile() -> None:
    with pytest.raises(UsageError, match="kv_splits = 3"):
        config_from_keys(config_keys(attention_config()) | {"kv_splits": 3}, "tuned.toml")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*absent\.toml"):
        load_config(tmp_path / "absent.toml")
