"""``xstage-tune workloads``."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import RunCli

FLASH = "megamoe/deepseek-v4-flash"


def test_list_as_json_is_only_json(run_cli: RunCli) -> None:
    result = run_cli("workloads", "list", "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    names = [workload["name"] for workload in json.loads(result.stdout)["workloads"]]
    assert {FLASH, "fa-a2a/paper"} <= set(names)


def test_list_as_table_has_a_row_each(run_cli: RunCli) -> None:
    lines = run_cli("workloads", "list").stdout.splitlines()
    row = next(line for line in lines if line.startswith(FLASH))
    assert "hidden 4096, intermediate 2048, 256 experts, top-6" in row


def test_list_names_a_broken_file_and_shows_the_rest(run_cli: RunCli, own_workloads: Path) -> None:
    (own_workloads / "broken.toml").write_text("kind = 'moe'")
    result = run_cli("workloads", "list")
    assert result.exit_code == 0
    assert FLASH in result.stdout
    assert "broken.toml" in result.stderr


def test_show_applies_overrides_and_gives_tokens_per_expert(run_cli: RunCli) -> None:
    result = run_cli("workloads", "show", FLASH, "--set", "tokens_per_rank=64", "--format", "json")
    shown = json.loads(result.stdout)
    assert shown["workload"]["tokens_per_rank"] == 64
    assert shown["derived"]["tokens_per_expert"] == [12] * 256  # 64 tokens * 8 ranks * top-6 / 256
    assert shown["derived"]["rank_imbalance"] == 1.0


def test_show_as_table_says_how_skewed_the_routing_is(run_cli: RunCli) -> None:
    result = run_cli("workloads", "show", FLASH, "--set", "routing.kind=zipf", "--set", "routing.alpha=1")
    assert "zipf, alpha 1, seed 0" in result.stdout
    assert "busiest rank over mean" in result.stdout


def test_show_attention(run_cli: RunCli) -> None:
    result = run_cli("workloads", "show", "fa-a2a/wan2.1-14b-720p")
    assert "5 of 40, degree 8" in result.stdout
    assert "9,450" in result.stdout


def test_unknown_name_exits_2(run_cli: RunCli) -> None:
    result = run_cli("workloads", "show", "megamoe/deepseek-v5")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "unknown workload 'megamoe/deepseek-v5'" in result.stderr
    assert "megamoe/deepseek-v" in result.stderr.splitlines()[-1]
