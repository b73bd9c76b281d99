"""GPU state through NVML, with a stand-in for the library: whole, partial and absent."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tests.devices.fake_nvml import FakeNvml
from xstage_tune.cuda import nvml
from xstage_tune.cuda.nvml import GpuMonitor, NvLinks, PcieLink, decode_clock_events
from xstage_tune.launches.device import throttling

ADDRESS = "0000:65:00.0"


InstallNvml = Callable[..., FakeNvml]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> InstallNvml:
    """Put a fake NVML with the given answers in place of the real one."""

    def install(*, present: bool = True, **answers: Any) -> FakeNvml:
        fake = FakeNvml(answers, present)
        monkeypatch.setattr(nvml, "pynvml", fake)
        return fake

    return install


def handle_of(address: str) -> str:
    if address != ADDRESS:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
    return "gpu"


STATE = {
    "nvmlDeviceGetHandleByPciBusId": handle_of,
    "nvmlDeviceGetClockInfo": lambda _, clock: {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 3201}[
        clock
    ],
    "nvmlDeviceGetPowerUsage": 312_500,
    "nvmlDeviceGetTemperature": 41,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x24,
}


def test_state_is_in_the_units_of_its_names(install: InstallNvml) -> None:
    install(**STATE)
    state = GpuMonitor.open(ADDRESS).state()
    assert state is not None
    assert (state.sm_clock_mhz, state.memory_clock_mhz, state.power_watts, state.temperature_c) == (
        1980,
        3201,
        312.5,
        41,
    )
    assert state.throttle_reasons == ("sw_power_cap", "sw_thermal_slowdown")


def test_state_without_clock_events_has_no_throttle_reasons(install: InstallNvml) -> None:
    install(**{name: answer for name, answer in STATE.items() if not name.endswith("EventReasons")})
    state = GpuMonitor.open(ADDRESS).state()
    assert state is not None
    assert state.throttle_reasons == ()


@pytest.mark.parametrize(
    ("missing", "unknown"),
    [
        ("nvmlDeviceGetClockInfo", {"sm_clock_mhz", "memory_clock_mhz"}),
        ("nvmlDeviceGetPowerUsage", {"power_watts"}),
        ("nvmlDeviceGetTemperature", {"temperature_c"}),
    ],
)
def test_state_without_a_reading_keeps_the_others(
    install: InstallNvml, missing: str, unknown: set[str]
) -> None:
    install(**{name: answer for name, answer in STATE.items() if name != missing})
    state = GpuMonitor.open(ADDRESS).state()
    assert state is not None
    assert {name for name, value in asdict(state).items() if value is None} == unknown
    assert state.throttle_reasons == ("sw_power_cap", "sw_thermal_slowdown")


@pytest.mark.parametrize(("present", "address"), [(False, ADDRESS), (True, "0000:66:00.0")])
def test_monitor_of_nothing_answers_none_and_holds_nothing(
    install: InstallNvml, present: bool, address: str
) -> None:
    fake = install(present=present, **STATE)
    monitor = GpuMonitor.open(address)
    assert monitor.state() is None
    assert monitor.info().name is None
    assert monitor.pcie().max_bytes_per_s is None
    monitor.close()
    assert fake.references == 0


def test_closing_twice_gives_one_reference_back(install: InstallNvml) -> None:
    fake = install(**STATE)
    monitor = GpuMonitor.open(ADDRESS)
    assert fake.references == 1
    monitor.close()
    monitor.close()
    assert fake.references == 0
    assert monitor.state() is None


def test_info_of_a_virtual_machine_that_supports_only_names(install: InstallNvml) -> None:
    install(nvmlDeviceGetHandleByPciBusId=handle_of, nvmlDeviceGetName="NVIDIA H200")
    info = GpuMonitor.open(ADDRESS).info()
    assert info.name == "NVIDIA H200"
    assert (info.mig_enabled, info.memory_bytes, info.power_limit_watts, info.mps_processes) == (None,) * 4
    assert info.nvlinks == NvLinks(0, None)


def test_info_of_a_whole_gpu(install: InstallNvml) -> None:
    install(
        nvmlDeviceGetHandleByPciBusId=handle_of,
        nvmlDeviceGetPciInfo=SimpleNamespace(busId=ADDRESS.encode()),
        nvmlDeviceGetMemoryInfo=SimpleNamespace(total=150_000_000_000),
        nvmlDeviceGetMigMode=[1, 1],
        nvmlDeviceGetMPSComputeRunningProcesses=[object(), object()],
        nvmlDeviceGetEnforcedPowerLimit=700_000,
        nvmlDeviceGetCudaComputeCapability=(9, 0),
    )
    info = GpuMonitor.open(ADDRESS).info()
    assert info.pci_bus_id == ADDRESS
    assert info.memory_bytes == 150_000_000_000
    assert info.mig_enabled is True
    assert info.mps_processes == 2
    assert info.power_limit_watts == 700.0
    assert info.compute_capability == (9, 0)


def test_nvlink_rate_is_that_of_the_active_links(install: InstallNvml) -> None:
    install(
        nvmlDeviceGetHandleByPciBusId=handle_of,
        nvmlDeviceGetNvLinkState=lambda _, link: int(link < 18),
        nvmlDeviceGetNvLinkVersion=pynvml.NVML_NVLINK_VERSION_4_0,
    )
    assert GpuMonitor.open(ADDRESS).nvlinks() == NvLinks(18, 450e9, 4)  # H100's specified rate, one way


def test_nvlink_of_an_unknown_version_has_no_rate(install: InstallNvml) -> None:
    install(
        nvmlDeviceGetHandleByPciBusId=handle_of,
        nvmlDeviceGetNvLinkState=lambda _, link: int(link < 2),
        nvmlDeviceGetNvLinkVersion=99,
    )
    assert GpuMonitor.open(ADDRESS).nvlinks() == NvLinks(2, None)


@pytest.mark.parametrize(
    ("generation", "width", "gigabytes_per_s"),
    [(1, 16, 4.0), (3, 16, 15.754), (4, 16, 31.508), (5, 16, 63.015), (5, 8, 31.508), (6, 16, 121.0)],
)
def test_pcie_rate_after_line_coding(generation: int, width: int, gigabytes_per_s: float) -> None:
    link = PcieLink(generation=1, width=1, max_generation=generation, max_width=width)
    assert link.max_bytes_per_s == pytest.approx(gigabytes_per_s * 1e9, rel=1e-3)


@pytest.mark.parametrize(
    "link", [PcieLink(5, 16, None, 16), PcieLink(5, 16, 5, None), PcieLink(5, 16, 99, 16)]
)
def test_pcie_rate_of_an_unknown_link_is_none(link: PcieLink) -> None:
    assert link.max_bytes_per_s is None


def test_peer_status_says_why_there_is_no_access(install: InstallNvml) -> None:
    def p2p_status(_: str, __: str, capability: int) -> int:
        # As ctypes would: the driver takes a number and nothing else.
        return {0: 0, 1: 3}.get(ctypes.c_uint(capability).value, 99)

    install(nvmlDeviceGetHandleByPciBusId=handle_of, nvmlDeviceGetP2PStatus=p2p_status)
    monitor = GpuMonitor.open(ADDRESS)
    status = monitor.peer_status(GpuMonitor.open(ADDRESS))
    assert (status.read, status.write, status.nvlink) == ("ok", "topology not supported", "unknown")
    assert monitor.peer_status(GpuMonitor(None)).read is None


def test_monitors_of_all_gpus_hold_one_reference_each(install: InstallNvml) -> None:
    fake = install(nvmlDeviceGetCount=2, nvmlDeviceGetHandleByIndex=lambda index: f"gpu{index}")
    monitors = nvml.open_monitors()
    assert len(monitors) == fake.references == 2
    for monitor in monitors:
        monitor.close()
    assert fake.references == 0


def test_driver_versions(install: InstallNvml) -> None:
    fake = install(nvmlSystemGetDriverVersion="580.82.07", nvmlSystemGetCudaDriverVersion_v2=13010)
    assert nvml.driver_version() == "580.82.07"
    assert nvml.driver_cuda_version() == (13, 1)
    assert fake.references == 0
    install(present=False)
    assert nvml.driver_version() is None
    assert nvml.driver_cuda_version() is None


@pytest.mark.parametrize(
    ("mask", "names", "slows"),
    [
        (0, (), False),
        (0x1, ("gpu_idle",), False),
        (0x2 | 0x100, ("applications_clocks", "display_clocks"), False),
        (0x10, ("sync_boost",), False),
        (0x4, ("sw_power_cap",), True),
        (0x8, ("hw_slowdown",), True),
        (0x20, ("sw_thermal_slowdown",), True),
        (0x40, ("hw_thermal_slowdown",), True),
        (0x80 | 0x1, ("gpu_idle", "hw_power_brake"), True),
        (0x1000, ("unknown_0x1000",), False),
    ],
)
def test_clock_events_are_named_and_only_some_are_throttling(
    mask: int, names: tuple[str, ...], slows: bool
) -> None:
    assert decode_clock_events(mask) == names
    assert bool(throttling(names)) is slows
