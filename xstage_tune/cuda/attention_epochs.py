"""Waiting until every sender's epoch has arrived, on the GPU or on the host, whoever owns the buffers."""

from __future__ import annotations

import time

import numpy as np
from cuda.core import Device, Kernel, Stream
from numpy.typing import NDArray

from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.cuda.attention_arguments import EPOCH_FAULT, WAIT_ARGUMENTS
from xstage_tune.cuda.attention_kernel import load_epoch_kernels
from xstage_tune.cuda.attention_shape import MAX_RANKS
from xstage_tune.cuda.driver import launch, synchronize
from xstage_tune.cuda.memory import PinnedMemory
from xstage_tune.model.checks import NS_PER_S

#: For what else the stream does before and between holds.
_BEHIND_TIMEOUT_S = 10.0


def poll_epoch(words: NDArray[np.uint32], epoch: int, timeout_s: float) -> None:
    """Wait on the host, the owner of pinned memory, until every sender has signalled ``epoch``.

    Args:
        words: ``[ranks]``, one of every sender, in memory that the GPUs write.
        epoch: 1 or more.
        timeout_s: how long to wait.

    Raises:
        DeviceError: a sender did not signal in time; says which, and what it had signalled.
    """
    deadline = time.monotonic() + timeout_s
    while (late := np.flatnonzero(words < epoch)).size:
        if time.monotonic() > deadline:
            rank = int(late[0])
            raise _missing(rank, epoch, int(words[rank]), timeout_s)


class EpochWaiter:
    """Waits on the GPU for the words of ``ranks`` senders in its memory.

    Args:
        device: the GPU that owns the words.
        words: address of ``uint32[ranks]``.

    Raises:
        UsageError: more ranks than the kernels' tables hold.
    """

    def __init__(self, device: Device, words: int, ranks: int) -> None:
        if not 1 <= ranks <= MAX_RANKS:
            raise UsageError(f"{ranks} ranks: the kernel's table holds 1 to {MAX_RANKS}", "lower the degree")
        self._kernel: Kernel = load_epoch_kernels(device)["wait_for_epoch"]
        self._words = words
        self._ranks = ranks
        self._memory = PinnedMemory(EPOCH_FAULT.itemsize)
        self._memory.bytes[:] = 0
        #: Written by the GPU, read here without waiting for it.
        self._fault = self._memory.bytes.view(EPOCH_FAULT)
        self._held_s = 0.0  # by holds that were not checked yet, at most

    def hold(self, epoch: int, timeout_s: float, stream: Stream) -> None:
        """Hold the stream until every sender has signalled ``epoch``, or the time is over.

        Only queues; :meth:`fault` and :meth:`check` tell whether it came to that. Holds behind one that ran
        out do not wait. May be captured into a CUDA graph.
        """
        self._held_s += timeout_s
        arguments = np.zeros(1, WAIT_ARGUMENTS)
        arguments["words"], arguments["fault"] = self._words, self._memory.address
        arguments["timeout_ns"] = round(timeout_s * NS_PER_S)
        arguments["ranks"], arguments["epoch"] = self._ranks, epoch
        launch(
            self._kernel,
            stream,
            grid=(1, 1),
            threads=MAX_RANKS,
            shared_bytes=0,
            arguments=arguments,
            cooperative=False,
        )

    def fault(self) -> DeviceError | None:
        """The first sender that did not signal in time, of the holds that are over; without waiting."""
        fault = self._fault[0]
        if not fault["raised"]:
            return None
        rank, expected, seen = (int(fault[name]) for name in ("rank", "expected", "seen"))
        return _missing(rank, expected, seen, int(fault["timeout_ns"]) / NS_PER_S)

    def check(self, stream: Stream) -> None:
        """Wait for the stream, report, and forget.

        Raises:
            DeviceError: a sender did not signal in time; says which, and what it had signalled.
        """
        longest_s, self._held_s = self._held_s + _BEHIND_TIMEOUT_S, 0.0
        synchronize(stream, longest_s, "waiting for the signals of other ranks")
        if (fault := self.fault()) is not None:
            self._memory.bytes[:] = 0
            raise fault

    def close(self) -> None:
        """Free the memory, which no queued hold may need any more; safe to call twice."""
        self._memory.close()


def _missing(rank: int, epoch: int, seen: int, timeout_s: float) -> DeviceError:
    return DeviceError(
        f"rank {rank} did not signal epoch {epoch} within {timeout_s:g} s: its word is {seen}",
        "that rank may have failed, or runs other epochs than this one",
    )
