"""CUDA driver calls with their status turned into errors, and kernel launches."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
from cuda.bindings import driver
from cuda.core import Device, Kernel, Stream
from numpy.typing import NDArray

from xstage_tune.base.errors import ContextError, DeadlineError, DeviceError, XStageError

#: The struct of ``kernels/common/start.cuh``.
START = np.dtype([("at_ns", "<u8"), ("arrived", "<u4"), ("padding", "<u4")])

#: Of the driver's interface that is asked for.
_PROC_VERSION = 12000
#: After these nothing can be launched in the context any more.
_CONTEXT_BROKEN = frozenset(
    getattr(driver.CUresult, f"CUDA_ERROR_{name}")
    for name in (
        "ILLEGAL_ADDRESS",
        "MISALIGNED_ADDRESS",
        "INVALID_ADDRESS_SPACE",
        "INVALID_PC",
        "ILLEGAL_INSTRUCTION",
        "HARDWARE_STACK_ERROR",
        "ASSERT",
        "LAUNCH_FAILED",
        "LAUNCH_TIMEOUT",
        "ECC_UNCORRECTABLE",
    )
)


def check(result: tuple[Any, ...], action: str) -> Any:
    """Value of a driver call, or a :class:`DeviceError` saying what ``action`` failed and how."""
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        explanation = text.decode() if isinstance(text, bytes) else "unknown error"
        kind = ContextError if status in _CONTEXT_BROKEN else DeviceError
        raise kind(f"cannot {action}: {status.name} ({explanation})", "xstage-tune doctor --device cuda")
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


@contextmanager
def core_call(action: str) -> Iterator[None]:
    """Calls of cuda.core, whose errors become those of :func:`check`."""
    try:
        yield
    except XStageError:
        raise
    except Exception as error:  # cuda.core has no public class for its errors
        broken = any(status.name in str(error) for status in _CONTEXT_BROKEN)
        kind = ContextError if broken else DeviceError
        raise kind(f"cannot {action}: {error}", "xstage-tune doctor --device cuda") from error


def launch(
    kernel: Kernel,
    stream: Stream,
    *,
    grid: tuple[int, int],
    threads: int,
    shared_bytes: int,
    arguments: NDArray[np.void] | NDArray[np.uint64],
    cooperative: bool,
) -> None:
    """Launch a kernel whose one parameter is a struct given as a one-row array of its layout.

    By the driver: ``cuda.core.launch`` takes buffers, numbers and tensor maps, but no structs.
    ``cooperative`` makes the driver refuse a grid that cannot be resident as a whole.
    """
    parameters = np.array([arguments.ctypes.data], dtype=np.uint64)
    shape = (grid[0], grid[1], 1, threads, 1, 1, shared_bytes)
    function = driver.CUfunction(int(kernel.handle))
    handle = driver.CUstream(int(stream.handle))
    if cooperative:
        status = driver.cuLaunchCooperativeKernel(function, *shape, handle, parameters.ctypes.data)
    else:
        status = driver.cuLaunchKernel(function, *shape, handle, parameters.ctypes.data, 0)
    check(status, "launch a kernel")


class _LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig`` of the driver."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


@cache
def _launch_kernel() -> Callable[..., int]:
    """``cuLaunchKernelEx`` by ctypes, on prepared arguments: the bindings' call takes twice as long."""
    address = check(driver.cuGetProcAddress(b"cuLaunchKernelEx", _PROC_VERSION, 0), "find cuLaunchKernelEx")
    return ctypes.CFUNCTYPE(ctypes.c_int)(int(address[0]))


class Launch:
    """A kernel with its launch shape and its one parameter, a struct, to be queued many times at little cost.

    Args:
        arguments: one row of the struct's layout; what it holds when a launch is queued is what counts.
    """

    __slots__ = ("_config", "_held", "_launch", "_stream", "arguments")

    def __init__(
        self, kernel: Kernel, grid: int, threads: int, shared_bytes: int, arguments: NDArray[np.void]
    ) -> None:
        self.arguments = arguments
        self._config = _LaunchConfig(grid, 1, 1, threads, 1, 1, shared_bytes)
        self._stream = 0
        parameters = (ctypes.c_void_p * 1)(arguments.ctypes.data)
        self._held = parameters  # as long as launches point to it
        self._launch = partial(
            _launch_kernel(),
            ctypes.c_void_p(ctypes.addressof(self._config)),
            ctypes.c_void_p(int(kernel.handle)),
            ctypes.c_void_p(ctypes.addressof(parameters)),
            ctypes.c_void_p(None),
        )

    def queue(self, stream: int) -> None:
        """Launch on the stream of this handle. Allocates and waits for nothing.

        Raises:
            DeviceError: the driver refuses.
        """
        if stream != self._stream:
            self._config.stream = self._stream = stream
        if status := self._launch():
            check((driver.CUresult(status),), "launch a kernel")


def allow_shared_memory(kernel: Kernel, shared_bytes: int, device: Device) -> None:
    """Let a kernel be launched with ``shared_bytes`` of dynamic shared memory, beyond the default 48 KiB."""
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    handle = driver.CUkernel(int(kernel.handle))
    status = driver.cuKernelSetAttribute(attribute, shared_bytes, handle, driver.CUdevice(device.device_id))
    check(status, f"allow a kernel {shared_bytes} bytes of shared memory")


def synchronize(stream: Stream, timeout_s: float, action: str) -> None:
    """Wait for a stream, at most ``timeout_s``.

    Raises:
        ContextError, DeviceError: the work failed.
        DeadlineError: it did not end in time. A kernel that hangs cannot be stopped from its
            own process, so the caller should give up the device.
    """
    handle = driver.CUstream(int(stream.handle))
    deadline = time.monotonic() + timeout_s
    while True:
        (status,) = driver.cuStreamQuery(handle)
        if status != driver.CUresult.CUDA_ERROR_NOT_READY:
            check((status,), action)
            return
        if time.monotonic() > deadline:
            raise DeadlineError(
                f"{action} did not end within {timeout_s:.1f} s", "check the GPU with nvidia-smi"
            )
        time.sleep(20e-6)
