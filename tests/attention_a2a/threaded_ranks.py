"""The ranks of a group as threads, with the host's memory, and a kernel that copies q and runs at once."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.attention_a2a.thread_group import ThreadGroup
from xstage_tune.base.errors import DeviceError, XStageError
from xstage_tune.cuda.attention_shape import AttentionShape, Destinations
from xstage_tune.ops.launching import CALLS
from xstage_tune.ops.runtime import kernel_for

_PATIENCE_S = 5.0
_PAGE = 4096


@dataclass(frozen=True)
class FakeDevice:
    """A ``torch.device``."""

    type: str
    index: int


class FakeTensor(np.ndarray):
    """An array with as much of a tensor as is used; bf16 numbers are their 16 bits."""

    is_cuda = True
    requires_grad = False

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.itemsize for step in self.strides)

    def data_ptr(self) -> int:
        return self.ctypes.data

    def zero_(self) -> None:
        self[...] = 0

    def is_contiguous(self) -> bool:
        return self.flags.c_contiguous

    @property
    def device(self) -> FakeDevice:  # type: ignore[override]
        return FakeDevice("cuda", _here.rank)


class FakeInput(FakeTensor):
    """One of q, k, v."""

    dtype = "torch.bfloat16"  # type: ignore[assignment]


class _Here(threading.local):
    rank = 0


_here = _Here()


@dataclass
class Ranks:
    """What the fake torch, driver and kernel do; changed by tests."""

    count: int
    capturing: bool = False
    grad_enabled: bool = True
    stream: int = 7
    #: Streams that calls were ordered on, as they came.
    entered: list[tuple[int, bool]] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    #: Raised by a rank's compiler, exchange, allocation and mapping.
    compiler_error: dict[int, Exception] = field(default_factory=dict)
    exchange_error: dict[int, Exception] = field(default_factory=dict)
    allocation_error: dict[int, Exception] = field(default_factory=dict)
    mapping_error: dict[int, Exception] = field(default_factory=dict)
    unreachable: int | None = None
    kernels: list[FakeKernel] = field(default_factory=list)
    allocations: list[tuple[int, ReferenceType[NDArray[Any]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        everyone: list[Any] = [None] * self.count
        barrier = threading.Barrier(self.count, timeout=_PATIENCE_S)
        self.groups = [ThreadGroup(rank, everyone, barrier) for rank in range(self.count)]
        self.gpus = [f"GPU-{rank}" for rank in range(self.count)]

    def run(self, program: Callable[[int, ThreadGroup], Any]) -> list[Any]:
        """Run a program on all ranks: what each returned, or the XStageError that it raised."""
        outcomes: list[Any] = [None] * self.count

        def on_rank(rank: int) -> None:
            _here.rank = rank
            try:
                outcomes[rank] = program(rank, self.groups[rank])
            except XStageError as error:
                outcomes[rank] = error

        threads = [threading.Thread(target=on_rank, args=(rank,)) for rank in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return outcomes

    def allocated(self) -> list[int]:
        """The owner of every allocation that is not freed."""
        return [rank for rank, memory in self.allocations if memory() is not None]

    # What follows stands in for torch.

    def empty(self, nbytes: int, *, dtype: Any, device: FakeDevice) -> FakeTensor:
        """Symmetric memory that begins elsewhere on every rank, and is not zero."""
        assert device == FakeDevice("cuda", _here.rank)
        if (error := self.allocation_error.get(_here.rank)) is not None:
            raise error
        memory = np.full(nbytes + 2 * _PAGE, 0xAB, dtype)
        self.allocations.append((_here.rank, ref(memory)))
        start = -memory.ctypes.data % _PAGE + 64 * (_here.rank + 1)
        return memory[start : start + nbytes].view(FakeTensor)

    def rendezvous(self, tensor: FakeTensor, group: ThreadGroup) -> SimpleNamespace:
        if (error := self.mapping_error.get(_here.rank)) is not None:
            raise error
        base = tensor.data_ptr() - tensor.data_ptr() % _PAGE
        bases = group.gather(base)
        return SimpleNamespace(
            buffer_ptrs=[0 if rank == self.unreachable else base for rank, base in enumerate(bases)]
        )

    def torch(self) -> ModuleType:
        @contextmanager
        def device(_: FakeDevice | int) -> Iterator[None]:
            yield

        def all_gather_object(outcomes: list[Any], value: Any, group: ThreadGroup) -> None:
            outcomes[:] = group.gather(value)

        torch: Any = ModuleType("torch")
        torch.uint8, torch.bfloat16, torch.float32 = np.uint8, FakeInput.dtype, np.float32
        torch.device = FakeDevice
        torch.distributed = SimpleNamespace(all_gather_object=all_gather_object)
        torch.compiler = SimpleNamespace(is_compiling=lambda: False)
        torch.is_grad_enabled = lambda: self.grad_enabled
        torch._C = SimpleNamespace(
            _cuda_getDevice=lambda: _here.rank,
            _cuda_getCurrentRawStream=lambda _: self.stream,
            _cuda_isCurrentStreamCapturing=lambda: self.capturing,
            _dynamo=SimpleNamespace(
                guards=SimpleNamespace(_empty_strided_cuda=lambda size, *_: empty_output(size))
            ),
        )
        torch.cuda = SimpleNamespace(
            device=device,
            current_device=lambda: _here.rank,
            current_stream=lambda: SimpleNamespace(cuda_stream=0, synchronize=lambda: None),
            is_current_stream_capturing=lambda: self.capturing,
            synchronize=lambda _=None: None,
            get_device_properties=lambda _: SimpleNamespace(
                multi_processor_count=132, uuid=self.gpus[_here.rank]
            ),
        )
        return torch  # type: ignore[no-any-return]


class FakeExchange:
    """The epochs of one rank, and its fault."""

    def __init__(self, ranks: Ranks) -> None:
        if (error := ranks.exchange_error.get(_here.rank)) is not None:
            raise error
        self.epoch = 0
        self.raised = ctypes.c_uint32()
        self._fault: DeviceError | None = None

    def raise_fault(self, message: str) -> None:
        self.raised.value = 1
        self._fault = self._fault or DeviceError(message, "")

    def fault(self) -> DeviceError | None:
        return self._fault

    def close(self) -> None:
        pass


class FakeKernel:
    """Stores q instead of the attention, and signals."""

    def __init__(self, ranks: Ranks, shape: AttentionShape) -> None:
        if (error := ranks.compiler_error.get(shape.rank)) is not None:
            raise error
        ranks.kernels.append(self)
        self._shape = shape

    def prepare(
        self,
        query: int,
        _key: int,
        _value: int,
        destinations: Destinations,
        *,
        exchange: FakeExchange,
        receipt: Any = None,
        **_: Any,
    ) -> Any:
        destinations.check(self._shape)

        output, timeout_ns = ctypes.c_uint64(), ctypes.c_uint64()

        def queue(_stream: int) -> None:
            self._launch(query, destinations, exchange)
            if receipt is not None:
                self._receive(exchange, receipt, destinations.epoch_bytes, output.value, timeout_ns.value)

        return SimpleNamespace(queue=queue, output=output, timeout_ns=timeout_ns)

    def _launch(self, query: int, destinations: Destinations, exchange: FakeExchange) -> None:
        if exchange.fault() is not None:
            return
        shape = self._shape
        q = _at(query, np.uint16, (shape.tokens, shape.heads, shape.head_dim))
        slot = exchange.epoch % 2 * destinations.epoch_bytes
        heads = slice(shape.rank * shape.heads, (shape.rank + 1) * shape.heads)
        exchange.epoch += 1
        for rank, address in enumerate(destinations.buffers):
            rows = shape.rows_of(rank)
            first = rank * shape.rows_per_rank
            out = _at(address + slot, np.uint16, (rows, shape.ranks * shape.heads, shape.head_dim))
            out[:, heads] = q[first : first + rows]
            _at(destinations.signals[rank], np.uint32, (1,))[0] = exchange.epoch

    def _receive(
        self, exchange: FakeExchange, receipt: Any, epoch_bytes: int, output: int, timeout_ns: int
    ) -> None:
        """Waits at once."""
        words = _at(receipt.words, np.uint32, (self._shape.ranks,))
        epoch = exchange.epoch
        deadline = time.monotonic() + timeout_ns * 1e-9
        while (late := np.flatnonzero(words < epoch)).size:
            if time.monotonic() > deadline:
                rank = int(late[0])
                exchange.raise_fault(f"rank {rank} is late: its word is {words[rank]}")
                return
        source = receipt.buffers + (epoch - 1) % 2 * epoch_bytes
        ctypes.memmove(output, source, receipt.nbytes)


class FakeOrder:
    """Remembers what was ordered."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def enter(self, stream: int, *, capturing: bool) -> None:
        self._ranks.entered.append((stream, capturing))


def _at(address: int, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.frombuffer((ctypes.c_ubyte * nbytes).from_address(address), np.uint8)
    array: NDArray[Any] = memory.view(dtype).reshape(shape)
    return array


def threaded_ranks(count: int, monkeypatch: pytest.MonkeyPatch) -> Ranks:
    """Put the fakes in the place of torch, the driver and the kernel."""
    ranks = Ranks(count)
    monkeypatch.setattr("xstage_tune.ops.group._GROUPS", {})
    CALLS.clear()
    kernel_for.cache_clear()
    monkeypatch.setattr("xstage_tune.ops.group._STORED_TO_LATE", [])
    memory: Any = ModuleType("torch.distributed._symmetric_memory")
    memory.empty, memory.rendezvous = ranks.empty, ranks.rendezvous
    monkeypatch.setitem(sys.modules, "torch", ranks.torch())
    monkeypatch.setitem(sys.modules, "torch.distributed", ModuleType("torch.distributed"))
    monkeypatch.setitem(sys.modules, "torch.distributed._symmetric_memory", memory)
    monkeypatch.setattr("cuda.core.Device", lambda _: SimpleNamespace(set_current=lambda: None))
    monkeypatch.setattr("cuda.core.Stream", SimpleNamespace(from_handle=lambda _: None))
    monkeypatch.setattr(
        "xstage_tune.cuda.attention_kernel.AttentionA2A",
        lambda _gpu, shape, _config, **_: FakeKernel(ranks, shape),
    )
    monkeypatch.setattr("xstage_tune.cuda.attention_epochs.Exchange", lambda _: FakeExchange(ranks))
    monkeypatch.setattr("xstage_tune.cuda.stream_order.StreamOrder", lambda: FakeOrder(ranks))
    return ranks


def empty_output(size: tuple[int, ...]) -> FakeInput:
    """As much of a new tensor as is needed, which is not zero."""
    return np.full(size, 0xABAB, np.uint16).view(FakeInput)


def random_input(shape: tuple[int, ...], seed: int) -> FakeInput:
    """Random bits in place of bf16 numbers."""
    return np.random.default_rng(seed).integers(0, 1 << 16, shape, np.uint16).view(FakeInput)
