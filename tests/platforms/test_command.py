"""``xstage-tune platforms``."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import RunCli
from xstage_tune.base.number_format import duration
from xstage_tune.platforms.loader import load_platform


def test_list_as_json_is_only_json(run_cli: RunCli) -> None:
    code, out, err = run_cli("platforms", "list", "--format", "json")
    assert (code, err) == (0, "")
    assert "paper-nvlink5" in [platform["name"] for platform in json.loads(out)["platforms"]]


def test_list_as_table_survives_a_pipe(run_cli: RunCli) -> None:
    code, out, _ = run_cli("platforms", "list")
    assert code == 0
    row = next(line for line in out.splitlines() if line.startswith("paper-nvlink5"))
    assert "717.0 GB/s" in row


def test_list_names_a_broken_file_and_shows_the_rest(run_cli: RunCli, own_platforms: Path) -> None:
    (own_platforms / "broken.toml").write_text("name = 3")
    code, out, err = run_cli("platforms", "list")
    assert code == 0
    assert "paper-nvlink5" in out
    assert "broken.toml" in err


def test_show_as_json_reads_as_the_profile(run_cli: RunCli) -> None:
    code, out, _ = run_cli("platforms", "show", "paper-nvlink5", "--format", "json")
    assert code == 0
    platform = json.loads(out)["platform"]
    assert platform["drain"]["bytes_per_s"] == 717e9
    assert platform["issue"][0]["ns"] == 760.0


def test_show_gives_the_tile_times(run_cli: RunCli) -> None:
    shown = run_cli("platforms", "show", "h200-host").stdout
    compute = load_platform("h200-host").compute
    assert compute is not None
    table = shown[shown.index("Attention tiles") :]
    for tile in compute.attention:
        (row,) = (
            line.split()
            for line in table.splitlines()
            if line.split()[:2] == [f"{tile.block_m}x{tile.block_n}", str(tile.head_dim)]
        )
        assert duration(tile.kv_tile_ns) == " ".join(row[2:4])
        assert ("-" in row[:14]) == (tile.split is None)
        assert "benchmarks/attention_tiles.py" in row


def test_show_gives_each_number_with_its_source(run_cli: RunCli) -> None:
    _, out, _ = run_cli("platforms", "show", "paper-nvlink5")
    assert "760.0 ns" in out
    assert "4.25 MiB" in out
    assert "Section 3.5" in out


def test_unknown_name_exits_2_with_the_nearest(run_cli: RunCli) -> None:
    code, out, err = run_cli("platforms", "show", "paper-nvlink4")
    assert (code, out) == (2, "")
    assert "unknown platform 'paper-nvlink4'" in err
    assert "paper-nvlink5" in err
    assert "Traceback" not in err
