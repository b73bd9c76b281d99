"""``search --device emulate``: skeletons as a kernel device."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.configs.cases import attention_config, megamoe_config, moe
from tests.conftest import RunCli
from tests.emulation.gpu import HOST, SMALL, ScriptedGpu, use
from tests.h200 import H200
from xstage_tune.base.errors import DeviceError, FindingError, UsageError
from xstage_tune.devices.emulated_kernels import EmulatedKernels
from xstage_tune.devices.opener import open_kernels
from xstage_tune.devices.spec import SEARCH
from xstage_tune.families.kernel_launch import run_kernel
from xstage_tune.launches.device import Outcome

LAYER = moe(tokens_per_rank=128)
CONFIG = megamoe_config(block_m=64)


class Full(ScriptedGpu):
    """Whose shared memory holds nothing."""

    def run(self, launches: Iterable[Any]) -> Iterator[Outcome[Any, Any]]:
        del launches
        raise UsageError("2 staging slots do not fit: 1 fits")


def test_a_config_s_time_and_waits_are_those_of_its_skeleton() -> None:
    run = run_kernel(EmulatedKernels(ScriptedGpu(), HOST), LAYER, CONFIG, "host", 3)
    assert len(run.latency_ns) == len(run.stall_ns) == 3
    assert all(0 <= stall < latency for stall, latency in zip(run.stall_ns, run.latency_ns, strict=True))


def test_what_the_device_cannot_run_is_one_failed_config() -> None:
    with pytest.raises(DeviceError, match="do not fit: 1 fits"):
        run_kernel(EmulatedKernels(Full(), HOST), LAYER, CONFIG, "host")


def test_a_config_that_does_not_fit_the_workload_is_the_user_s() -> None:
    with pytest.raises(UsageError, match="does not fit the workload"):
        run_kernel(EmulatedKernels(ScriptedGpu(), HOST), LAYER, attention_config(), "host")


def test_data_that_did_not_arrive_end_the_search() -> None:
    kernels = EmulatedKernels(ScriptedGpu(mismatched_bytes=8), HOST)
    run_kernel(kernels, LAYER, CONFIG, "host")
    with pytest.raises(FindingError, match="did not arrive"):
        run_kernel(kernels, LAYER, CONFIG, "host")


def test_a_platform_of_another_gpu_is_refused() -> None:
    with pytest.raises(UsageError, match="has 108"):
        EmulatedKernels(ScriptedGpu(description=replace(H200, sm_count=108)), HOST)


def test_the_option_names_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ScriptedGpu())
    for spec in ("emulate", "emulate:0"):
        assert isinstance(open_kernels(SEARCH.parse(spec), HOST, print, kind="moe"), EmulatedKernels)
    with pytest.raises(UsageError, match="'emulate:x' names no GPU"):
        SEARCH.parse("emulate:x")


@pytest.mark.usefixtures("few_configs")
def test_a_search_says_what_it_ran_on(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ScriptedGpu())
    arguments = ("--platform", "h200-host", "--device", "emulate", "--trials", "4", "--format", "json")
    result = run_cli("search", *SMALL, *arguments)
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["device"].startswith("emulation on NVIDIA H200")
    assert found["evaluations"] >= 3  # the default and the heuristics at least


@pytest.mark.usefixtures("few_configs")
def test_another_gpu_s_platform_is_refused_unless_forced_and_then_marked(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, ScriptedGpu(description=replace(H200, name="NVIDIA H800")))
    arguments = ("search", *SMALL, "--platform", "h200-host", "--device", "emulate", "--trials", "3")
    refused = run_cli(*arguments)
    assert refused.exit_code == 2
    assert "name NVIDIA H200, not NVIDIA H800" in refused.stderr
    forced = run_cli(*arguments, "--force", "--format", "json")
    assert forced.exit_code == 0
    assert "another GPU: name NVIDIA H200, not NVIDIA H800" in json.loads(forced.stdout)["device"]
    file = tmp_path / "tuned.json"
    assert run_cli("export", "--study", "latest", "-o", str(file)).exit_code == 0
    platform = json.loads(file.read_text())["platform"]
    assert platform["other_gpu"].startswith("name NVIDIA H200, not NVIDIA H800")
    assert platform["gpu_identity"]["name"] == "NVIDIA H200"
