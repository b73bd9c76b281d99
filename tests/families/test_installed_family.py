"""A family that no line of the product names is served by the commands, the search and the lookup."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunCli
from tests.export.test_lookup import HEAVY
from xstage_tune.base.errors import UsageError
from xstage_tune.export.bundle import load_bundle
from xstage_tune.families.registry import families, family_of_workload_kind
from xstage_tune.families.workload import Workload
from xstage_tune.families.workload_files import workload_from_keys
from xstage_tune.platforms.loader import load_platform
from xstage_tune.search.ranking import rank_configs
from xstage_tune.search.space import build_space
from xstage_tune.simulator.fused_kernels import SimulatedKernels

PRODUCT = Path(__file__).parents[2] / "xstage_tune"
NAME = "gemm-rs/mine"
ROUNDING = 1 + 1e-9


@pytest.fixture(autouse=True)
def _installed(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package is installed for this process, which has a store of its own, until the test is over."""
    monkeypatch.setenv("XSTAGE_STORE", str(tmp_path / "own.db"))
    monkeypatch.syspath_prepend(str(site))
    families.cache_clear()
    yield
    families.cache_clear()


def gemm(**changes: Any) -> Workload:
    keys = {"kind": "gemm-rs", "name": NAME, "tokens": 4096, "columns": 4096, "depth": 16384}
    return workload_from_keys(keys | changes, "test")


@pytest.fixture
def mine(run_cli: RunCli) -> str:
    """A workload of the user's own, made from the family's template."""
    made = run_cli("workloads", "new", NAME, "--kind", "gemm-rs")
    assert made.exit_code == 0, made.stderr
    return NAME


@pytest.fixture
def exported(run_cli: RunCli, mine: str, tmp_path: Path) -> Path:
    """What a short search on the simulator found for it."""
    assert run_cli("search", "-w", mine, "-p", "h200-host", "--trials", "6").exit_code == 0
    file = tmp_path / "exports" / "mine.json"
    made = run_cli("export", "--study", "latest", "--format", "json", "-o", str(file))
    assert made.exit_code == 0, made.stderr
    return file


def test_the_product_does_not_name_it() -> None:
    sources = chain(PRODUCT.rglob("*.py"), (PRODUCT.parent / "kernels").rglob("*.cu*"))
    assert [file for file in sources if "gemm-rs" in file.read_text() or "gemm_rs" in file.read_text()] == []


def test_a_template_of_its_workload_is_found_by_name(run_cli: RunCli, mine: str) -> None:
    listed = json.loads(run_cli("workloads", "list", "--format", "json").stdout)["workloads"]
    assert mine in {workload["name"] for workload in listed}
    shown = json.loads(run_cli("workloads", "show", mine, "--set", "tokens=16", "--format", "json").stdout)
    assert shown["workload"]["tokens"] == 16
    assert shown["derived"] == {"remote_fraction": 0.875}


def test_a_key_that_breaks_its_schema_is_one_clear_line(run_cli: RunCli, mine: str) -> None:
    result = run_cli("workloads", "show", mine, "--set", "columns=12")
    assert result.exit_code == 2
    assert result.stderr.count("error:") == 1
    assert "columns = 12" in result.stderr


@pytest.mark.parametrize(
    ("platform", "verdict", "code"), [("h200-host", "reshape", 1), ("paper-nvlink5", "piggyback", 0)]
)
def test_an_audit_tells_a_launch_that_stalls(
    run_cli: RunCli, mine: str, platform: str, verdict: str, code: int
) -> None:
    """Over the slow path its bursts stall it; over NVLink they drain behind the mainloops."""
    result = run_cli("audit", "-w", mine, "-p", platform, "--strict", "--format", "json")
    assert result.exit_code == code
    found = json.loads(result.stdout)
    assert found["verdict"] == verdict
    predicted = found["predicted"]["piggyback"]
    assert (predicted["stall_ns"] > 0) == (verdict == "reshape")


def test_a_search_beats_its_default_and_its_answer_can_be_audited(run_cli: RunCli, mine: str) -> None:
    result = run_cli("search", "-w", mine, "-p", "h200-host", "--trials", "6", "--format", "json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["bound_ns"] <= found["best"]["objective_ns"] <= found["default"]["objective_ns"]
    assert found["failed"] == 0
    audited = run_cli("audit", "-w", mine, "-p", "h200-host", "--config", "study:latest", "--format", "json")
    assert json.loads(audited.stdout)["config"] == found["best"]["config"]


@pytest.mark.usefixtures("exported")
def test_a_resumed_search_reads_its_workload_and_trials_back(run_cli: RunCli) -> None:
    options = ("-w", NAME, "-p", "h200-host", "--trials", "8", "--resume", "latest", "--format", "json")
    result = run_cli("search", *options)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["evaluations"] == 8


def test_its_tile_orders_are_emulated(run_cli: RunCli, mine: str) -> None:
    """On the simulator: each order, and the launch without remote stores."""
    options = ("-w", mine, "-p", "h200-host", "--device", "simulator", "--set", "tokens=2048")
    result = run_cli("emulate", *options, "--format", "json")
    assert result.exit_code == 0, result.stderr
    cases = {case["label"] for case in json.loads(result.stdout)["cases"]}
    assert cases == {"sequential", "own-rows-last", "no remote stores"}


@pytest.mark.usefixtures("exported")
def test_a_study_of_it_has_a_page(run_cli: RunCli, tmp_path: Path) -> None:
    page = tmp_path / "study.html"
    result = run_cli("report", "--study", "latest", "-o", str(page))
    assert result.exit_code == 0, result.stderr
    assert NAME in page.read_text()


@pytest.mark.usefixtures("exported")
def test_its_header_has_its_own_choices(run_cli: RunCli, tmp_path: Path) -> None:
    header = tmp_path / "mine.h"
    assert run_cli("export", "--study", "latest", "--format", "header", "-o", str(header)).exit_code == 0
    text = header.read_text()
    assert "enum class TileOrder { sequential, own_rows_last };" in text
    assert "kStagingSlots" in text


def test_a_server_looks_it_up_without_what_searches(exported: Path, site: Path) -> None:
    """In a process of its own, where the entry point alone tells of the family."""
    program = f"""
import json, sys, xstage_tune
bundle = xstage_tune.load_bundle({str(exported.parent)!r})
found = {{tokens: xstage_tune.lookup(bundle, {NAME!r}, tokens=tokens) for tokens in (8192, 7000, 16)}}
answers = {{tokens: [one.match, one.config.model_dump(mode="json")] for tokens, one in found.items()}}
print(json.dumps([answers, sorted({HEAVY} & set(sys.modules))]))
"""
    environment = os.environ | {"PYTHONPATH": str(site)}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    answers, heavy = json.loads(ran.stdout)
    assert {tokens: match for tokens, (match, _) in answers.items()} == {
        "8192": "exact",
        "7000": "nearest",
        "16": "default",
    }
    assert answers["8192"][1] == json.loads(exported.read_text())["config"]
    assert heavy == []


def test_an_export_that_breaks_its_schema_names_the_key(exported: Path) -> None:
    keys = json.loads(exported.read_text())
    keys["config"]["stage"] = keys["config"].pop("stages")
    del keys["sha256"]  # edited on purpose
    exported.write_text(json.dumps(keys))
    with pytest.raises(UsageError, match=r"'config\.stage'.*'stages'"):
        load_bundle(exported)


@pytest.mark.parametrize("platform", ["h200-host", "paper-nvlink5"])
@pytest.mark.parametrize(
    "changes", [{}, {"tokens": 1000, "columns": 1096, "degree": 4}], ids=["whole", "partial"]
)
def test_no_simulated_time_is_below_its_bound(platform: str, changes: dict[str, int]) -> None:
    """All configs of a small space, partial tiles among them."""
    workload, profile = gemm(**changes), load_platform(platform)
    axes = {
        "block_m": (64, 128), "block_n": (64, 128), "stages": (3, 4), "staging_slots": (1, 2),
        "tile_order": ("sequential", "own-rows-last"), "store_flavour": ("st.v4",),
    }  # fmt: skip
    configs = build_space(workload, profile, axes).configs
    assert len(configs) > 10
    bounds = rank_configs(configs, workload, profile, "latency").bound_ns
    device = SimulatedKernels(profile)
    for config, bound_ns in zip(configs, bounds, strict=True):
        assert bound_ns <= device.run_kernel(workload, config, 1).latency_ns[0] * ROUNDING, config.label


def test_every_byte_of_its_output_is_stored_once() -> None:
    workload, profile = gemm(tokens=1000, columns=1096), load_platform("paper-nvlink5")
    family = family_of_workload_kind("gemm-rs")
    assert family is not None
    bound = family.bind(workload, profile)
    for variants in bound.variants(bound.axes() | {"store_flavour": ("st.v4",)}):
        launch = bound.launch(variants.checked)
        assert launch.streams.tiles == bound.tiles(variants.checked)
        assert (launch.local_bytes + launch.streams.remote_bytes).sum() == 1000 * 1096 * 2
        assert launch.streams.remote_bytes.sum() == 875 * 1096 * 2
