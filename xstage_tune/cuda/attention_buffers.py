"""Memory of a profiled attention: inputs, its own output, and every rank's buffer where its owner is."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
from cuda.bindings import driver
from cuda.core import Device
from numpy.typing import NDArray

from xstage_tune.base.bf16 import Bits
from xstage_tune.base.fabric import StorePath
from xstage_tune.cuda.attention_shape import AttentionShape, Destinations
from xstage_tune.cuda.destination import find_peer
from xstage_tune.cuda.driver import check
from xstage_tune.cuda.gpu import Gpu
from xstage_tune.cuda.memory import (
    RESERVE_BYTES,
    GpuMemory,
    PinnedMemory,
    enable_peer_access,
    free_bytes,
    free_host_bytes,
    require_bytes,
)
from xstage_tune.families.attention_a2a.check import POISON_BITS, Inputs
from xstage_tune.families.attention_a2a.timing import ProfileCase

_INPUTS_AND_OUTPUT = 4
_LEAST_BYTES = 16


class AttentionBuffers:
    """All memory of a case, for as long as it is profiled.

    Raises:
        DeviceError: there is too little memory: says whose, and how much is needed; or no peer.
    """

    def __init__(self, gpu: Gpu, case: ProfileCase, shape: AttentionShape, inputs: Inputs) -> None:
        self._gpu, self._shape = gpu, shape
        self._owner = find_peer(gpu.device) if case.path == "peer" else gpu.device
        self._paths: tuple[StorePath, ...] = tuple(
            "local" if rank < case.local_ranks else case.path for rank in range(case.ranks)
        )
        self._require_memory(case)
        with ExitStack() as opened:
            if case.path == "peer":
                enable_peer_access(gpu.device, self._owner)
            self._inputs = [self._local(opened, bits.nbytes) for bits in _in_order(inputs)]
            #: Addresses of q, k and v.
            self.inputs = self._inputs[0].address, self._inputs[1].address, self._inputs[2].address
            self.write_inputs(inputs)
            self._output = self._local(opened, case.output_bytes)
            self._ranks = [self._rank_buffer(opened, rank) for rank in range(shape.ranks)]
            self._received = self._local(opened, shape.buffer_bytes(shape.rank))
            self._permuted: GpuMemory | PinnedMemory = self._ranks[shape.rank]
            if not self._own_is_local:
                self._permuted = self._local(opened, shape.buffer_bytes(shape.rank))
            self._opened = opened.pop_all()

    @property
    def output(self) -> int:
        """Address of the attention's own output, ``[tokens, heads, head_dim]``."""
        return self._output.address

    @property
    def destinations(self) -> Destinations:
        """The ranks' outputs, ``[its tokens, ranks * heads, head_dim]`` each."""
        return Destinations(tuple(memory.address for memory in self._ranks))

    @property
    def receivers(self) -> Destinations:
        """Where ranks receive for a permute, ``[ranks, its tokens, heads, head_dim]`` each.

        Where their outputs are, on the same side of the path; but this rank, where its side is the GPU's
        own, apart from its output: it also permutes.
        """
        addresses = [memory.address for memory in self._ranks]
        if self._own_is_local:
            addresses[self._shape.rank] = self._received.address
        return Destinations(tuple(addresses))

    @property
    def received(self) -> int:
        """Address of what this rank permutes, in the GPU's own memory."""
        return self._received.address

    @property
    def receipt(self) -> tuple[int, int]:
        """Where this rank receives its tokens and where they are copied to, both in the GPU's own memory.

        Where its own buffer is on the path, a place of the same size stands for it.
        """
        if self._own_is_local:
            return self._ranks[self._shape.rank].address, self._received.address
        return self._received.address, self._permuted.address

    @property
    def permuted(self) -> int:
        """Address of what becomes of it, in the GPU's own memory."""
        return self._permuted.address

    def write_inputs(self, inputs: Inputs) -> None:
        """Put other inputs in place of those there are."""
        for memory, bits in zip(self._inputs, _in_order(inputs), strict=True):
            memory.write(bits, self._gpu.stream)

    def poison_ranks(self) -> None:
        """Fill all that ranks hold with :data:`POISON_BITS`."""
        for rank, memory in enumerate(self._ranks):
            self._poison(memory, self._owner if self._paths[rank] == "peer" else self._gpu.device)
        self._poison(self._received, self._gpu.device)

    def poison_heads(self) -> None:
        """Fill what :meth:`read_ranks` reads of the ranks' outputs: of the host's memory a small part."""
        for rank, memory in enumerate(self._ranks):
            if isinstance(memory, PinnedMemory):
                rows = self._shape.rows_of(rank)
                _rows(memory, rows, self._shape.token_bytes)[:, : self._head_bytes // 2] = POISON_BITS
            else:
                self._poison(memory, self._owner if self._paths[rank] == "peer" else self._gpu.device)

    def poison_output(self) -> None:
        """Fill the attention's own output with :data:`POISON_BITS`."""
        self._poison(self._output, self._gpu.device)

    def read_output(self) -> Bits:
        """The attention's own output, ``[tokens, heads, head_dim]``."""
        bits = np.empty((self._shape.tokens, self._shape.heads, self._shape.head_dim), np.uint16)
        self._output.read_into(bits, self._gpu.stream)
        return bits

    def read_ranks(self, *, received: bool) -> Bits:
        """This rank's heads of all tokens as the ranks hold them, ``[tokens, heads, head_dim]``.

        Args:
            received: they hold them as received for a permute, which only this rank does.
        """
        shape = self._shape
        bits = np.empty((shape.tokens, shape.heads, shape.head_dim), np.uint16)
        for rank, memory in enumerate(self._ranks):
            if not shape.rows_of(rank):
                continue
            first = rank * shape.rows_per_rank
            rows = bits[first : first + shape.rows_of(rank)].reshape(shape.rows_of(rank), -1)
            permuted = rank == shape.rank and self._own_is_local
            contiguous = received and not permuted
            self._read_rows(memory, rows, self._head_bytes if contiguous else shape.token_bytes)
        return bits

    def close(self) -> None:
        """Free all of it; safe to call twice."""
        self._opened.close()

    def _read_rows(self, memory: GpuMemory | PinnedMemory, rows: Bits, pitch_bytes: int) -> None:
        """The beginnings of rows ``pitch_bytes`` apart: the profiled rank is 0, whose heads come first."""
        if isinstance(memory, GpuMemory):
            memory.read_rows_into(rows, pitch_bytes, self._gpu.stream)
            return
        rows[:] = _rows(memory, len(rows), pitch_bytes)[:, : rows.shape[1]]

    @property
    def _head_bytes(self) -> int:
        """This rank's heads of a token."""
        return self._shape.heads * self._shape.row_bytes

    @property
    def _own_is_local(self) -> bool:
        return self._paths[self._shape.rank] == "local"

    def _poison(self, memory: GpuMemory | PinnedMemory, owner: Device) -> None:
        if isinstance(memory, PinnedMemory):
            memory.bytes.view(np.uint16)[:] = POISON_BITS
            return
        owner.set_current()
        try:
            words = memory.nbytes // 2
            check(driver.cuMemsetD16(memory.address, POISON_BITS, words), "poison GPU memory")
            check(driver.cuCtxSynchronize(), "poison GPU memory")
        finally:
            self._gpu.device.set_current()

    def _rank_buffer(self, opened: ExitStack, rank: int) -> GpuMemory | PinnedMemory:
        nbytes = self._shape.buffer_bytes(rank)
        path = self._paths[rank]
        if path == "host":
            return opened.enter_context(PinnedMemory(max(_LEAST_BYTES, nbytes)))
        return self._allocate(opened, nbytes, self._owner if path == "peer" else self._gpu.device)

    def _local(self, opened: ExitStack, nbytes: int) -> GpuMemory:
        return self._allocate(opened, nbytes, self._gpu.device)

    def _allocate(self, opened: ExitStack, nbytes: int, owner: Device) -> GpuMemory:
        memory = GpuMemory(owner, max(_LEAST_BYTES, nbytes), self._gpu.device)
        opened.callback(memory.close)
        return memory

    def _require_memory(self, case: ProfileCase) -> None:
        """Refuse a case that does not fit, before anything is allocated."""
        of_path = dict.fromkeys(("local", "peer", "host"), 0)
        for rank, path in enumerate(self._paths):
            of_path[path] += self._shape.buffer_bytes(rank)
        own = of_path["local"] + _INPUTS_AND_OUTPUT * case.output_bytes
        own += 2 * self._shape.buffer_bytes(self._shape.rank)
        require_bytes(
            "attention",
            f"GPU memory on {self._gpu.device.name}",
            own + RESERVE_BYTES,
            free_bytes(self._gpu.device),
        )
        if of_path["peer"]:
            free = free_bytes(self._owner)
            self._gpu.device.set_current()
            require_bytes(
                "attention", f"memory on GPU {self._owner.device_id}", of_path["peer"] + RESERVE_BYTES, free
            )
        if of_path["host"]:
            require_bytes("attention", "pinned host memory", of_path["host"], free_host_bytes())


def _rows(memory: PinnedMemory, rows: int, pitch_bytes: int) -> NDArray[np.uint16]:
    """``[rows, pitch]`` elements of 2 bytes."""
    every: NDArray[np.uint16] = memory.bytes.view(np.uint16)[: rows * pitch_bytes // 2]
    return every.reshape(rows, pitch_bytes // 2)


def _in_order(inputs: Inputs) -> tuple[Bits, Bits, Bits]:
    return inputs.query, inputs.key, inputs.value
