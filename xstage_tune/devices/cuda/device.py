"""The CUDA device: runs burst points on a GPU and has the owner verify what arrived."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Self

import numpy as np
import nvtx
from cuda.bindings import driver
from cuda.core import Device, Kernel, ObjectCode

from xstage_tune.devices.base import (
    BurstPoint,
    BurstRun,
    CopyRate,
    DeviceDescription,
    LaunchInfo,
    StoreFlavour,
    StorePath,
)
from xstage_tune.devices.cuda.bursts import BurstKernels, BurstLauncher
from xstage_tune.devices.cuda.cache import cached_kernel
from xstage_tune.devices.cuda.compiler import CompiledKernel, nvrtc_version
from xstage_tune.devices.cuda.destination import (
    Destination,
    find_peer,
    measure_copy_rate,
    open_destination,
    ring_layout,
)
from xstage_tune.devices.cuda.driver import allow_shared_memory, check, launch, synchronize
from xstage_tune.devices.cuda.memory import GpuMemory
from xstage_tune.devices.cuda.nvml import GpuMonitor, driver_version
from xstage_tune.devices.cuda.pattern import nonce
from xstage_tune.devices.cuda.variants import VERIFY, KernelVariant, bursts_variant
from xstage_tune.errors import DeviceError

#: All rings together: several times the largest L2, so that no lap's stores merge with those of the last.
DESTINATION_BYTES = 512 << 20
#: Left for what the burst kernels declare statically. Two CTAs still do not fit one SM.
_STATIC_SHARED_BYTES = 1024
_TICK_TIMEOUT_S = 5.0


class CudaDevice:
    """One GPU of this process, as a :class:`~xstage_tune.devices.base.BurstDevice`.

    Bound to the thread that opened it: CUDA's current device is the thread's.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        device.set_current()
        self._stream = device.create_stream()
        self._architecture = _architecture(device)
        self._monitor = GpuMonitor.open(device.pci_bus_id)
        shared_bytes = int(device.properties.max_shared_memory_per_block_optin) - _STATIC_SHARED_BYTES
        self._launcher = BurstLauncher(device, self._stream, shared_bytes)
        self._destinations: dict[StorePath, Destination] = {}
        self._flavours: dict[StoreFlavour, tuple[BurstKernels, CompiledKernel]] = {}
        self._label = "unlabelled"
        self._number = 0  # of the next launch, since it was labelled
        self._launches = 0

    @classmethod
    def open(cls, index: int) -> Self:
        """The ``index``-th GPU that this process sees.

        Raises:
            DeviceError: no driver, no such GPU.
        """
        try:
            check(driver.cuInit(0), "initialise the CUDA driver")
        except RuntimeError as error:  # the driver's library is not found
            reason = str(error).splitlines()[0]
            raise DeviceError(f"no NVIDIA driver: {reason}", "install it, or use --device replay") from None
        count = check(driver.cuDeviceGetCount(), "count the GPUs")
        if not 0 <= index < count:
            raise DeviceError(
                f"no GPU {index}: this process sees {count} (CUDA_VISIBLE_DEVICES may hide some)",
                "xstage-tune doctor lists them",
            )
        return cls(Device(index))

    def describe(self) -> DeviceDescription:
        """Identity of the GPU, its driver and its links."""
        properties = self._device.properties
        info = self._monitor.info()
        nvrtc = nvrtc_version()
        cuda = check(driver.cuDriverGetVersion(), "read the driver's CUDA version")
        limits = {"host_bytes_per_s": info.pcie.max_bytes_per_s, "peer_bytes_per_s": info.nvlinks.bytes_per_s}
        link: dict[str, str | int | float] = {key: rate for key, rate in limits.items() if rate is not None}
        if info.pcie.max_generation is not None and info.pcie.max_width is not None:
            link["pcie"] = f"Gen{info.pcie.max_generation} x{info.pcie.max_width}"
        if info.nvlinks.active:
            link["nvlinks"] = info.nvlinks.active
        return DeviceDescription(
            kind="cuda",
            name=self._device.name,
            uuid=str(self._device.uuid),
            architecture=self._architecture,
            sm_count=int(properties.multiprocessor_count),
            l2_bytes=int(properties.l2_cache_size),
            memory_bytes=int(check(driver.cuDeviceTotalMem(self._device.device_id), "read the memory size")),
            max_sm_clock_mhz=int(properties.clock_rate) // 1000,
            driver=driver_version() or "",
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
            nvrtc=f"{nvrtc[0]}.{nvrtc[1]}",
            paths=self._paths(),
            link=link,
        )

    def label_launches(self, run_id: str) -> None:
        """See :class:`~xstage_tune.devices.base.BurstDevice`."""
        self._label = run_id
        self._number = 0

    def copy_rate(self, path: StorePath) -> CopyRate:
        """Rate of the copy engine into the destination of ``path``."""
        return measure_copy_rate(path, self._destination(path), self._device, self._stream)

    def run_bursts(self, points: Sequence[BurstPoint]) -> Iterator[BurstRun]:
        """See :class:`~xstage_tune.devices.base.BurstDevice`."""
        for point in points:
            yield self._run_point(point)

    def close(self) -> None:
        """Free all memory on all owners; safe to call twice."""
        for destination in self._destinations.values():
            destination.close()
        self._destinations.clear()
        self._launcher.close()
        self._monitor.close()

    def _run_point(self, point: BurstPoint) -> BurstRun:
        destination = self._destination(point.path)
        kernels, compiled = self._kernels_of(point.flavour)
        entry = compiled.entries[f"{point.mode}_bursts"]
        number, launch_nonce = self._number, nonce(self._launches)
        layout = ring_layout(destination.nbytes, point, self._launches)
        self._number += 1
        self._launches += 1
        before = self._monitor.state()
        started_at = datetime.now(UTC).isoformat(timespec="microseconds")
        started_ns = time.perf_counter_ns()
        with nvtx.annotate(
            f"{self._label}/{number}", domain="xstage-tune", category=point.mode, payload=number
        ):
            table = self._launcher.run(kernels, point, destination, layout, launch_nonce)
        info = LaunchInfo(
            kernel=f"{point.mode}_bursts[{point.flavour}]",
            kernel_sha256=compiled.sha256,
            registers=entry.registers,
            spill_bytes=entry.spill_bytes,
            shared_bytes=self._launcher.shared_bytes,
            timer_tick_ns=self._timer_tick_ns,
            elapsed_ns=time.perf_counter_ns() - started_ns,
            started_at=started_at,
            before=before,
            after=self._monitor.state(),
        )
        verification = destination.verify(layout, table.lanes["issued"], launch_nonce)
        return BurstRun(point, table, verification, info)

    def _paths(self) -> tuple[StorePath, ...]:
        try:
            find_peer(self._device)
        except DeviceError:
            return ("host", "local")
        return ("peer", "host", "local")

    def _destination(self, path: StorePath) -> Destination:
        if path not in self._destinations:
            self._destinations[path] = open_destination(
                path, DESTINATION_BYTES, self._device, self._verify_kernel
            )
        return self._destinations[path]

    def _kernels_of(self, flavour: StoreFlavour) -> tuple[BurstKernels, CompiledKernel]:
        if flavour not in self._flavours:
            kernels, compiled = self._load(bursts_variant(flavour))
            loaded = BurstKernels(*(kernels[name] for name in bursts_variant(flavour).names))
            for kernel in (loaded.periodic, loaded.isolated):
                allow_shared_memory(kernel, self._launcher.shared_bytes, self._device)
            self._flavours[flavour] = (loaded, compiled)
        return self._flavours[flavour]

    @cached_property
    def _verify_kernel(self) -> Kernel:
        return self._load(VERIFY)[0]["verify_bursts"]

    @cached_property
    def _timer_tick_ns(self) -> int:
        """Resolution of the global timer: 32 ns on H200, about 1 us on older parts."""
        tick_ns = np.zeros(1, np.uint64)
        memory = GpuMemory(self._device, tick_ns.nbytes, self._device)
        try:
            argument = np.array([memory.address], np.uint64)
            launch(
                self._kernels_of("st.v4")[0].timer_tick,
                self._stream,
                grid=(1, 1),
                threads=1,
                shared_bytes=0,
                arguments=argument,
                cooperative=False,
            )
            synchronize(self._stream, _TICK_TIMEOUT_S, "the timer-tick kernel")
            memory.read_into(tick_ns, self._stream)
        finally:
            memory.close()
        return int(tick_ns[0])

    def _load(self, variant: KernelVariant) -> tuple[dict[str, Kernel], CompiledKernel]:
        """The kernels of a variant by name, compiled for this GPU or taken from the cache."""
        compiled = cached_kernel(variant.source, self._architecture, variant.defines, variant.names)
        code = ObjectCode.from_cubin(compiled.cubin)
        kernels = {name: code.get_kernel(entry.symbol) for name, entry in compiled.entries.items()}
        return kernels, compiled


def _architecture(device: Device) -> str:
    """Compile target of a GPU; from Hopper on with the features of that architecture alone."""
    capability = device.compute_capability
    return f"sm_{capability.major}{capability.minor}" + ("a" if capability.major >= 9 else "")
