"""State, identity and links of GPUs through NVML.

Virtual machines and containers support parts of NVML: what a call cannot tell is None, and nothing fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import pynvml

from xstage_tune.launches.device import GpuState

#: Bits of NVML's clock event mask.
_CLOCK_EVENTS: dict[int, str] = {
    0x001: "gpu_idle",
    0x002: "applications_clocks",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake",
    0x100: "display_clocks",
}
#: Transfers/s of a lane and the share of its bits that is data, by PCIe generation.
_PCIE_LANES: dict[int, tuple[float, float]] = {
    1: (2.5e9, 8 / 10),
    2: (5e9, 8 / 10),
    3: (8e9, 128 / 130),
    4: (16e9, 128 / 130),
    5: (32e9, 128 / 130),
    6: (64e9, 242 / 256),
}
#: Specified bytes/s of a link, one way, by NVML's number for the NVLink version (1.0 to 5.0).
_NVLINK_BYTES_PER_S: dict[int, float] = {1: 20e9, 2: 25e9, 3: 25e9, 4: 25e9, 5: 25e9, 6: 25e9, 7: 50e9}
#: Generation of NVLink by the same number: 2.0 and 2.2 are one, as are 3.0 and 3.1.
_NVLINK_GENERATION: dict[int, int] = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5}
#: Cores of an SM by compute capability (CUDA Programming Guide, arithmetic instructions); 128 elsewhere.
_CORES_OF_SM: dict[tuple[int, int], int] = {(7, 0): 64, (7, 5): 64, (8, 0): 64}
_USUAL_CORES_OF_SM = 128

# NVML's numbers: the binding's own name for the first is a tuple by a slip of its authors.
_P2P_READ, _P2P_WRITE, _P2P_NVLINK = 0, 1, 2

_PEER_STATUS: dict[int, str] = {
    0: "ok",
    1: "chipset not supported",
    2: "GPU not supported",
    3: "topology not supported",
    4: "disabled by the driver's settings",
    5: "not supported",
}


def decode_clock_events(mask: int) -> tuple[str, ...]:
    """Names of the bits of a clock event mask; a bit without a name is ``unknown_0x...``."""
    bits = (1 << index for index in range(mask.bit_length()) if mask >> index & 1)
    return tuple(_CLOCK_EVENTS.get(bit, f"unknown_{bit:#x}") for bit in bits)


@dataclass(frozen=True, slots=True)
class PcieLink:
    """PCIe link of a GPU. An idle GPU lowers ``generation`` to save power."""

    generation: int | None
    width: int | None
    max_generation: int | None
    max_width: int | None

    @property
    def max_bytes_per_s(self) -> float | None:
        """One-way rate of the best link that GPU and slot can form, before packet headers."""
        lane = _PCIE_LANES.get(self.max_generation or 0)
        if lane is None or self.max_width is None:
            return None
        transfers_per_s, data_share = lane
        return transfers_per_s * data_share / 8 * self.max_width


@dataclass(frozen=True, slots=True)
class NvLinks:
    """NVLink of a GPU."""

    active: int
    bytes_per_s: float | None  # specified, one way, all active links together
    generation: int | None = None  # None where links differ or none is active


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """What the driver says of access from one GPU to another: ``ok`` or a reason, None if it does not say."""

    read: str | None
    write: str | None
    nvlink: str | None


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """Identity and settings of a GPU of this machine, visible to CUDA or not."""

    name: str | None
    uuid: str | None
    pci_bus_id: str | None
    compute_capability: tuple[int, int] | None
    memory_bytes: int | None
    sm_count: int | None
    mig_enabled: bool | None
    mps_processes: int | None
    power_limit_watts: float | None
    max_sm_clock_mhz: int | None
    pcie: PcieLink
    nvlinks: NvLinks


class GpuMonitor:
    """Reads one GPU. Holds NVML open until :meth:`close`.

    Args:
        handle: NVML's handle; None where NVML or the GPU was not found, and then all is None.
    """

    def __init__(self, handle: Any | None) -> None:
        self._handle = handle

    @classmethod
    def open(cls, pci_bus_id: str) -> Self:
        """The GPU at a PCI address: CUDA's and NVML's numbers of a GPU may differ, its address does not."""
        if not _initialize():
            return cls(None)
        monitor = cls(_ask(pynvml.nvmlDeviceGetHandleByPciBusId, pci_bus_id))
        if monitor._handle is None:
            _ask(pynvml.nvmlShutdown)
        return monitor

    def close(self) -> None:
        """Let NVML go; safe to call twice."""
        if self._handle is not None:
            self._handle = None
            _ask(pynvml.nvmlShutdown)

    def state(self) -> GpuState | None:
        """Clocks, power, temperature and clock events now; None where NVML does not know the GPU."""
        if self._handle is None:
            return None
        power_milliwatts = self._read(pynvml.nvmlDeviceGetPowerUsage)
        events = self._read(pynvml.nvmlDeviceGetCurrentClocksEventReasons)
        return GpuState(
            sm_clock_mhz=self._read(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._read(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
            power_watts=None if power_milliwatts is None else power_milliwatts / 1000,
            temperature_c=self._read(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            throttle_reasons=decode_clock_events(events or 0),
        )

    def info(self) -> GpuInfo:
        """Identity, settings and links."""
        memory = self._read(pynvml.nvmlDeviceGetMemoryInfo)
        pci = self._read(pynvml.nvmlDeviceGetPciInfo)
        mig = self._read(pynvml.nvmlDeviceGetMigMode)
        mps = self._read(pynvml.nvmlDeviceGetMPSComputeRunningProcesses)
        power_milliwatts = self._read(pynvml.nvmlDeviceGetEnforcedPowerLimit)
        return GpuInfo(
            name=self._read(pynvml.nvmlDeviceGetName),
            uuid=self._read(pynvml.nvmlDeviceGetUUID),
            pci_bus_id=None if pci is None else _text(pci.busId),
            compute_capability=self._read(pynvml.nvmlDeviceGetCudaComputeCapability),
            memory_bytes=None if memory is None else int(memory.total),
            sm_count=self._sm_count(),
            mig_enabled=None if mig is None else mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE,
            mps_processes=None if mps is None else len(mps),
            power_limit_watts=None if power_milliwatts is None else power_milliwatts / 1000,
            max_sm_clock_mhz=self._read(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM),
            pcie=self.pcie(),
            nvlinks=self.nvlinks(),
        )

    def pcie(self) -> PcieLink:
        """The PCIe link; :attr:`PcieLink.max_bytes_per_s` bounds the ``host`` path."""
        return PcieLink(
            generation=self._read(pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
            width=self._read(pynvml.nvmlDeviceGetCurrPcieLinkWidth),
            max_generation=self._read(pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
            max_width=self._read(pynvml.nvmlDeviceGetMaxPcieLinkWidth),
        )

    def nvlinks(self) -> NvLinks:
        """The active NVLinks; their rate bounds the ``peer`` path."""
        links = range(pynvml.NVML_NVLINK_MAX_LINKS)
        active = [link for link in links if self._read(pynvml.nvmlDeviceGetNvLinkState, link)]
        versions = [self._read(pynvml.nvmlDeviceGetNvLinkVersion, link) for link in active]
        rates = [_NVLINK_BYTES_PER_S.get(version or 0) for version in versions]
        known = [rate for rate in rates if rate is not None]
        generations = {_NVLINK_GENERATION.get(version or 0) for version in versions}
        return NvLinks(
            active=len(active),
            bytes_per_s=sum(known) if active and len(known) == len(active) else None,
            generation=generations.pop() if len(generations) == 1 else None,
        )

    def slice_of(self, index: int = 0) -> GpuMonitor | None:
        """The GPU's ``index``-th MIG slice, for as long as this monitor is open; None where there is none."""
        handle = self._read(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, index)
        return None if handle is None else GpuMonitor(handle)

    def is_slice(self) -> bool | None:
        """Whether this is a MIG slice; None where NVML cannot tell."""
        answer = self._read(pynvml.nvmlDeviceIsMigDeviceHandle)
        return None if answer is None else bool(answer)

    def _sm_count(self) -> int | None:
        """SMs of a slice as NVML counts them, else by the GPU's cores: NVML does not count a GPU's SMs."""
        attributes = self._read(pynvml.nvmlDeviceGetAttributes)
        if attributes is not None:
            return int(attributes.multiprocessorCount)
        cores = self._read(pynvml.nvmlDeviceGetNumGpuCores)
        capability = self._read(pynvml.nvmlDeviceGetCudaComputeCapability)
        if cores is None or capability is None:
            return None
        return int(cores) // _CORES_OF_SM.get(tuple(capability), _USUAL_CORES_OF_SM)

    def peer_status(self, other: GpuMonitor) -> PeerStatus:
        """What the driver says of access from this GPU to ``other``."""

        def status(capability: int) -> str | None:
            if other._handle is None:
                return None
            answer = self._read(pynvml.nvmlDeviceGetP2PStatus, other._handle, capability)
            return None if answer is None else _PEER_STATUS.get(answer, "unknown")

        return PeerStatus(
            read=status(_P2P_READ),
            write=status(_P2P_WRITE),
            nvlink=status(_P2P_NVLINK),
        )

    def _read(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return None if self._handle is None else _ask(call, self._handle, *arguments)


def open_by_uuid(uuid: str) -> GpuMonitor | None:
    """The GPU or MIG slice of a UUID (``GPU-...``, ``MIG-...``); the caller closes it. None where none is."""
    if not _initialize():
        return None
    handle = _ask(pynvml.nvmlDeviceGetHandleByUUID, uuid)
    if handle is None:
        _ask(pynvml.nvmlShutdown)
        return None
    return GpuMonitor(handle)


def driver_version() -> str | None:
    """Version of the NVIDIA driver, e.g. ``580.82.07``; None where there is none."""
    if not _initialize():
        return None
    version = _ask(pynvml.nvmlSystemGetDriverVersion)
    _ask(pynvml.nvmlShutdown)
    return None if version is None else str(version)


def driver_cuda_version() -> tuple[int, int] | None:
    """Latest CUDA version (major, minor) that the driver supports; None where there is no driver."""
    if not _initialize():
        return None
    version = _ask(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    _ask(pynvml.nvmlShutdown)
    return None if version is None else (version // 1000, version % 1000 // 10)


def open_monitors() -> list[GpuMonitor]:
    """A monitor for every GPU of the machine, in NVML's order; the caller closes them."""
    if not _initialize():
        return []
    count = _ask(pynvml.nvmlDeviceGetCount) or 0
    handles = [_ask(pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
    monitors = []
    for handle in handles:
        # Each monitor takes its own reference, which its close() gives back.
        if handle is not None and _initialize():
            monitors.append(GpuMonitor(handle))
    _ask(pynvml.nvmlShutdown)
    return monitors


def _initialize() -> bool:
    """Take a reference on NVML, which counts them; False where it is not there."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return True


def _ask(call: Callable[..., Any], *arguments: Any) -> Any:
    """Answer of an NVML call; None where it has none."""
    try:
        return call(*arguments)
    except pynvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
