"""One GPU of this process: its identity, its kernels, the memory that it stores to, and labelled launches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Self, TypeVar

import numpy as np
import nvtx
from cuda.bindings import driver
from cuda.core import Device, Kernel, ObjectCode

from xstage_tune.base.errors import DeviceError
from xstage_tune.base.fabric import StorePath
from xstage_tune.cuda.cache import cached_kernel
from xstage_tune.cuda.compiler import CompiledKernel, nvrtc_version
from xstage_tune.cuda.destination import Destination, find_peer, open_destination
from xstage_tune.cuda.driver import allow_shared_memory, check, launch, synchronize
from xstage_tune.cuda.memory import GpuMemory
from xstage_tune.cuda.nvml import GpuMonitor, driver_version
from xstage_tune.cuda.variants import KernelVariant, bursts_variant
from xstage_tune.launches.device import DeviceDescription, GpuState, LaunchInfo
from xstage_tune.platforms.identity import is_slice_name

#: All rings together: several times the largest L2, so that no lap's stores merge with those of the last.
DESTINATION_BYTES = 512 << 20
#: Left for what kernels declare statically. Two CTAs still do not fit one SM.
_STATIC_SHARED_BYTES = 1024
_TICK_TIMEOUT_S = 5.0

Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class LoadedVariant:
    """A file of kernels, on the GPU."""

    kernels: dict[str, Kernel]
    compiled: CompiledKernel


class Gpu:
    """What every use of a GPU shares.

    Bound to the thread that opened it: CUDA's current device is the thread's.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        device.set_current()
        self.stream = device.create_stream()
        self.architecture = _architecture(device)
        self.sm_count = int(device.properties.multiprocessor_count)
        #: Dynamic shared memory of a CTA that leaves no room for a second on its SM.
        self.shared_bytes = int(device.properties.max_shared_memory_per_block_optin) - _STATIC_SHARED_BYTES
        #: Launches measured so far.
        self.launches = 0
        self._monitor = GpuMonitor.open(device.pci_bus_id)
        self._destinations: dict[StorePath, Destination] = {}
        self._variants: dict[tuple[object, ...], LoadedVariant] = {}
        self._label = "unlabelled"
        self._number = 0  # of the next launch, since it was labelled

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
        properties = self.device.properties
        info = self._monitor.info()
        nvrtc = nvrtc_version()
        cuda = check(driver.cuDriverGetVersion(), "read the driver's CUDA version")
        limits = {"host_bytes_per_s": info.pcie.max_bytes_per_s, "peer_bytes_per_s": info.nvlinks.bytes_per_s}
        link: dict[str, str | int | float] = {key: rate for key, rate in limits.items() if rate is not None}
        if info.pcie.max_generation is not None and info.pcie.max_width is not None:
            link["pcie"] = f"Gen{info.pcie.max_generation} x{info.pcie.max_width}"
        if info.nvlinks.active:
            link["nvlinks"] = info.nvlinks.active
        if info.nvlinks.generation is not None:
            link["nvlink_generation"] = info.nvlinks.generation
        return DeviceDescription(
            kind="cuda",
            name=self.device.name,
            uuid=str(self.device.uuid),
            architecture=self.architecture,
            sm_count=self.sm_count,
            l2_bytes=int(properties.l2_cache_size),
            memory_bytes=int(check(driver.cuDeviceTotalMem(self.device.device_id), "read the memory size")),
            max_sm_clock_mhz=int(properties.clock_rate) // 1000,
            driver=driver_version() or "",
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
            nvrtc=f"{nvrtc[0]}.{nvrtc[1]}",
            paths=self._paths(),
            link=link,
            mig=info.mig_enabled or is_slice_name(self.device.name),
        )

    def state(self) -> GpuState | None:
        """Clocks, power and throttling now; None where NVML does not know the GPU."""
        return self._monitor.state()

    def label_launches(self, run_id: str) -> None:
        """See :class:`~xstage_tune.launches.device.Device`."""
        self._label = run_id
        self._number = 0

    def load(self, variant: KernelVariant) -> LoadedVariant:
        """The kernels of a variant, compiled for this GPU or taken from the cache; loaded once."""
        key = (variant.source, variant.names, *sorted(variant.defines.items()))
        if key not in self._variants:
            compiled = cached_kernel(variant.source, self.architecture, variant.defines, variant.names)
            code = ObjectCode.from_cubin(compiled.cubin)
            kernels = {name: code.get_kernel(entry.symbol) for name, entry in compiled.entries.items()}
            self._variants[key] = LoadedVariant(kernels, compiled)
        return self._variants[key]

    def load_kernel(self, variant: KernelVariant) -> Kernel:
        """The kernel of a variant of one."""
        (name,) = variant.names
        return self.load(variant).kernels[name]

    def allow_shared_bytes(self, kernel: Kernel) -> None:
        """Let a kernel be launched with all of :attr:`shared_bytes`."""
        allow_shared_memory(kernel, self.shared_bytes, self.device)

    def destination(self, path: StorePath) -> Destination:
        """The owner's memory of a path, allocated once.

        Raises:
            DeviceError: there is no such owner, or too little memory.
        """
        if path not in self._destinations:
            self._destinations[path] = self.new_destination(path, DESTINATION_BYTES)
        return self._destinations[path]

    def new_destination(self, path: StorePath, nbytes: int) -> Destination:
        """Memory of the owner of a path that the caller frees.

        Raises:
            DeviceError: there is no such owner, or too little memory.
        """
        return open_destination(path, nbytes, self.device, self.load_kernel)

    def measure(
        self,
        run: Callable[[], Outcome],
        *,
        kernel: str,
        compiled: CompiledKernel,
        entry: str,
        category: str,
        producers: int,
        launches: int = 1,
    ) -> tuple[Outcome, LaunchInfo]:
        """Run a launch inside its NVTX range, with the GPU's state before and after.

        Args:
            run: launches and waits.
            kernel: name of the launch in results.
            entry: its entry in ``compiled``.
            category: of the range.
            producers: SMs that take part.
            launches: how many of the run's launches this makes; the range has the first one's number.
        """
        number = self._number
        self._number += launches
        self.launches += launches
        tick_ns = self._timer_tick_ns
        before = self._monitor.state()
        started_at = datetime.now(UTC).isoformat(timespec="microseconds")
        started_ns = time.perf_counter_ns()
        with nvtx.annotate(
            f"{self._label}/{number}", domain="xstage-tune", category=category, payload=number
        ):
            outcome = run()
        return outcome, LaunchInfo(
            kernel=kernel,
            kernel_sha256=compiled.sha256,
            registers=compiled.entries[entry].registers,
            spill_bytes=compiled.entries[entry].spill_bytes,
            shared_bytes=self.shared_bytes,
            timer_tick_ns=tick_ns,
            elapsed_ns=time.perf_counter_ns() - started_ns,
            started_at=started_at,
            before=before,
            after=self._monitor.state(),
            producers=producers,
        )

    def close(self) -> None:
        """Free all memory on all owners; safe to call twice."""
        for destination in self._destinations.values():
            destination.close()
        self._destinations.clear()
        self._monitor.close()

    def _paths(self) -> tuple[StorePath, ...]:
        try:
            find_peer(self.device)
        except DeviceError:
            return ("host", "local")
        return ("peer", "host", "local")

    @cached_property
    def _timer_tick_ns(self) -> int:
        """Resolution of the global timer: 32 ns on H200, about 1 us on older parts."""
        tick_ns = np.zeros(1, np.uint64)
        memory = GpuMemory(self.device, tick_ns.nbytes, self.device)
        try:
            argument = np.array([memory.address], np.uint64)
            launch(
                self.load(bursts_variant("st.v4")).kernels["timer_tick"],
                self.stream,
                grid=(1, 1),
                threads=1,
                shared_bytes=0,
                arguments=argument,
                cooperative=False,
            )
            synchronize(self.stream, _TICK_TIMEOUT_S, "the timer-tick kernel")
            memory.read_into(tick_ns, self.stream)
        finally:
            memory.close()
        return int(tick_ns[0])


def _architecture(device: Device) -> str:
    """Compile target of a GPU; from Hopper on with the features of that architecture alone."""
    capability = device.compute_capability
    return f"sm_{capability.major}{capability.minor}" + ("a" if capability.major >= 9 else "")
