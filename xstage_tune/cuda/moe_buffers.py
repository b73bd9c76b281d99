"""Memory of a MoE layer whose kernel is timed: its operands, and every rank's destination.

One rank is computed, the one that receives most. What it would pull from other ranks is there already, and
what it sends lands where those ranks are stood in for: in memory of the host or of a peer. So its time is
that of the kernel with its path of stores, without dispatch, and without what others send here meanwhile.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property

import numpy as np
from cuda.bindings import driver

from xstage_tune.base.bf16 import Bits
from xstage_tune.base.fabric import StorePath
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
from xstage_tune.cuda.moe_arguments import MoeTensors
from xstage_tune.cuda.moe_operands import MoeOperands, expert_bytes
from xstage_tune.cuda.moe_shape import MAX_RANKS, MoeShape
from xstage_tune.families.megamoe.check import POISON_BITS, ExpertSample, routed_rows
from xstage_tune.families.megamoe.routing import busiest_rank, local_tokens_per_expert
from xstage_tune.families.megamoe.workload import MoeWorkload

_VECTOR_BYTES = 16
_ROUTING_SEED = 0

Memory = GpuMemory | PinnedMemory


class MoeBuffers:
    """All memory of a layer, for kernels of any config of it.

    Raises:
        UsageError: a size is out of range.
        DeviceError: there is too little memory: says whose, and how much is needed; or no peer.
    """

    def __init__(self, gpu: Gpu, workload: MoeWorkload, path: StorePath) -> None:
        self._gpu = gpu
        tokens = local_tokens_per_expert(workload, busiest_rank(workload))
        ranks = min(workload.ep_degree, MAX_RANKS)
        self.shape = shape = MoeShape(
            workload.hidden,
            workload.intermediate,
            tuple(tokens.tolist()),
            ranks=ranks,
            precision=workload.precision,
        )
        self.rows = routed_rows(workload, shape.rows, ranks, _ROUTING_SEED)
        self._paths: tuple[StorePath, ...] = ("local", *[path] * (ranks - 1))
        self._owner = find_peer(gpu.device) if path == "peer" else gpu.device
        self._opened = ExitStack()
        self._require_memory()
        with ExitStack() as opened:
            if path == "peer":
                enable_peer_access(gpu.device, self._owner)
            self._destinations: list[Memory] = [
                self._destination(opened, rank, path) for rank, path in enumerate(self._paths)
            ]
            # Pools are opened later: so the memory is closed by a stack that stays.
            operands = opened.enter_context(ExitStack())
            self._operands = MoeOperands(gpu, shape, self.rows, operands)
            self._opened = opened.pop_all()

    def tensors(self, block_m: int, *, local: bool = False) -> MoeTensors:
        """What a launch with tiles of ``block_m`` rows reads and writes.

        Args:
            local: with destinations that are all in the GPU's own memory.

        Raises:
            DeviceError: there is too little memory.
        """
        operands, pool = self._operands, self._operands.pool(block_m)
        destinations = self._local_destinations if local else self._destinations
        return MoeTensors(
            pool.tokens.address,
            operands.weights1.address,
            operands.weights2.address,
            pool.sources.address,
            tuple(memory.address for memory in destinations),
            scales=operands.scales(block_m),
        )

    def draw_tokens(self, seed: int) -> None:
        """Put other tokens in place of those there are: the same ones for tiles of every height."""
        self._operands.draw_tokens(seed)

    def poison(self) -> None:
        """Fill the ranks' destinations with :data:`POISON_BITS`."""
        for memory, path in zip(self._destinations, self._paths, strict=True):
            if isinstance(memory, PinnedMemory):
                memory.bytes.view(np.uint16)[:] = POISON_BITS
                continue
            (self._owner if path == "peer" else self._gpu.device).set_current()
            try:
                check(driver.cuMemsetD16(memory.address, POISON_BITS, memory.nbytes // 2), "poison memory")
                check(driver.cuCtxSynchronize(), "poison memory")
            finally:
                self._gpu.device.set_current()

    def received(self) -> tuple[Bits, ...]:
        """What each rank has received, ``[its rows, hidden]``."""
        return tuple(self._received(rank) for rank in range(self.shape.ranks))

    def sample(self, block_m: int) -> list[ExpertSample]:
        """Some rows of some experts with what they are made of."""
        return self._operands.sample(block_m)

    def close(self) -> None:
        """Free all of it; safe to call twice."""
        self._opened.close()

    def _received_bytes(self, rank: int) -> int:
        return max(_VECTOR_BYTES, self.rows.received(self.shape.ranks)[rank] * self.shape.row_bytes)

    @cached_property
    def _local_destinations(self) -> list[Memory]:
        needed = sum(self._received_bytes(rank) for rank in range(1, self.shape.ranks))
        gpu = self._gpu.device
        require_bytes("MoE layer", f"GPU memory on {gpu.name}", needed + RESERVE_BYTES, free_bytes(gpu))
        others = [
            self._local(self._opened, self._received_bytes(rank)) for rank in range(1, self.shape.ranks)
        ]
        return [self._destinations[0], *others]

    def _received(self, rank: int) -> Bits:
        bits = np.empty((self.rows.received(self.shape.ranks)[rank], self.shape.hidden), np.uint16)
        memory = self._destinations[rank]
        if isinstance(memory, PinnedMemory):
            bits[:] = memory.bytes.view(np.uint16)[: bits.size].reshape(bits.shape)
        elif bits.size:
            memory.read_into(bits, self._gpu.stream)
        return bits

    def _local(self, opened: ExitStack, nbytes: int) -> GpuMemory:
        memory = GpuMemory(self._gpu.device, nbytes, self._gpu.device)
        opened.callback(memory.close)
        return memory

    def _destination(self, opened: ExitStack, rank: int, path: StorePath) -> Memory:
        nbytes = self._received_bytes(rank)
        if path == "host":
            return opened.enter_context(PinnedMemory(nbytes))
        memory = GpuMemory(self._owner if path == "peer" else self._gpu.device, nbytes, self._gpu.device)
        opened.callback(memory.close)
        return memory

    def _require_memory(self) -> None:
        """Refuse a layer that does not fit, before anything is allocated: without its pool, which follows."""
        of_path = dict.fromkeys(("local", "peer", "host"), 0)
        for rank, path in enumerate(self._paths):
            of_path[path] += self._received_bytes(rank)
        own = 3 * self.shape.experts * expert_bytes(self.shape) + of_path["local"] + RESERVE_BYTES
        gpu = self._gpu.device
        require_bytes("MoE layer", f"GPU memory on {gpu.name}", own, free_bytes(gpu))
        if of_path["peer"]:
            free = free_bytes(self._owner)
            gpu.set_current()
            needed = of_path["peer"] + RESERVE_BYTES
            require_bytes("MoE layer", f"memory on GPU {self._owner.device_id}", needed, free)
        if of_path["host"]:
            require_bytes("MoE layer", "pinned host memory", of_path["host"], free_host_bytes())
