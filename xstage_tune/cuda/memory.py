"""Memory of the three kinds of owner: this GPU, another GPU, the host."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from cuda.bindings import driver
from cuda.core import Device, Stream
from numpy.typing import NDArray

from xstage_tune.base.errors import DeviceError
from xstage_tune.cuda.driver import check, synchronize

#: Bytes that no pattern contains in a row of four, so that an unwritten word cannot pass for a written one.
POISON_WORD = 0xDEADBEEF
_COPY_TIMEOUT_S = 10.0
#: Left free: the driver's own, kernels, graphs and spans.
RESERVE_BYTES = 512 << 20
_MEMINFO = Path("/proc/meminfo")


class GpuMemory:
    """``nbytes`` of one GPU's memory, poisoned. Leaves the calling thread's current device alone."""

    def __init__(self, device: Device, nbytes: int, current: Device) -> None:
        device.set_current()
        try:
            self.address = int(check(driver.cuMemAlloc(nbytes), f"allocate {nbytes} bytes on {device.name}"))
            check(driver.cuMemsetD32(self.address, POISON_WORD, nbytes // 4), "poison GPU memory")
            _await_fill()
        finally:
            current.set_current()
        self.nbytes = nbytes

    @classmethod
    def zeroed(cls, device: Device, nbytes: int) -> Self:
        """Zeros instead of poison, in memory of the current device."""
        memory = cls(device, nbytes, device)
        check(driver.cuMemsetD8(memory.address, 0, nbytes), "clear GPU memory")
        _await_fill()
        return memory

    def fill_zero(self, stream: Stream) -> None:
        """Zero the memory in stream order."""
        handle = driver.CUstream(int(stream.handle))
        check(driver.cuMemsetD8Async(self.address, 0, self.nbytes, handle), "clear GPU memory")

    def write(self, values: NDArray[Any], stream: Stream, offset: int = 0) -> None:
        """Copy a contiguous array to ``offset`` bytes from the start of the memory, and wait."""
        handle = driver.CUstream(int(stream.handle))
        check(
            driver.cuMemcpyHtoDAsync(self.address + offset, values.ctypes.data, values.nbytes, handle),
            "copy to the GPU",
        )
        synchronize(stream, _COPY_TIMEOUT_S, "a copy to the GPU")

    def read_into(self, target: NDArray[Any], stream: Stream, offset: int = 0) -> None:
        """Copy ``target.nbytes`` from ``offset`` bytes on into an array, and wait."""
        handle = driver.CUstream(int(stream.handle))
        check(
            driver.cuMemcpyDtoHAsync(target.ctypes.data, self.address + offset, target.nbytes, handle),
            "copy from the GPU",
        )
        synchronize(stream, _COPY_TIMEOUT_S, "a copy from the GPU")

    def read_rows_into(self, target: NDArray[Any], pitch_bytes: int, stream: Stream) -> None:
        """Copy the beginnings of rows ``pitch_bytes`` apart into a two-dimensional array, and wait."""
        copy = driver.CUDA_MEMCPY2D()
        copy.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.srcDevice = self.address
        copy.srcPitch = pitch_bytes
        copy.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_HOST
        copy.dstHost = target.ctypes.data
        copy.dstPitch = copy.WidthInBytes = target.nbytes // len(target)
        copy.Height = len(target)
        check(driver.cuMemcpy2DAsync(copy, driver.CUstream(int(stream.handle))), "copy rows from the GPU")
        synchronize(stream, _COPY_TIMEOUT_S, "a copy from the GPU")

    def close(self) -> None:
        """Free the memory; safe to call twice."""
        if self.address:
            address, self.address = self.address, 0
            check(driver.cuMemFree(address), "free GPU memory")


def _await_fill() -> None:
    """The legacy stream fills memory behind the host's back, and streams of one's own do not wait for it."""
    check(driver.cuStreamSynchronize(driver.CUstream(driver.CU_STREAM_LEGACY)), "fill GPU memory")


class PinnedMemory:
    """``nbytes`` of pinned host memory, mapped into every GPU of the process, poisoned."""

    def __init__(self, nbytes: int) -> None:
        flags = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
        try:
            self.address = int(
                check(driver.cuMemHostAlloc(nbytes, flags), f"pin {nbytes >> 20} MiB of host memory")
            )
        except DeviceError as error:
            raise DeviceError(
                error.message, "raise the locked-memory limit (ulimit -l), or free memory"
            ) from None
        self.nbytes = nbytes
        raw = (ctypes.c_ubyte * nbytes).from_address(self.address)
        #: The memory as bytes, ``[nbytes]`` of uint8.
        self.bytes: NDArray[np.uint8] = np.ctypeslib.as_array(raw)
        self.bytes.view(np.uint32)[:] = POISON_WORD

    def close(self) -> None:
        """Free the memory; safe to call twice."""
        if self.address:
            address, self.address = self.address, 0
            check(driver.cuMemFreeHost(address), "free pinned memory")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def enable_peer_access(sender: Device, owner: Device) -> None:
    """Map the memory of ``owner`` into ``sender``'s context.

    Raises:
        DeviceError: the two cannot reach each other directly.
    """
    if not sender.can_access_peer(owner):
        raise DeviceError(
            f"GPU {sender.device_id} cannot store to GPU {owner.device_id}: no peer access",
            "xstage-tune doctor --device cuda names what blocks it; or use --path host",
        )
    owner.set_current()
    context = check(driver.cuCtxGetCurrent(), "read the owner's context")
    sender.set_current()
    (status,) = driver.cuCtxEnablePeerAccess(context, 0)
    if status != driver.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED:
        check((status,), f"enable peer access from GPU {sender.device_id} to GPU {owner.device_id}")


def require_bytes(who: str, what: str, needed_bytes: int, free_bytes: int | None) -> None:
    """Refuse what does not fit, before anything is allocated.

    Args:
        who: what needs it, and
        what: of which memory.
        free_bytes: None where nobody says.

    Raises:
        DeviceError: it does not fit.
    """
    if free_bytes is not None and needed_bytes > free_bytes:
        raise DeviceError(
            f"the {who} needs {needed_bytes / 2**30:.2f} GiB of {what}, of which "
            f"{free_bytes / 2**30:.2f} GiB are free",
            "give it fewer tokens, e.g. --set tokens=8192, or free memory",
        )


def free_bytes(device: Device) -> int:
    """Of a GPU's memory; leaves it current."""
    device.set_current()
    free, _ = check(driver.cuMemGetInfo(), "read the free memory")
    return int(free)


def free_host_bytes() -> int | None:
    """Memory that the system can give without swapping; None where it does not say."""
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) << 10 if found else None
