"""Where bursts land: a ring per producer in the owner's memory, and the owner's check of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from cuda.bindings import driver
from cuda.core import Device, Kernel, Stream
from numpy.typing import NDArray

from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.base.fabric import StorePath
from xstage_tune.cuda.driver import check, launch, synchronize
from xstage_tune.cuda.extents import count_extent_mismatches
from xstage_tune.cuda.graph_timing import elapsed_ns
from xstage_tune.cuda.memory import GpuMemory, PinnedMemory, enable_peer_access
from xstage_tune.cuda.pattern import count_mismatches
from xstage_tune.cuda.variants import VERIFY, VERIFY_EXTENTS, KernelVariant
from xstage_tune.launches.bursts import BurstPoint, CopyRate
from xstage_tune.launches.device import Verification
from xstage_tune.model.checks import NS_PER_S

_VERIFY_TIMEOUT_S = 10.0
_COPY_BYTES = 256 << 20
_COPY_SAMPLES = 7
_VERIFY_THREADS = 256
_VECTOR_BYTES = 16
_COUNT_BYTES = 8
_MOST_CHECKING_CTAS = 4096

#: The struct of ``kernels/calibration/verify.cu``.
VERIFY_ARGUMENTS = np.dtype(
    [
        ("destination", "<u8"),
        ("ring_bytes", "<u8"),
        ("issued", "<u8"),
        ("mismatched_vectors", "<u8"),
        ("burst_bytes", "<u4"),
        ("nonce", "<u4"),
        ("first_slot", "<u4"),
        ("padding", "<u4"),
    ]
)
#: The struct of ``kernels/emulation/verify.cu``.
VERIFY_EXTENTS_ARGUMENTS = np.dtype(
    [
        ("memory", "<u8"),
        ("extents", "<u8"),
        ("mismatched_vectors", "<u8"),
        ("extent_count", "<u4"),
        ("nonce", "<u4"),
    ]
)
#: Gives the kernel of a variant of one.
LoadKernel = Callable[[KernelVariant], Kernel]
#: Odd and large: successive launches start far apart in any ring.
_SLOT_STRIDE = 2654435761


@dataclass(frozen=True, slots=True)
class RingLayout:
    """How a launch lays its bursts out: a ring of ``slots`` bursts a producer, one ring after another."""

    burst_bytes: int
    slots: int
    first_slot: int

    @property
    def ring_bytes(self) -> int:
        """Bytes of one producer's ring."""
        return self.slots * self.burst_bytes


def ring_layout(total_bytes: int, point: BurstPoint, launch: int) -> RingLayout:
    """Rings that fill ``total_bytes``, entered at another place by each launch.

    Which addresses are written moves Q of few producers by a tenth: launches that all began at the same ones
    would measure that and not the path.

    Raises:
        UsageError: not even one burst a producer fits.
    """
    slots = total_bytes // point.producers // point.burst_bytes
    if slots == 0:
        raise UsageError(
            f"{point.producers} bursts of {point.burst_bytes} bytes do not fit the {total_bytes >> 20} MiB "
            "destination",
            "use smaller bursts or fewer producers",
        )
    return RingLayout(point.burst_bytes, slots, launch * _SLOT_STRIDE % slots)


class Destination(Protocol):
    """Memory that producers store to, poisoned when it is made."""

    address: int
    nbytes: int

    def verify(self, layout: RingLayout, issued: NDArray[np.uint32], nonce: int) -> Verification:
        """Have the owner compare its memory with what ``issued[k]`` bursts of producer ``k`` leave."""
        ...

    def verify_extents(self, extents: NDArray[np.void], nonce: int) -> Verification:
        """Have the owner compare its memory with extents of the pattern, ``[n]`` of EXTENT."""
        ...

    def copy_from(self, source: GpuMemory, stream: Stream) -> None:
        """Queue a copy-engine copy of the sender's memory into this memory."""
        ...

    def close(self) -> None:
        """Free the memory."""
        ...


class HostDestination:
    """Pinned host memory; the CPU is its owner."""

    def __init__(self, nbytes: int) -> None:
        self._memory = PinnedMemory(nbytes)
        self.address = self._memory.address
        self.nbytes = nbytes

    def verify(self, layout: RingLayout, issued: NDArray[np.uint32], nonce: int) -> Verification:
        """See :class:`Destination`."""
        return Verification(
            *count_mismatches(
                self._memory.bytes, layout.slots, layout.burst_bytes, issued, nonce, layout.first_slot
            )
        )

    def verify_extents(self, extents: NDArray[np.void], nonce: int) -> Verification:
        """See :class:`Destination`."""
        return Verification(*count_extent_mismatches(self._memory.bytes, extents, nonce))

    def copy_from(self, source: GpuMemory, stream: Stream) -> None:
        """See :class:`Destination`."""
        handle = driver.CUstream(int(stream.handle))
        check(
            driver.cuMemcpyDtoHAsync(self.address, source.address, min(source.nbytes, self.nbytes), handle),
            "copy to the host",
        )

    def close(self) -> None:
        """See :class:`Destination`."""
        self._memory.close()


class GpuDestination:
    """Memory of a GPU, the sender's own (``local``) or another (``peer``); that GPU is its owner."""

    def __init__(self, nbytes: int, sender: Device, owner: Device, load_kernel: LoadKernel) -> None:
        self._sender = sender
        self._owner = owner
        self._load_kernel = load_kernel
        if owner.device_id != sender.device_id:
            enable_peer_access(sender, owner)
        self._memory = GpuMemory(owner, nbytes, sender)
        self.address = self._memory.address
        self.nbytes = nbytes

    def verify(self, layout: RingLayout, issued: NDArray[np.uint32], nonce: int) -> Verification:
        """See :class:`Destination`."""
        arguments = np.zeros(1, VERIFY_ARGUMENTS)
        arguments["destination"] = self.address
        arguments["ring_bytes"] = layout.ring_bytes
        arguments["burst_bytes"] = layout.burst_bytes
        arguments["nonce"] = nonce
        arguments["first_slot"] = layout.first_slot
        mismatched = self._check(VERIFY, arguments, "issued", issued.astype(np.uint32), grid=(8, len(issued)))
        checked = int(np.minimum(issued, layout.slots).sum()) * layout.burst_bytes
        return Verification(checked, mismatched)

    def verify_extents(self, extents: NDArray[np.void], nonce: int) -> Verification:
        """See :class:`Destination`."""
        if not extents.size:
            return Verification(0, 0)
        arguments = np.zeros(1, VERIFY_EXTENTS_ARGUMENTS)
        arguments["memory"] = self.address
        arguments["extent_count"] = extents.size
        arguments["nonce"] = nonce
        grid = (min(extents.size, _MOST_CHECKING_CTAS), 1)
        mismatched = self._check(VERIFY_EXTENTS, arguments, "extents", extents, grid=grid)
        return Verification(int(extents["bytes"].sum(dtype=np.int64)), mismatched)

    def _check(
        self,
        variant: KernelVariant,
        arguments: NDArray[np.void],
        table_name: str,
        table: NDArray[Any],
        *,
        grid: tuple[int, int],
    ) -> int:
        """Run a checking kernel on the owner; the bytes that it found wrong.

        Args:
            arguments: all of them but ``mismatched_vectors`` and ``table_name``.
            table: what ``table_name`` is to point to.
        """
        kernel = self._load_kernel(variant)
        self._owner.set_current()
        scratch = GpuMemory(self._owner, _COUNT_BYTES + table.nbytes, self._owner)
        try:
            stream = self._owner.create_stream()
            scratch.fill_zero(stream)
            scratch.write(table, stream, _COUNT_BYTES)
            arguments["mismatched_vectors"] = scratch.address
            arguments[table_name] = scratch.address + _COUNT_BYTES
            launch(
                kernel,
                stream,
                grid=grid,
                threads=_VERIFY_THREADS,
                shared_bytes=0,
                arguments=arguments,
                cooperative=False,
            )
            synchronize(stream, _VERIFY_TIMEOUT_S, "verification on the owner GPU")
            mismatched = np.zeros(1, np.uint64)
            scratch.read_into(mismatched, stream)
        finally:
            scratch.close()
            self._sender.set_current()
        return int(mismatched[0]) * _VECTOR_BYTES

    def copy_from(self, source: GpuMemory, stream: Stream) -> None:
        """See :class:`Destination`."""
        handle = driver.CUstream(int(stream.handle))
        check(
            driver.cuMemcpyDtoDAsync(self.address, source.address, min(source.nbytes, self.nbytes), handle),
            "copy between GPU memories",
        )

    def close(self) -> None:
        """See :class:`Destination`."""
        self._memory.close()


def open_destination(path: StorePath, nbytes: int, sender: Device, load_kernel: LoadKernel) -> Destination:
    """Allocate the destination of a path; ``peer`` takes the first other GPU that the sender can reach.

    Raises:
        DeviceError: there is no such GPU, or its memory or host memory cannot be had.
    """
    if path == "host":
        return HostDestination(nbytes)
    if path == "local":
        return GpuDestination(nbytes, sender, sender, load_kernel)
    return GpuDestination(nbytes, sender, find_peer(sender), load_kernel)


def find_peer(sender: Device) -> Device:
    """The first other GPU that ``sender`` can store to.

    Raises:
        DeviceError: there is none.
    """
    others = [gpu for gpu in Device.get_all_devices() if gpu.device_id != sender.device_id]
    for gpu in others:
        if sender.can_access_peer(gpu):
            return gpu
    reason = "no other GPU in this process" if not others else "no peer access to any other GPU"
    raise DeviceError(
        f"path 'peer' cannot be used from GPU {sender.device_id}: {reason}",
        "use --path host; xstage-tune doctor says what blocks peer access",
    )


def measure_copy_rate(path: StorePath, destination: Destination, sender: Device, stream: Stream) -> CopyRate:
    """Rate of the copy engine into ``destination``, timed by events, after one untimed copy."""
    nbytes = min(_COPY_BYTES, destination.nbytes)
    source = GpuMemory(sender, nbytes, sender)
    try:
        times_ns = [
            elapsed_ns(
                stream,
                lambda: destination.copy_from(source, stream),
                _VERIFY_TIMEOUT_S,
                "a copy-engine copy",
            )
            for _ in range(_COPY_SAMPLES + 1)
        ]
    finally:
        source.close()
    return CopyRate(path, nbytes, tuple(nbytes * NS_PER_S / time_ns for time_ns in times_ns[1:]))
