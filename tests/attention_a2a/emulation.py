"""The attention kernel's own sources, built for the CPU: see ``emulator/cta.hpp``."""

from __future__ import annotations

import ctypes
from math import e, log2
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.host_library import host_library
from xstage_tune.base.spans import LANE_DTYPE, RECORD_DTYPE, SpanTable, decode_records
from xstage_tune.cuda import attention_maps
from xstage_tune.cuda.attention_arguments import (
    EXCHANGE,
    FAULT_RECORD,
    RECEIVE_ARGUMENTS,
    attention_arguments,
)
from xstage_tune.cuda.attention_epochs import Receipt
from xstage_tune.cuda.attention_shape import AttentionShape, Destinations
from xstage_tune.cuda.attention_variants import attention_variant
from xstage_tune.families.attention_a2a.budget import finishing_warpgroups
from xstage_tune.families.attention_a2a.config import AttentionConfig

#: The bf16 number that fills what nothing may write.
POISON = 0xDEAD
_HERE = Path(__file__).parent
#: With which the emulator compiles.
EMULATOR_OPTIONS = (
    "-std=c++17",
    "-U_FORTIFY_SOURCE",
    "-fno-strict-aliasing",
    "-w",
    f"-I{_HERE / 'emulator'}",
)


def bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Rounded to the nearest bf16, ties to even, as its bits."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded: NDArray[np.uint16] = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return rounded


def float32(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The numbers of bf16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def attention(q: NDArray[np.uint16], k: NDArray[np.uint16], v: NDArray[np.uint16]) -> NDArray[np.float64]:
    """Full attention of ``[tokens, heads, head_dim]`` in float64."""
    queries, keys, values = (float32(bits).astype(np.float64).transpose(1, 0, 2) for bits in (q, k, v))
    scores = queries @ keys.transpose(0, 2, 1) * q.shape[2] ** -0.5
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    out: NDArray[np.float64] = (weights / weights.sum(axis=2, keepdims=True) @ values).transpose(1, 0, 2)
    return out


def emulated_map(
    address: int, sizes: tuple[int, ...], stride_bytes: tuple[int, ...], box: tuple[int, ...]
) -> NDArray[np.uint8]:
    """What ``emulator/common/tma.cuh`` takes for a tensor map."""
    words = np.zeros(16, np.uint64)
    words[0], words[1] = address, len(sizes)
    words[2 : 2 + len(sizes)] = sizes
    words[7 : 7 + len(stride_bytes)] = stride_bytes
    words[11 : 11 + len(box)] = box
    return words.view(np.uint8)


class EmulatedKernel:
    """One variant, compiled by the host's compiler."""

    def __init__(
        self,
        config: AttentionConfig,
        head_dim: int,
        *,
        record_spans: bool = False,
        write_lse: bool = False,
        options: tuple[str, ...] = (),
    ) -> None:
        self.config = config
        self.head_dim = head_dim
        defines = attention_variant(config, head_dim, record_spans=record_spans, write_lse=write_lse).defines
        macros = (f"-D{name}={value}" for name, value in defines.items())
        library = host_library(_HERE / "emulator/attention.cpp", *EMULATOR_OPTIONS, *options, *macros)
        self._run = library.run_attention
        self._run.restype = ctypes.c_char_p


class EmulatedEpochs:
    """The kernels that signal and receive, compiled by the host's compiler."""

    def __init__(self) -> None:
        library = host_library(_HERE / "emulator/epochs.cpp", *EMULATOR_OPTIONS)
        self._receive, self._signal = library.run_receive, library.run_signal
        self._receive.restype = self._signal.restype = ctypes.c_char_p

    def signal(self, run: EmulatedRun) -> None:
        """Complete launches that did not."""
        error = self._signal(run.arguments.ctypes.data_as(ctypes.c_void_p))
        assert error is None, error.decode()

    def receive(self, run: EmulatedRun, words: list[int], timeout_ns: int = 10_000) -> None:
        """Await the next epoch for a rank that sends nothing."""
        held = np.array(words, np.uint32)
        arguments = np.zeros(1, RECEIVE_ARGUMENTS)
        arguments["exchange"] = run.exchange.ctypes.data
        Receipt(held.ctypes.data).fill(arguments, len(words), 1)
        arguments["receipt"]["timeout_ns"] = timeout_ns
        error = self._receive(arguments.ctypes.data_as(ctypes.c_void_p), 1, 0)
        assert error is None, error.decode()


class EmulatedRun:
    """A launch on poisoned buffers of all ranks, two epochs each."""

    def __init__(
        self,
        kernel: EmulatedKernel,
        shape: AttentionShape,
        monkeypatch: pytest.MonkeyPatch,
        *,
        config: AttentionConfig | None = None,
        teams: int = 2,
        seed: int = 0,
    ) -> None:
        monkeypatch.setattr(attention_maps, "encode_map", emulated_map)
        self._kernel = kernel
        self.shape = shape
        self._ctas = teams * kernel.config.kv_splits
        random = np.random.default_rng(seed)
        sizes = [(tokens, shape.heads, shape.head_dim) for tokens in (shape.tokens, shape.keys, shape.keys)]
        self.q, self.k, self.v = (bf16(random.standard_normal(size, np.float32)) for size in sizes)
        rows = (shape.ranks, 2, shape.rows_per_rank, shape.ranks * shape.heads, shape.head_dim)
        self.buffers = _aligned(rows, POISON)
        self.words = np.zeros(shape.ranks, np.uint32)
        self.fault = np.zeros(1, FAULT_RECORD)
        self.exchange = np.zeros(1, EXCHANGE)
        self.exchange["record"] = self.fault.ctypes.data
        rank_bytes = self.buffers[0].nbytes
        self._destinations = Destinations(
            buffers=tuple(self.buffers.ctypes.data + rank * rank_bytes for rank in range(shape.ranks)),
            epoch_bytes=rank_bytes // 2,
            signals=tuple(self.words.ctypes.data + 4 * rank for rank in range(shape.ranks)),
        )
        self._inputs = [_aligned(size, 0) for size in sizes]
        self.give(self.q, self.k, self.v)
        query, key, value = (held.ctypes.data for held in self._inputs)
        self.arguments = attention_arguments(
            shape,
            config or kernel.config,
            (query, key, value),
            self._destinations,
            shape.head_dim**-0.5 * log2(e),
        )

    def give(self, *inputs: NDArray[np.uint16]) -> None:
        """Other q, k and v of the same sizes."""
        self.q, self.k, self.v = inputs
        for held, values in zip(self._inputs, inputs, strict=True):
            held[:] = values

    def launch(self, seed: int, *, completion: int = 1, call: int = 0) -> None:
        """Run all CTAs; ``completion`` is a ``Completion`` of ``arguments.cuh``."""
        self.arguments["exchange"] = self.exchange.ctypes.data
        self.arguments["complete"], self.arguments["call"] = completion, call
        self.arguments["ctas"] = self._ctas
        grid = self._ctas + int(self.arguments["receipt"]["ctas"][0])
        error = self._kernel._run(self.arguments.ctypes.data_as(ctypes.c_void_p), grid, seed)
        assert error is None, error.decode()

    def receive(
        self, call: int, words: list[int], buffers: NDArray[np.uint16], timeout_ns: int = 10_000
    ) -> NDArray[np.uint16]:
        """Launch, and receive of ``buffers``, ``[2, rows, heads, head_dim]``, what two more CTAs deliver.

        Args:
            words: of all senders.
        """
        held = np.array(words, np.uint32)
        output = _aligned(buffers.shape[1:], POISON)
        Receipt(held.ctypes.data, buffers.ctypes.data, output.nbytes).fill(self.arguments, len(words), 2)
        receipt = self.arguments["receipt"]
        receipt["output"], receipt["timeout_ns"] = output.ctypes.data, timeout_ns
        epoch_bytes = self.arguments["epoch_bytes"].copy()
        assert epoch_bytes[0] == buffers[0].nbytes
        self.launch(call, completion=2, call=call)
        receipt["ctas"] = 0
        return output

    def record(self, seed: int, capacity: int) -> SpanTable:
        lanes = np.zeros(self._ctas * finishing_warpgroups(self._kernel.config), LANE_DTYPE)
        records = np.zeros((len(lanes), capacity), RECORD_DTYPE)
        self.arguments["lanes"], self.arguments["spans"] = lanes.ctypes.data, records.ctypes.data
        self.arguments["span_capacity"] = capacity
        self.launch(seed)
        return decode_records(records, lanes)

    def gathered(self, epoch: int) -> NDArray[np.uint16]:
        """This rank's heads of all tokens, from every rank's buffer of an epoch."""
        return np.concatenate(
            [
                buffer[epoch % 2, : self.shape.rows_of(rank), self._own()]
                for rank, buffer in enumerate(self.buffers)
            ]
        )

    def untouched(self, epoch: int) -> bool:
        """Whether nothing else was written in the buffers of that epoch."""
        rest = self.buffers[:, epoch % 2].copy()
        for rank, buffer in enumerate(rest):
            buffer[: self.shape.rows_of(rank), self._own()] = POISON
        return bool((rest == POISON).all())

    def _own(self) -> slice:
        return slice(self.shape.rank * self.shape.heads, (self.shape.rank + 1) * self.shape.heads)


def _aligned(size: tuple[int, ...], fill: int) -> NDArray[np.uint16]:
    """Filled memory that begins at a multiple of 16 bytes."""
    count = int(np.prod(size))
    memory = np.empty(count + 8, np.uint16)
    first = -memory.ctypes.data % 16 // 2
    values = memory[first : first + count].reshape(size)
    values[:] = fill
    return values
