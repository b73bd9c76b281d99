"""The GPU that is present, by a stand-in for NVML, and that of a device that was opened or recorded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tests.devices.fake_nvml import FakeNvml
from tests.h200 import H200
from xstage_tune.cuda import nvml
from xstage_tune.devices.present_gpu import present_gpu
from xstage_tune.launches.gpu_identity import identity_of
from xstage_tune.launches.recording import recording_file
from xstage_tune.launches.replay import ReplayedDevice
from xstage_tune.platforms.gpus import compare
from xstage_tune.platforms.identity import GpuIdentity, GpuLink
from xstage_tune.platforms.loader import load_platform

MACHINE: dict[str, Any] = {
    "nvmlDeviceGetCount": 2,
    "nvmlDeviceGetHandleByIndex": lambda index: f"gpu {index}",
    "nvmlDeviceGetName": "NVIDIA H200",
    "nvmlDeviceGetNumGpuCores": 16_896,
    "nvmlDeviceGetCudaComputeCapability": (9, 0),
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=143_771 << 20),
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceIsMigDeviceHandle": 0,
    "nvmlDeviceGetNvLinkState": lambda _, link: int(link < 18),
    "nvmlDeviceGetNvLinkVersion": pynvml.NVML_NVLINK_VERSION_4_0,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
}
SLICE = "slice"


def of_slice(of_it: object, of_gpu: object) -> Callable[..., object]:
    return lambda handle, *_: of_it if handle == SLICE else of_gpu


def fails(*_: object) -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def attributes(handle: object) -> object:
    """NVML counts the SMs of slices alone."""
    return SimpleNamespace(multiprocessorCount=16) if handle == SLICE else fails()


SLICED: dict[str, Any] = MACHINE | {
    "nvmlDeviceGetMigMode": lambda handle: fails() if handle == SLICE else [1, 1],
    "nvmlDeviceIsMigDeviceHandle": of_slice(1, 0),
    "nvmlDeviceGetMigDeviceHandleByIndex": lambda _, index: SLICE if index == 0 else fails(),
    "nvmlDeviceGetHandleByUUID": lambda uuid: SLICE if uuid == "MIG-1" else fails(),
    "nvmlDeviceGetName": of_slice("NVIDIA H200 MIG 1g.18gb", "NVIDIA H200"),
    "nvmlDeviceGetMemoryInfo": of_slice(SimpleNamespace(total=16 << 30), SimpleNamespace(total=140 << 30)),
    "nvmlDeviceGetAttributes": attributes,
}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeNvml]:
    """A machine whose NVML gives these answers."""

    def install(answers: dict[str, Any], *, present: bool = True) -> FakeNvml:
        fake = FakeNvml(answers, present)
        monkeypatch.setattr(nvml, "pynvml", fake)
        return fake

    return install


def test_the_gpu_of_a_machine(machine: Callable[..., FakeNvml]) -> None:
    fake = machine(MACHINE)
    assert present_gpu({}) == GpuIdentity(
        name="NVIDIA H200",
        form_factor="SXM",
        sm_count=132,
        memory_bytes=143_771 << 20,
        nvlink=GpuLink(generation=4, count=18),
        pcie=GpuLink(generation=5, count=16),
        mig=False,
    )
    assert fake.references == 0


@pytest.mark.parametrize("path", ["h200-host", "h200-peer"])
def test_it_is_the_one_that_the_shipped_profiles_are_of(machine: Callable[..., FakeNvml], path: str) -> None:
    machine(MACHINE)
    found, profile = present_gpu({}), load_platform(path)
    assert found is not None
    assert compare(profile.gpu.identity, found, profile.path).same


def test_a_sliced_gpu_is_its_first_slice(machine: Callable[..., FakeNvml]) -> None:
    fake = machine(SLICED)
    found = present_gpu({})
    assert found is not None
    assert (found.name, found.mig, found.sm_count) == ("NVIDIA H200 MIG 1g.18gb", True, 16)
    assert found.memory_bytes == 16 << 30
    assert fake.references == 0


def test_a_slice_that_is_named(machine: Callable[..., FakeNvml]) -> None:
    fake = machine(SLICED)
    found = present_gpu({"CUDA_VISIBLE_DEVICES": "MIG-1"})
    assert found is not None
    assert (found.name, found.mig, found.sm_count) == ("NVIDIA H200 MIG 1g.18gb", True, 16)
    assert present_gpu({"CUDA_VISIBLE_DEVICES": "MIG-2"}) is None
    assert fake.references == 0


def test_cuda_visible_devices_chooses(machine: Callable[..., FakeNvml]) -> None:
    machine(MACHINE | {"nvmlDeviceGetName": lambda handle: {"gpu 1": "NVIDIA H20"}.get(handle, "other")})
    second = present_gpu({"CUDA_VISIBLE_DEVICES": "1,0"})
    assert second is not None
    assert second.name == "NVIDIA H20"
    assert present_gpu({"CUDA_VISIBLE_DEVICES": ""}) is None
    assert present_gpu({"CUDA_VISIBLE_DEVICES": "2"}) is None
    assert present_gpu({"CUDA_VISIBLE_DEVICES": "-1"}) is None


def test_no_driver_no_gpu(machine: Callable[..., FakeNvml]) -> None:
    machine({}, present=False)
    assert present_gpu({}) is None


def test_a_gpu_that_was_lent_alone_does_not_say_that_it_has_no_nvlink(
    machine: Callable[..., FakeNvml],
) -> None:
    machine(MACHINE | {"nvmlDeviceGetNvLinkState": 0})
    found = present_gpu({})
    assert found is not None
    assert found.nvlink is None


def test_asking_loads_neither_torch_nor_the_store_nor_cuda() -> None:
    code = (
        "import sys; from xstage_tune.devices.present_gpu import present_gpu; present_gpu();"
        "print([name for name in ('torch', 'sqlalchemy', 'cuda', 'scipy', 'optuna') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_recorded_gpu() -> None:
    replay = ReplayedDevice(recording_file("h200-host", "calibrate"), "calibrate")
    identity = identity_of(replay.describe())
    replay.close()
    assert identity == GpuIdentity(
        name="NVIDIA H200",
        form_factor="SXM",
        sm_count=132,
        memory_bytes=150_109_880_320,
        nvlink=GpuLink(count=18),
        pcie=GpuLink(generation=5, count=16),
    )


def test_a_slice_that_cuda_opened() -> None:
    assert identity_of(replace(H200, name="NVIDIA H200 MIG 3g.71gb", sm_count=60)).mig is True
    assert identity_of(replace(H200, mig=False)).mig is False
