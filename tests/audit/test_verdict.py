"""Verdict, design test and finite run: three things, and the verdict agrees with the prediction."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import RunCli
from xstage_tune.audit.finite_run import MOST_EXPOSED
from xstage_tune.audit.run import audit
from xstage_tune.families.binding import default_config
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.config_files import config_from_keys, config_keys
from xstage_tune.families.megamoe.config import Schedule
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform
from xstage_tune.simulator import launch_size
from xstage_tune.simulator.fused_kernels import SimulatedKernels

FLASH = "megamoe/deepseek-v4-flash"


@pytest.fixture(autouse=True)
def _away_from_the_users_store(own_store: Path) -> None:
    """Searches keep their studies."""


def alternating(workload: str, platform: str, *changes: str) -> KernelConfig:
    config = default_config(load_workload(workload, list(changes)), load_platform(platform))
    return config.model_copy(update={"schedule": Schedule(kind="alternating")})


@pytest.mark.usefixtures("few_configs")
@pytest.mark.parametrize(
    ("workload", "platform"),
    [(FLASH, "paper-nvlink5"), (FLASH, "h200-peer"), ("fa-a2a/paper", "h200-host")],
)
def test_the_verdict_on_a_searched_config_is_that_of_its_simulation(
    run_cli: RunCli, tmp_path: Path, workload: str, platform: str
) -> None:
    """The search's answer, exported and audited, as its simulation has it with and without remote stores."""
    where = ("--workload", workload, "--platform", platform)
    found = json.loads(run_cli("search", *where, "--trials", "6", "--format", "json").stdout)
    file = tmp_path / "tuned.json"
    assert run_cli("export", "--format", "json", "-o", str(file)).exit_code == 0
    result = run_cli("audit", *where, "--config", str(file), "--format", "json", "--strict")
    audited = json.loads(result.stdout)
    assert audited["config"] == found["best"]["config"]
    config = config_from_keys(audited["config"], "the audit")
    kernels = SimulatedKernels(load_platform(platform))
    alone_ns = kernels.launch(load_workload(workload), config).without_remote_stores().run(0).end_ns
    with_stores_ns = kernels.launch(load_workload(workload), config).run(0).end_ns
    hidden = with_stores_ns - alone_ns <= MOST_EXPOSED * with_stores_ns
    if audited["finite_run"] is None:  # paced stores, which leave no more than the last round's drain
        assert audited["design_test_ok"]
        assert audited["verdict"] == "piggyback"
    else:
        assert audited["finite_run"]["latency_ns"] == with_stores_ns
        assert (audited["verdict"] == "piggyback") is hidden
    assert result.exit_code == (1 if audited["verdict"] == "reshape" else 0)


def test_a_violated_bound_that_costs_nothing_is_no_reason_to_reshape(run_cli: RunCli, tmp_path: Path) -> None:
    """One full burst exceeds Q; the stores of the staggered launch are hidden all the same."""
    file = tmp_path / "alternating.json"
    file.write_text(json.dumps(config_keys(alternating(FLASH, "paper-nvlink5"))))
    asked = ("audit", "-w", FLASH, "-p", "paper-nvlink5", "--config", str(file), "--strict")
    result = run_cli(*asked, "--format", "json")
    found = json.loads(result.stdout)
    assert (found["capacity_bound"]["ok"], found["design_test_ok"]) == (False, False)
    assert found["predicted"]["alternating"]["stall_ns"] == 0
    assert (found["verdict"], result.exit_code, result.stderr) == ("piggyback", 0, "")
    assert found["actions"][0]["kind"] == "piggyback"
    assert "yet its stores are hidden" in run_cli(*asked).stdout


def test_a_stall_that_the_closed_forms_leave_out_is_a_reason(run_cli: RunCli, tmp_path: Path) -> None:
    """They say that this config hides all; but loads wait behind its stores for a third of the time.

    Of a kernel of the user's own, whose stores are not paced.
    """
    file = tmp_path / "alternating.json"
    layer = ("-w", FLASH, "--set", "precision=w4a8", "-p", "h200-peer")
    file.write_text(json.dumps(config_keys(alternating(FLASH, "h200-peer", "precision=w4a8"))))
    asked = ("audit", *layer, "--config", str(file), "--format", "json", "--strict")
    result = run_cli(*asked)
    found = json.loads(result.stdout)
    assert found["predicted"]["alternating"]["hiding_ratio"] == 1
    assert found["finite_run"]["exposed_part"] > 0.25
    assert (found["verdict"], result.exit_code) == ("reshape", 1)
    rows = _rows(run_cli("audit", *layer, "--config", str(file)).stdout)
    assert float(rows["launch: hiding ratio"].rstrip("%")) == round(
        100 * found["finite_run"]["hiding_ratio"], 1
    )
    assert "hiding ratio" not in rows
    assert rows["steady state: hiding ratio"].startswith("100.0%")
    told = _rows(run_cli(*asked[:9], "--closed-forms").stdout)
    assert "hiding ratio" not in told
    closed = json.loads(run_cli(*asked, "--closed-forms").stdout)
    assert (closed["finite_run"], closed["verdict"]) == (None, "reshape")  # loads wait, so they cannot tell


def _rows(text: str) -> dict[str, str]:
    """First further cell of each printed row, by its name."""
    cells = (re.split(r"  +", line.strip()) for line in text.splitlines())
    return {name: more[-1] for name, *more in cells if more}


def test_bounds_that_hold_do_not_hide_loads_that_wait() -> None:
    """A long sequence: both bounds hold on this path, and the simulated launch is a quarter longer."""
    workload = load_workload("fa-a2a/hunyuanvideo-720p", ["tokens=16384"])
    found = audit(workload, load_platform("h200-host"), simulate=True)
    assert found.design_test_ok
    assert found.finite is not None
    assert found.finite.exposed_part.value > 0.2
    assert found.verdict == "reshape"
    assert [action.kind for action in found.actions] == ["search"]


def test_nothing_is_simulated_where_the_closed_forms_settle_it() -> None:
    found = audit(load_workload("fa-a2a/paper"), load_platform("paper-nvlink5"), simulate=True)
    assert (found.verdict, found.design_test_ok, found.finite) == ("piggyback", True, None)


def test_closed_forms_alone_do_not_contradict_their_own_prediction() -> None:
    """Where no load waits behind stores, a predicted stall of nothing is nothing exposed."""
    config = alternating(FLASH, "paper-nvlink5")
    found = audit(load_workload(FLASH), load_platform("paper-nvlink5"), config)
    assert not found.design_test_ok
    assert found.predicted["alternating"].stall_ns.value == 0
    assert (found.verdict, found.finite) == ("piggyback", None)
    wave = audit(load_workload(FLASH), load_platform("paper-nvlink5"))
    assert wave.predicted["wave"].stall_ns.value > 0
    assert wave.verdict == "reshape"


def test_a_drain_behind_the_only_round_is_exposed_though_nobody_waits() -> None:
    """4,096 tokens are one round of tiles: no Q-loop follows that its stores could hide behind."""
    workload = load_workload("fa-a2a/paper", ["tokens=4096"])
    found = audit(workload, load_platform("h200-host"), simulate=True)
    assert found.finite is not None
    assert found.finite.waits_ns.value < found.finite.residual_ns.value / 10
    assert found.verdict == "reshape"


def test_a_launch_too_large_to_simulate_is_audited_by_the_closed_forms(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_size, "MOST_TILES", 1000)
    found = json.loads(run_cli("audit", "-w", FLASH, "-p", "paper-nvlink5", "--format", "json").stdout)
    assert (found["finite_run"], found["verdict"]) == (None, "reshape")
    assert "more than the 1,000" in found["not_simulated"]
    assert "not simulated" in run_cli("audit", "-w", FLASH, "-p", "paper-nvlink5").stdout
