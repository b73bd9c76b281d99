"""``xstage-tune audit``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w

from tests.configs.cases import attention_config
from tests.conftest import RunCli
from xstage_tune.base.errors import ExitCode
from xstage_tune.experiments.timing.prediction import predict
from xstage_tune.experiments.timing.request import ProfileRequest
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.config_files import config_keys
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform

PAPER = ("--workload", "fa-a2a/paper", "--platform", "paper-nvlink5")
FLASH = ("--workload", "megamoe/deepseek-v4-flash", "--platform", "paper-nvlink5")


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_json_has_the_documented_keys(run_cli: RunCli) -> None:
    result = run_cli("audit", *PAPER, "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert found["burst_bytes"] == 32768
    assert found["volume_bytes"] == 148 * 32768
    assert found["gap_ns"] == 64 * 790
    assert found["recovery_gap_ns"] == pytest.approx(6004, abs=1)
    assert found["peak_outstanding_bytes"] == pytest.approx(4304744)
    assert found["capacity_bytes"] == 4456448
    assert found["rate_bound"]["ok"] is True
    assert found["capacity_bound"]["ok"] is True
    assert found["verdict"] == "piggyback"
    assert found["d_knee_rows"] is None
    assert found["converged_tokens"] == pytest.approx(972.8, abs=0.1)
    assert found["predicted"]["piggyback"]["stall_ns"] == 0
    assert found["config"]["block_m"] == 128


def test_json_of_a_layer_has_both_schedules_beside_completion_coupled(run_cli: RunCli) -> None:
    found = json.loads(run_cli("audit", *FLASH, "--format", "json").stdout)
    assert set(found["predicted"]) == {"wave", "interleaved"}
    for schedule in found["predicted"].values():
        assert {"span_ns", "stall_ns", "residual_ns", "hiding_ratio"} <= set(schedule)
        assert {"stall_ns", "residual_ns", "hiding_ratio"} <= set(schedule["completion_coupled"])
    assert found["d_knee_rows"] == 4.625
    assert found["converged_tokens"] is None
    assert found["interleaving_suffices"] is True
    assert found["verdict"] == "reshape"
    assert found["actions"][0]["kind"] == "interleave"


def test_every_number_of_the_json_says_what_it_is(run_cli: RunCli) -> None:
    found = json.loads(run_cli("audit", *FLASH, "--format", "json").stdout)
    basis = found["basis"]
    assert basis["drain_bytes_per_s"]["basis"] == "measured"
    assert basis["volume_bytes"]["basis"] == "derived"
    assert basis["free_issue_ns"]["basis"] == "assumed"
    assert "extrapolated" in basis["free_issue_ns"]["origin"]
    assert basis["predicted.wave.stall_ns"]["basis"] == "assumed"
    numbers = {key for key, value in found.items() if isinstance(value, float)}
    assert numbers <= set(basis)


def test_json_is_the_same_every_time(run_cli: RunCli) -> None:
    first, second = (run_cli("audit", *FLASH, "--format", "json").stdout for _ in range(2))
    assert first == second


def test_table_tells_the_verdict_and_what_to_do(run_cli: RunCli) -> None:
    out = run_cli("audit", *FLASH).stdout
    assert "reshape" in out
    assert "interleave Linear-1 with Linear-2 tiles, lead D = 12 rows (D_knee is 4.6)" in out
    assert "at most 33.12 KiB a producer and burst, now 42 KiB" in out
    assert "extrapolated beyond the points" in out


def test_strict_makes_a_violation_the_exit_code_and_still_prints(run_cli: RunCli) -> None:
    assert run_cli("audit", *FLASH).exit_code == 0
    result = run_cli("audit", *FLASH, "--strict", "--format", "json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["verdict"] == "reshape"
    assert "violates the rate and capacity bound" in result.stderr
    assert run_cli("audit", *PAPER, "--strict").exit_code == 0


def test_set_overrides_the_workload(run_cli: RunCli) -> None:
    found = json.loads(run_cli("audit", *PAPER, "--set", "tokens=16384", "--format", "json").stdout)
    assert found["gap_ns"] == 128 * 790


@pytest.mark.parametrize("name", ["config.json", "config.toml"])
def test_config_file_is_audited(run_cli: RunCli, tmp_path: Path, name: str) -> None:
    import tomli_w

    config = json.loads(run_cli("audit", *FLASH, "--format", "json").stdout)["config"]
    config["schedule"] = {"kind": "interleaved", "lead_rows": 6}
    file = tmp_path / name
    file.write_text(json.dumps(config) if name.endswith("json") else tomli_w.dumps(config))
    found = json.loads(run_cli("audit", *FLASH, "--config", str(file), "--format", "json").stdout)
    assert (found["config_given"], found["schedule"]) == (True, "interleaved")
    assert found["rate_bound"]["ok"] is True


def test_a_hiding_ratio_of_nothing_is_none(run_cli: RunCli) -> None:
    out = run_cli("audit", *PAPER, "--set", "tokens=1").stdout
    assert "none where a burst drains faster than it is issued, V/R < T0" in out
    found = json.loads(run_cli("audit", *PAPER, "--set", "tokens=1", "--format", "json").stdout)
    assert found["predicted"]["piggyback"]["hiding_ratio"] is None
    assert "none where" not in run_cli("audit", *PAPER).stdout


def test_output_says_what_was_audited(run_cli: RunCli) -> None:
    keys = ("--set", "tokens_per_rank=64", "--set", "precision=w4a8")
    found = json.loads(run_cli("audit", *FLASH, *keys, "--format", "json").stdout)
    assert found["workload"] == "megamoe/deepseek-v4-flash"
    assert found["workload_keys"]["tokens_per_rank"] == 64
    assert found["workload_keys"]["hidden"] == 4096
    assert found["workload_overrides"] == ["tokens_per_rank=64", "precision=w4a8"]
    out = run_cli("audit", *FLASH, *keys).stdout
    assert "hidden 4,096" in out
    assert "8 ranks of 64 tokens" in out
    assert "Overridden: tokens_per_rank=64, precision=w4a8." in out


def test_output_without_overrides_names_none(run_cli: RunCli) -> None:
    assert json.loads(run_cli("audit", *PAPER, "--format", "json").stdout)["workload_overrides"] == []
    out = run_cli("audit", *PAPER).stdout
    assert "8,192 tokens" in out
    assert "Overridden" not in out


def test_a_short_lead_is_said_in_words(run_cli: RunCli, tmp_path: Path) -> None:
    config = json.loads(run_cli("audit", *FLASH, "--format", "json").stdout)["config"]
    config["schedule"] = {"kind": "interleaved", "lead_rows": 4}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    out = run_cli("audit", *FLASH, "--config", str(file)).stdout
    assert "D = 4 is below D_knee = 4.6" in out
    assert "raise the lead to at least 5 rows" in out


def test_tiles_that_alternation_leaves_over_are_said_in_words(run_cli: RunCli, tmp_path: Path) -> None:
    """GLM-4.5 has 24 Linear-1 tiles of a row for 40 Linear-2 tiles."""
    layer = ("--workload", "megamoe/glm-4.5", "--platform", "h200-host")
    config = json.loads(run_cli("audit", *layer, "--format", "json").stdout)["config"]
    file = tmp_path / "config.json"
    for schedule, left_over in (
        ({"kind": "alternating"}, True),
        ({"kind": "interleaved", "lead_rows": 13}, False),
    ):
        file.write_text(json.dumps(config | {"schedule": schedule}))
        out = run_cli("audit", *layer, "--config", str(file)).stdout
        words = "40.0% of its bursts come when no Linear-1 tile is left; for them see wave"
        assert (words in out) is left_over


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--workload", "fa-a2a/papre", "--platform", "paper-nvlink5"), "fa-a2a/paper"),
        (("--workload", "fa-a2a/paper", "--platform", "paper-nvlink"), "paper-nvlink5"),
        ((*PAPER, "--config", "nowhere.toml"), "nowhere.toml"),
        ((*PAPER, "--set", "tokens=0"), "tokens"),
    ],
)
def test_bad_input_is_a_usage_error(run_cli: RunCli, arguments: tuple[str, ...], message: str) -> None:
    result = run_cli("audit", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_an_audit_loads_neither_simulator_nor_optimiser() -> None:
    """It is closed forms, and must start in well under a second."""
    program = (
        "import sys; from xstage_tune.commands.audit import audit; audit('fa-a2a/paper', 'paper-nvlink5');"
        "sys.exit(str({'numba', 'scipy', 'optuna', 'sqlalchemy', 'cuda'} & set(sys.modules) or ''))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.stderr.strip() == ""
    assert "piggyback" in ran.stdout


def test_an_audit_says_how_long_operand_loads_wait_where_the_platform_can_tell(run_cli: RunCli) -> None:
    """What is outstanding drains in front of the loads, at R; paced stores leave nothing outstanding."""
    arguments = ("audit", "--workload", "fa-a2a/paper", "--platform")
    found = json.loads(run_cli(*arguments, "h200-host", "--format", "json").stdout)
    outstanding_bytes = found["peak_outstanding_bytes"]
    assert 0 < found["shared_room_bytes"] < found["capacity_bytes"]
    assert found["operand_wait_ns"] == pytest.approx(outstanding_bytes / found["drain_bytes_per_s"] * 1e9)
    assert "operand loads" in run_cli(*arguments, "h200-host").stdout
    unknown = json.loads(run_cli(*arguments, "paper-nvlink5", "--format", "json").stdout)
    assert (unknown["shared_room_bytes"], unknown["operand_wait_ns"]) == (None, None)
    assert "operand loads" not in run_cli(*arguments, "paper-nvlink5").stdout


def test_paced_stores_leave_nothing_to_reshape_where_the_q_loop_drains_them(
    run_cli: RunCli, tmp_path: Path
) -> None:
    """V/R is 81.5 us, and the Q-loop 184 at 16,384 tokens, 46 at 4,096."""
    file = tmp_path / "paced.toml"
    file.write_text(
        'kind = "attention"\nblock_m = 128\nblock_n = 160\nkv_stages = 2\noutput_staging = "dedicated-x1"\n'
        'tile_order = "rotated"\nstore_flavour = "st.v4"\n'
    )
    asked = ("audit", "-w", "fa-a2a/paper", "-p", "h200-host", "--config", str(file), "--format", "json")
    found = json.loads(run_cli(*asked, "--set", "tokens=16384").stdout)
    assert found["verdict"] == "piggyback"
    assert found["peak_outstanding_bytes"] == found["operand_wait_ns"] == 0
    paced = found["predicted"]["piggyback"]
    assert (paced["stall_ns"], paced["residual_ns"]) == (0, 0)
    compute = load_platform("h200-host").compute
    assert compute is not None
    staging_ns = {(tile.block_m, tile.block_n, tile.head_dim): tile.staging_ns for tile in compute.attention}
    assert paced["span_ns"] == staging_ns[128, 160, 128]
    assert paced["completion_coupled"]["period_ns"] == found["gap_ns"]
    short = run_cli(*asked, "--set", "tokens=4096", "--strict")
    assert short.exit_code == ExitCode.FINDING
    assert json.loads(short.stdout)["predicted"]["piggyback"]["stall_ns"] > 30e3


@pytest.mark.parametrize("tokens", [1024, 8192])
def test_what_is_exposed_until_all_has_arrived_is_what_profile_predicts(
    run_cli: RunCli, tmp_path: Path, tokens: int
) -> None:
    """Of one round of tiles, and of two of which the tile order makes the last one's bytes."""
    layer = ("fa-a2a/paper", [f"tokens={tokens}", "remote_fraction=0.875"])
    platform = load_platform("h200-host")
    exposed_ns = {}
    for order in ("sequential", "own-last"):
        config = attention_config(output_staging="dedicated-x1", store_flavour="st.v4", tile_order=order)
        (tmp_path / "paced.toml").write_text(tomli_w.dumps(config_keys(config)))
        changes = [argument for change in layer[1] for argument in ("--set", change)]
        asked = (
            "audit",
            "-w",
            layer[0],
            *changes,
            "-p",
            "h200-host",
            "--config",
            str(tmp_path / "paced.toml"),
        )
        found = json.loads(run_cli(*asked, "--format", "json").stdout)
        assert "on the sender" in run_cli(*asked).stdout
        workload = load_workload(*layer)
        assert isinstance(workload, AttentionWorkload)
        predicted = predict(
            ProfileRequest(workload=workload, platform=platform, config=config, path="host"), None
        )
        assert predicted is not None
        assert found["arrived_residual_ns"] == predicted.closed.residual_ns
        assert found["arrived_hiding_ratio"] == predicted.closed.hiding_ratio
        assert found["arrived_residual_ns"] >= found["last_drain_ns"] > 0
        exposed_ns[order] = found["arrived_residual_ns"]
    # At 8,192 tokens a head has 64 tiles, 8 of them this rank's own, and the last round 124 of 256: in
    # sequence from the third head's fifth on, with 4 + 8 own ones, or with all 32. At 1,024 the 32 tiles are
    # one round, 28 of them for others, whatever the order.
    others = {1024: (28, 28), 8192: (124 - 12, 124 - 32)}[tokens]
    drain_bytes_per_ns = platform.drain.bytes_per_s / 1e9
    for order, tiles in zip(("sequential", "own-last"), others, strict=True):
        assert exposed_ns[order] == pytest.approx(tiles * 32768 / drain_bytes_per_ns)


def test_the_residual_until_arrived_says_what_it_adds(run_cli: RunCli) -> None:
    """A burst drains while it is issued: of the last round the drain counts, and not T0 too."""
    found = json.loads(run_cli("audit", *PAPER, "--format", "json").stdout)
    residual_ns = found["predicted"]["piggyback"]["residual_ns"]
    assert found["arrived_residual_ns"] == pytest.approx(residual_ns / 2 + found["last_drain_ns"])
    words = {
        tokens: json.loads(run_cli("audit", *PAPER, "--set", f"tokens={tokens}", "--format", "json").stdout)[
            "basis"
        ]["arrived_residual_ns"]["origin"]
        for tokens in (64, 4096, 8192)
    }
    assert words == {
        8192: "the residual of 1 of 2 rounds, and the last round's drain",
        4096: "the last round's drain",
        64: "the residual, in which the last round's drain has passed",
    }


def test_the_answer_of_a_study_is_audited(run_cli: RunCli, own_store: Path) -> None:
    attention = ("-w", "fa-a2a/paper", "-p", "h200-host", "--format", "json")
    best = json.loads(run_cli("search", *attention, "--trials", "3").stdout)["best"]["config"]
    assert own_store.exists()
    assert json.loads(run_cli("audit", *attention, "--config", "study:latest").stdout)["config"] == best
    unknown = run_cli("audit", *attention, "--config", "study:nosuch")
    assert unknown.exit_code == ExitCode.USAGE
    assert "nosuch" in unknown.stderr
