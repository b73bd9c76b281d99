"""GPUs whose compute is of data sheets: audit and search work on them, and say what their answers rest on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.calibration.fluid import Fluid, FluidDevice
from tests.conftest import RunCli
from xstage_tune.devices import opener
from xstage_tune.platforms.gpus import KnownGpu, known_compute, known_gpus, user_gpus_dir
from xstage_tune.platforms.loader import load_platform, save_platform

UNMEASURED = [known for known in known_gpus() if known.compute.origin == "datasheet"]
LAYER = ("-w", "megamoe/deepseek-v4-flash", "--set", "tokens_per_rank=64")
ATTENTION = ("-w", "fa-a2a/paper", "--set", "tokens=2048")
NOTE = "compute: datasheet"


@pytest.fixture(autouse=True)
def _own_store(own_store: Path) -> None:
    """Commands keep what they find in :func:`tests.conftest.own_store`."""


def calibrated(known: KnownGpu, folder: Path) -> str:
    """A profile of such a GPU without compute, as a calibration writes it, by the figures of another."""
    blackwell = known.compute.tensor_memory_bytes_per_sm > 0
    like = load_platform("paper-nvlink5" if blackwell else "h200-host")
    gpu = like.gpu.model_copy(update=known.gpu.model_dump(exclude_none=True) | {"nvlink": known.gpu.nvlink})
    sms = known.gpu.sm_count or 0
    changed = {
        "name": "mine",
        "gpu": gpu,
        "compute": None,
        "arbitration": None,
        "issue": tuple(point for point in like.issue if point.producers <= sms),
        "capacity": tuple(point for point in like.capacity if point.producers <= sms),
    }
    file = folder / "mine.toml"
    save_platform(like.model_copy(update=changed), file)
    return str(file)


@pytest.mark.parametrize("name", ["NVIDIA H100 80GB HBM3", "NVIDIA H20", "NVIDIA B200", "NVIDIA GB200"])
def test_the_gpu_is_known(name: str) -> None:
    (known,) = (one for one in UNMEASURED if one.gpu.name == name)
    assert all(rate.source for rate in known.compute.tensor)
    assert all(tile.source for tile in known.compute.attention)
    assert known.compute.source


@pytest.mark.parametrize("known", UNMEASURED, ids=lambda known: known.gpu.name)
def test_its_tiles_are_no_faster_than_its_peak(known: KnownGpu) -> None:
    peak = next(rate.peak_flop_per_s for rate in known.compute.tensor if rate.dtype == "bf16")
    for tile in known.compute.attention:
        flop = 4 * tile.block_m * tile.block_n * tile.head_dim
        assert 0.3 < flop / tile.kv_tile_ns * 1e9 * (known.gpu.sm_count or 0) / peak < 1


@pytest.mark.usefixtures("few_configs")
@pytest.mark.parametrize("workload", [LAYER, ATTENTION], ids=["moe", "attention"])
@pytest.mark.parametrize("known", UNMEASURED, ids=lambda known: known.gpu.name)
def test_audit_and_search_work_and_say_what_they_rest_on(
    run_cli: RunCli, tmp_path: Path, known: KnownGpu, workload: tuple[str, ...]
) -> None:
    on_it = (*workload, "-p", calibrated(known, tmp_path))
    table = run_cli("audit", *on_it)
    assert table.exit_code == 0
    assert NOTE in table.stdout
    audited = json.loads(run_cli("audit", *on_it, "--format", "json").stdout)
    assert audited["compute_origin"] == "datasheet"
    searched = run_cli("search", *on_it, "--trials", "2", "--format", "json")
    assert searched.exit_code == 0
    assert NOTE in json.loads(searched.stdout)["assumed"]
    file = tmp_path / "tuned.json"
    assert run_cli("export", "-o", str(file)).exit_code == 0
    assert json.loads(file.read_text())["platform"]["compute_origin"] == "datasheet"


@pytest.mark.parametrize("known", UNMEASURED[:1], ids=lambda known: known.gpu.name)
def test_a_platform_and_an_emulation_show_it(run_cli: RunCli, tmp_path: Path, known: KnownGpu) -> None:
    file = calibrated(known, tmp_path)
    assert "datasheet" in run_cli("platforms", "show", file).stdout
    simulated = ("-p", file, "--device", "simulator", "--repeats", "1")
    assert NOTE in run_cli("emulate", *LAYER, *simulated).stdout
    given = run_cli("emulate", *LAYER, *simulated, "--tile-ns", "l1=25000,l2=12700")
    assert given.exit_code == 0
    assert NOTE not in given.stdout


def test_a_measured_gpu_does_not_say_so(run_cli: RunCli) -> None:
    assert NOTE not in run_cli("audit", *LAYER, "-p", "h200-host").stdout
    audited = json.loads(run_cli("audit", *LAYER, "-p", "h200-host", "--format", "json").stdout)
    assert audited["compute_origin"] == "measured"


def test_an_unknown_gpu_is_told_what_cannot_be_done_and_how_to_mend_it(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XSTAGE_QUIET", "")
    monkeypatch.setattr(opener, "open_cuda", lambda *_: FluidDevice(Fluid()))
    ran = run_cli("calibrate", "--budget", "quick", "--store-flavour", "st.v4")
    assert ran.exit_code == 0
    assert "has no compute section" in ran.stderr
    assert "xstage-tune platforms gpu fluid-1-host" in ran.stderr
    for command in ("audit", "search"):
        refused = run_cli(command, *LAYER, "-p", "fluid-1-host")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "fluid-1-host.toml) has no compute section" in refused.stderr
        assert "xstage-tune platforms gpu fluid-1-host" in refused.stderr
    written = run_cli("platforms", "gpu", "fluid-1-host")
    assert written.exit_code == 0
    assert Path(written.stdout.strip()).parent == user_gpus_dir()
    gpu = load_platform("fluid-1-host")
    assert gpu.compute is not None
    assert gpu.compute.origin == "datasheet"
    assert known_compute(gpu.gpu.identity) == gpu.compute
    audited = run_cli("audit", *LAYER, "-p", "fluid-1-host")
    assert "has no compute section" not in audited.stderr
