"""What the fused kernels of all families share on a GPU: how they are loaded, refused, leave spans."""

from __future__ import annotations

from functools import cache

import numpy as np
from cuda.bindings import driver
from cuda.core import Device, Kernel, ObjectCode, Stream

from xstage_tune.base.errors import DeviceError
from xstage_tune.base.spans import LANE_DTYPE, RECORD_DTYPE, SpanTable, decode_records
from xstage_tune.cuda.cache import cached_kernel
from xstage_tune.cuda.compiler import CompiledKernel, UnusableKernelError
from xstage_tune.cuda.driver import check
from xstage_tune.cuda.memory import GpuMemory
from xstage_tune.cuda.variants import KernelVariant

ARCHITECTURE = "sm_90a"
_HOPPER = 9


def compile_fused(variant: KernelVariant) -> CompiledKernel:
    """A variant for :data:`ARCHITECTURE`, from the cache where it was compiled before.

    Raises:
        DeviceError: there is no compiler.
    """
    return cached_kernel(variant.source, ARCHITECTURE, variant.defines, variant.names)


def load_kernels(device: Device, compiled: CompiledKernel) -> dict[str, Kernel]:
    """Kernels by name, loaded on ``device``, whose context is current: once, for good.

    Loaded now, not with the first launch, as the driver would do: that waits for what runs on the GPU, and a
    rank's kernel may wait there for what the same process does next.
    """
    symbols = {name: entry.symbol for name, entry in compiled.entries.items()}
    code = _load_code(device.device_id, compiled.cubin)
    kernels = {name: code.get_kernel(symbol) for name, symbol in symbols.items()}
    for name, kernel in kernels.items():
        function = check(driver.cuKernelGetFunction(driver.CUkernel(int(kernel.handle))), f"find '{name}'")
        check(driver.cuFuncLoad(function), f"load '{name}'")
    return kernels


@cache
def _load_code(device_id: int, cubin: bytes) -> ObjectCode:  # noqa: ARG001 - a part of the key
    """Code in the current context, that of ``device_id``: once, for good, since CUDA graphs may hold it."""
    return ObjectCode.from_cubin(cubin)


def require_hopper(device: Device, what: str) -> None:
    """Refuse a GPU that the fused kernels do not run on.

    Raises:
        DeviceError: its compute capability is another.
    """
    capability = device.compute_capability
    if capability.major != _HOPPER:
        raise DeviceError(
            f"{device.name} has compute capability {capability.major}.{capability.minor}: "
            f"the {what} kernel needs 9.0 (Hopper: H100, H200)",
            "use --device simulator, or another GPU",
        )


def require_clean(compiled: CompiledKernel, entry: str, label: str, hint: str) -> None:
    """Refuse a variant that spills or waits after every product: right but slow, and its gaps mean nothing.

    Args:
        entry: of the kernel in ``compiled``.
        label: of its config.
        hint: what compiles better.

    Raises:
        UnusableKernelError: says which of the two.
    """
    spilled = compiled.entries[entry].spill_bytes
    if spilled or compiled.warnings:
        reason = f"spills {spilled} bytes a thread" if spilled else compiled.warnings[0]
        raise UnusableKernelError(f"config {label} does not compile to a usable kernel: it {reason}", hint)


class SpanBuffers:
    """Buffers that a launch of a recording variant writes its spans to.

    Args:
        lanes: of the whole grid.
        capacity: spans of a lane.
    """

    def __init__(self, device: Device, lanes: int, capacity: int) -> None:
        self.capacity = capacity
        self._lanes = lanes
        self.lanes = GpuMemory(device, lanes * LANE_DTYPE.itemsize, device)
        self.spans = GpuMemory(device, lanes * capacity * RECORD_DTYPE.itemsize, device)

    def read(self, stream: Stream) -> SpanTable:
        """Spans of the last launch; waits for the stream."""
        lanes = np.zeros(self._lanes, LANE_DTYPE)
        self.lanes.read_into(lanes, stream)
        records = np.zeros((self._lanes, self.capacity), RECORD_DTYPE)
        self.spans.read_into(records, stream)
        return decode_records(records, lanes)

    def close(self) -> None:
        """Free the buffers; safe to call twice."""
        self.lanes.close()
        self.spans.close()
