"""The advice of an audit is in accord with the simulated launch: no answer of one contradicts the other."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.conftest import RunCli
from xstage_tune.audit.finite_run import MOST_EXPOSED
from xstage_tune.audit.run import audit
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform
from xstage_tune.simulator.fused_kernels import SimulatedKernels

FLASH = "megamoe/deepseek-v4-flash"


@pytest.mark.parametrize("platform_name", ["h200-host", "h200-peer", "paper-nvlink5"])
def test_what_is_advised_saves_time_and_what_is_not_does_not(platform_name: str) -> None:
    """Random layers: the launch of each advised config, simulated apart from the audit."""
    rng = np.random.default_rng(20)
    platform = load_platform(platform_name)
    kernels = SimulatedKernels(platform)
    decided = 0
    for _ in range(8):
        values = {
            "tokens": rng.integers(200, 1500), "experts": rng.choice([64, 128]), "top_k": rng.integers(2, 7),
            "hidden": 1024 * rng.integers(1, 5), "intermediate": 512 * rng.integers(1, 5),
        }  # fmt: skip
        workload = load_workload(FLASH, [f"{key}={value}" for key, value in values.items()])
        found = audit(workload, platform, simulate=True)
        latency_ns = kernels.launch(workload, found.config).run(0).end_ns
        worth_ns = MOST_EXPOSED * latency_ns
        for action in (*found.actions, *found.rejected):
            if action.config is None or found.verdict == "piggyback":
                continue
            saves_ns = latency_ns - kernels.launch(workload, action.config).run(0).end_ns
            assert action.saves_ns is not None
            assert action.saves_ns.value == pytest.approx(saves_ns)
            assert (action in found.rejected) is (saves_ns < -worth_ns)
            decided += abs(saves_ns) > worth_ns
    assert decided > 0


def test_interleaving_that_makes_the_launch_longer_is_no_advice(run_cli: RunCli) -> None:
    """Its gap would be long enough, but operand loads wait behind every burst that is not paced."""
    keys = ("--set", "tokens=4096", "--set", "precision=w4a8")
    asked = ("audit", "-w", FLASH, "-p", "h200-peer", *keys, "--format", "json")
    found = json.loads(run_cli(*asked).stdout)
    assert found["interleaving_suffices"]
    assert "interleave" not in [action["kind"] for action in found["actions"]]
    (interleave,) = (action for action in found["rejected"] if action["kind"] == "interleave")
    assert interleave["saves_ns"] < -0.1 * found["finite_run"]["latency_ns"]
    assert interleave["config"]["schedule"]["kind"] == "interleaved"
    # The closed forms alone cannot tell.
    closed = json.loads(run_cli(*asked, "--closed-forms").stdout)
    assert closed["actions"][0]["kind"] == "interleave"
    assert closed["actions"][0]["saves_ns"] is None


def test_what_saves_most_is_advised_first() -> None:
    found = audit(load_workload(FLASH), load_platform("paper-nvlink5"), simulate=True)
    first = found.actions[0]
    assert first.kind == "interleave"
    assert isinstance(first.config, MegaMoeConfig)
    assert first.limit is not None
    assert first.config.schedule.lead_rows == first.limit.value
    assert first.saves_ns is not None
    assert first.saves_ns.value > 0
