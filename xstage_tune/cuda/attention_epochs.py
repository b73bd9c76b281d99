"""The epochs of an exchange between ranks, on the GPU: their state, its faults, and the receipt of rows."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count

import numpy as np
from cuda.bindings import driver
from cuda.core import Device, Kernel, Stream
from numpy.typing import NDArray

from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.cuda.attention_arguments import EXCHANGE, FAULT_RECORD, RECEIVE_ARGUMENTS
from xstage_tune.cuda.attention_shape import MAX_RANKS
from xstage_tune.cuda.attention_variants import EPOCHS
from xstage_tune.cuda.driver import Launch, check, synchronize
from xstage_tune.cuda.fused_loading import compile_fused, load_kernels
from xstage_tune.cuda.memory import GpuMemory, PinnedMemory
from xstage_tune.model.checks import NS_PER_S

_THREADS = 512
#: A CTA of a receipt copies at least so much, and a receipt has at most so many: they may wait for long, and
#: other work has to find SMs beside them, that of a rank on the same GPU among it.
_CTA_BYTES = 64 << 10
_MOST_CTAS = 64
_VECTOR_BYTES = 16
#: Of ``Fault`` of ``arguments.cuh``.
_LATE, _FOREIGN = 1, 2


class Exchange:
    """What the launches of one exchange share on this rank's GPU: the epoch, and the fault that stopped it.

    All that differs from call to call is on the GPU, so that calls may be captured, replayed and mixed. Calls
    go on one after another, in the order of a stream or of events: one that overlaps another is refused
    there, and raises a fault. After a fault nothing is stored or signalled any more.

    Args:
        device: this rank's GPU, whose context is current.

    Raises:
        DeviceError: there is no memory.
    """

    def __init__(self, device: Device) -> None:
        with ExitStack() as opened:
            self._record_memory = opened.enter_context(PinnedMemory(FAULT_RECORD.itemsize))
            self._record_memory.bytes[:] = 0
            self._record = self._record_memory.bytes.view(FAULT_RECORD)
            #: 0 until there is a fault. Written by the GPU, read without waiting for it.
            self.raised = ctypes.c_uint32.from_address(self._record_memory.address)
            self._state = GpuMemory.zeroed(device, EXCHANGE.itemsize)
            opened.callback(self._state.close)
            state = np.zeros(1, EXCHANGE)
            state["record"] = self._record_memory.address
            copied = driver.cuMemcpyHtoD(self._state.address, state.ctypes.data, state.nbytes)
            check(copied, "write to the GPU")
            self._opened = opened.pop_all()
        #: Of calls, in place of which the GPU sees their last 32 bits: odd, so that these are never 0.
        self.numbers: Iterator[int] = count(1, 2)

    @property
    def address(self) -> int:
        """Of the state, in GPU memory."""
        return self._state.address

    def epoch(self, stream: Stream) -> int:
        """Of the last call that is over; waits for the stream."""
        state = np.zeros(1, EXCHANGE)
        self._state.read_into(state, stream)
        return int(state["epoch"][0])

    def fault(self) -> DeviceError | None:
        """What stopped the exchange, of the calls that are over; without waiting."""
        fault = self._record[0]
        if not fault["raised"]:
            return None
        rank, expected, seen = (int(fault[name]) for name in ("rank", "expected", "seen"))
        if fault["raised"] == _LATE:
            return DeviceError(
                f"rank {rank} did not signal epoch {expected} within "
                f"{int(fault['timeout_ns']) / NS_PER_S:g} s: its word is {seen}",
                "that rank may have failed, or was not called as often as this one",
            )
        if fault["raised"] == _FOREIGN:
            return DeviceError(
                f"rank {rank} signals epoch {seen} while this one awaits {expected}",
                "that rank was called more often, or something else writes to its word",
            )
        return DeviceError(
            "two attention calls of one exchange ran at once",
            "replay graphs on the stream of the other calls, or order the streams by events",
        )

    def check(self, stream: Stream, timeout_s: float) -> None:
        """Wait for the stream, at most ``timeout_s``, and report.

        Raises:
            DeviceError: what :meth:`fault` says; or the stream did not end.
        """
        synchronize(stream, timeout_s, "attention over several ranks")
        if (fault := self.fault()) is not None:
            raise fault

    def close(self) -> None:
        """Free the memory, which nothing queued or captured may need any more; safe to call twice."""
        self._opened.close()


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where this rank's tokens of an epoch are received.

    Args:
        words: address of ``uint32[ranks]``, one of every sender, in this rank's memory.
        buffers: address of this rank's buffer of even epochs.
        nbytes: of this rank's tokens; 0 to wait only.
    """

    words: int
    buffers: int = 0
    nbytes: int = 0

    @property
    def ctas(self) -> int:
        """That receive."""
        return min(max(1, self.nbytes // _CTA_BYTES), _MOST_CTAS)

    def fill(self, arguments: NDArray[np.void], ranks: int, ctas: int) -> None:
        """Fill the ``receipt`` of the arguments of a launch, but for the output and the timeout."""
        receipt = arguments["receipt"]
        receipt["words"], receipt["buffers"] = self.words, self.buffers
        receipt["vectors"], receipt["ranks"], receipt["ctas"] = self.nbytes // _VECTOR_BYTES, ranks, ctas


class Receiver:
    """Awaits the epochs of a rank that only receives, whose words and buffers ``device`` owns.

    Args:
        device: its context is current.
        exchange: of this rank alone, which counts its epochs.
        words: address of ``uint32[ranks]``, one of every sender.

    Raises:
        UsageError: more ranks than the kernels' tables hold.
    """

    def __init__(self, device: Device, exchange: Exchange, words: int, ranks: int) -> None:
        if not 1 <= ranks <= MAX_RANKS:
            raise UsageError(f"{ranks} ranks: the kernel's table holds 1 to {MAX_RANKS}", "lower the degree")
        arguments = np.zeros(1, RECEIVE_ARGUMENTS)
        arguments["exchange"] = exchange.address
        Receipt(words).fill(arguments, ranks, 1)
        self._launch = Launch(load_epoch_kernels(device)["receive_epoch"], 1, _THREADS, 0, arguments)

    def queue(self, timeout_s: float, stream: int) -> None:
        """Hold the stream of this handle until all senders have come to the next epoch.

        Only queues. Where a sender is later than ``timeout_s`` the exchange has a fault.
        """
        self._launch.arguments["receipt"]["timeout_ns"] = round(timeout_s * NS_PER_S)
        self._launch.queue(stream)


def load_epoch_kernels(device: Device) -> dict[str, Kernel]:
    """The kernels that signal and receive, by name, loaded on ``device``, whose context is current.

    Raises:
        DeviceError: there is no compiler, or no GPU.
    """
    return load_kernels(device, compile_fused(EPOCHS))
