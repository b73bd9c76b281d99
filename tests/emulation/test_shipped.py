"""Recorded runs of real GPUs that come with the tool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import RunCli
from xstage_tune.assets import data_dir

SHIPPED = sorted((data_dir("profiles") / "recordings").glob("*.xsemu"))


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_a_shipped_emulation_replays_beside_its_predictions(run_cli: RunCli, file: Path) -> None:
    result = run_cli("emulate", "--device", f"replay:{file.stem}", "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert found["device"].startswith("emulation on ")
    assert found["cases"]
    for case in found["cases"]:
        assert len(case["samples_ns"]) == found["repeats"]
        assert case["simulated_error_pct"]["makespan"] is not None
