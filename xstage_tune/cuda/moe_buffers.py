"""Memory of a MoE layer whose kernel is timed: operands made on the GPU, and every rank's destination.

One rank is computed, the one that receives most. What it would pull from other ranks is there already, and
what it sends lands where those ranks are stood in for: in memory of the host or of a peer. So its time is
that of the kernel with its path of stores, without dispatch, and without what others send here meanwhile.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from cuda.bindings import driver
from numpy.typing import NDArray

from xstage_tune.base.bf16 import Bits
from xstage_tune.base.fabric import StorePath
from xstage_tune.cuda.destination import find_peer
from xstage_tune.cuda.driver import check, launch, synchronize
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
from xstage_tune.cuda.moe_arguments import ROW_SOURCE, MoeTensors
from xstage_tune.cuda.moe_shape import MAX_RANKS, MoeShape
from xstage_tune.cuda.variants import KernelVariant
from xstage_tune.families.megamoe.check import POISON_BITS, ExpertSample, routed_rows, sampled_rows
from xstage_tune.families.megamoe.routing import busiest_rank, local_tokens_per_expert
from xstage_tune.families.megamoe.workload import MoeWorkload

FILL_KERNEL = "fill_uniform"
INPUTS = KernelVariant("megamoe/inputs.cu", (FILL_KERNEL,))
#: The struct of ``kernels/megamoe/inputs.cu``.
FILL_ARGUMENTS = np.dtype([("values", "<u8"), ("vectors", "<u8"), ("most", "<f4"), ("seed", "<u4")])
_FILL_CTAS_PER_SM, _FILL_THREADS = 8, 256
_FILL_TIMEOUT_S = 10.0
_VECTOR_BYTES = 16
_ELEMENT_BYTES = 2
_UNIT_VARIANCE = 3.0**0.5  # a uniform number from -this to this has it
_ROUTING_SEED = 0
#: Of the operands' seeds, so that no two of a layer are alike.
_WEIGHTS_SEED, _TOKENS_SEED = 1 << 30, 1 << 20

Memory = GpuMemory | PinnedMemory


@dataclass(frozen=True, slots=True)
class _Pool:
    """Routed rows as tiles of one height read them."""

    tokens: GpuMemory
    sources: GpuMemory


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
            workload.hidden, workload.intermediate, tuple(tokens.tolist()), ranks=ranks
        )
        self.rows = routed_rows(workload, shape.rows, ranks, _ROUTING_SEED)
        self._paths: tuple[StorePath, ...] = ("local", *[path] * (ranks - 1))
        self._owner = find_peer(gpu.device) if path == "peer" else gpu.device
        self._opened = ExitStack()
        self._pools: dict[int, _Pool] = {}
        self._seed = 0
        self._require_memory()
        with ExitStack() as opened:
            if path == "peer":
                enable_peer_access(gpu.device, self._owner)
            self._weights1 = self._local(opened, 2 * shape.experts * self._expert_bytes)
            self._weights2 = self._local(opened, shape.experts * self._expert_bytes)
            self._fill(self._weights1, _UNIT_VARIANCE * shape.hidden**-0.5, _WEIGHTS_SEED)
            self._fill(self._weights2, _UNIT_VARIANCE * shape.intermediate**-0.5, 2 * _WEIGHTS_SEED)
            self._destinations: list[Memory] = [
                self._destination(opened, rank, path) for rank, path in enumerate(self._paths)
            ]
            self._opened = opened.pop_all()

    def tensors(self, block_m: int, *, local: bool = False) -> MoeTensors:
        """What a launch with tiles of ``block_m`` rows reads and writes.

        Args:
            local: with destinations that are all in the GPU's own memory.

        Raises:
            DeviceError: there is too little memory.
        """
        pool = self._pool(block_m)
        destinations = self._local_destinations if local else self._destinations
        return MoeTensors(
            pool.tokens.address,
            self._weights1.address,
            self._weights2.address,
            pool.sources.address,
            tuple(memory.address for memory in destinations),
        )

    def draw_tokens(self, seed: int) -> None:
        """Put other tokens in place of those there are: the same ones for tiles of every height."""
        self._seed = seed
        for block_m, pool in self._pools.items():
            self._fill_tokens(pool, block_m)

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
        shape, pool = self.shape, self._pool(block_m)
        places = shape.pool_places(block_m)
        first = np.concatenate(([0], np.cumsum(shape.tokens_per_expert)))
        samples = []
        for expert, rows in sampled_rows(shape.tokens_per_expert, self._seed).items():
            tokens = [self._read(pool.tokens, places[expert] + row, (shape.hidden,)) for row in rows]
            weights1 = self._read(self._weights1, expert, (2, shape.intermediate, shape.hidden))
            weights2 = self._read(self._weights2, expert, (shape.hidden, shape.intermediate))
            samples.append(ExpertSample(expert, first[expert] + rows, np.stack(tokens), weights1, weights2))
        return samples

    def close(self) -> None:
        """Free all of it; safe to call twice."""
        self._opened.close()

    @property
    def _expert_bytes(self) -> int:
        return self.shape.intermediate * self.shape.hidden * _ELEMENT_BYTES

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

    def _pool(self, block_m: int) -> _Pool:
        if block_m not in self._pools:
            shape = self.shape
            rows = shape.pool_rows(block_m)
            needed = rows * (shape.row_bytes + ROW_SOURCE.itemsize)
            gpu = self._gpu.device
            require_bytes("MoE layer", f"GPU memory on {gpu.name}", needed, free_bytes(gpu))
            pool = _Pool(
                self._local(self._opened, rows * shape.row_bytes),
                self._local(self._opened, rows * ROW_SOURCE.itemsize),
            )
            pool.sources.write(self._sources(block_m), self._gpu.stream)
            self._fill_tokens(pool, block_m)
            self._pools[block_m] = pool
        return self._pools[block_m]

    def _sources(self, block_m: int) -> NDArray[np.void]:
        shape = self.shape
        sources = np.zeros(shape.pool_rows(block_m), ROW_SOURCE)
        first = 0
        for place, tokens in zip(shape.pool_places(block_m), shape.tokens_per_expert, strict=True):
            sources["rank"][place : place + tokens] = self.rows.rank[first : first + tokens]
            sources["slot"][place : place + tokens] = self.rows.slot[first : first + tokens]
            first += tokens
        return sources

    def _fill_tokens(self, pool: _Pool, block_m: int) -> None:
        """Expert by expert, since the places of their rows depend on the height of tiles."""
        shape = self.shape
        for expert, place in enumerate(shape.pool_places(block_m)):
            if tokens := shape.tokens_per_expert[expert]:
                seed = self._seed * _TOKENS_SEED + expert
                self._fill(
                    pool.tokens, _UNIT_VARIANCE, seed, place * shape.row_bytes, tokens * shape.row_bytes
                )
        synchronize(self._gpu.stream, _FILL_TIMEOUT_S, "the filling of operands")

    def _fill(
        self, memory: GpuMemory, most: float, seed: int, offset: int = 0, nbytes: int | None = None
    ) -> None:
        arguments = np.zeros(1, FILL_ARGUMENTS)
        arguments["values"] = memory.address + offset
        arguments["vectors"] = (memory.nbytes if nbytes is None else nbytes) // _VECTOR_BYTES
        arguments["most"], arguments["seed"] = most, seed % 2**32
        launch(
            self._gpu.load_kernel(INPUTS),
            self._gpu.stream,
            grid=(_FILL_CTAS_PER_SM * self._gpu.sm_count, 1),
            threads=_FILL_THREADS,
            shared_bytes=0,
            arguments=arguments,
            cooperative=False,
        )

    def _received(self, rank: int) -> Bits:
        bits = np.empty((self.rows.received(self.shape.ranks)[rank], self.shape.hidden), np.uint16)
        memory = self._destinations[rank]
        if isinstance(memory, PinnedMemory):
            bits[:] = memory.bytes.view(np.uint16)[: bits.size].reshape(bits.shape)
        elif bits.size:
            memory.read_into(bits, self._gpu.stream)
        return bits

    def _read(self, memory: GpuMemory, number: int, shape: tuple[int, ...]) -> Bits:
        """The ``number``-th array of this shape."""
        bits = np.empty(shape, np.uint16)
        memory.read_into(bits, self._gpu.stream, int(number) * bits.nbytes)
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
        own = 3 * self.shape.experts * self._expert_bytes + of_path["local"] + RESERVE_BYTES
        gpu = self._gpu.device
        require_bytes("MoE layer", f"GPU memory on {gpu.name}", own, free_bytes(gpu))
        if of_path["peer"]:
            free = free_bytes(self._owner)
            gpu.set_current()
            needed = of_path["peer"] + RESERVE_BYTES
            require_bytes("MoE layer", f"memory on GPU {self._owner.device_id}", needed, free)
        if of_path["host"]:
            require_bytes("MoE layer", "pinned host memory", of_path["host"], free_host_bytes())
