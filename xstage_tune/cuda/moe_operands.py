"""Operands of a MoE layer whose kernel is timed: random weights and routed tokens, made on the GPU.

Numbers that no power-saving trick of the tensor cores finds in zeros. Those of e4m3 have scales that all
differ, so that one in a wrong place makes a wrong result.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.bf16 import Floats, from_bf16
from xstage_tune.base.e4m3 import LARGEST, from_e4m3
from xstage_tune.cuda.driver import launch, synchronize
from xstage_tune.cuda.gpu import Gpu
from xstage_tune.cuda.memory import GpuMemory, free_bytes, require_bytes
from xstage_tune.cuda.moe_arguments import ROW_SOURCE, MoeScales
from xstage_tune.cuda.moe_shape import MoeShape
from xstage_tune.cuda.variants import KernelVariant
from xstage_tune.families.megamoe.built import SCALE_BLOCK
from xstage_tune.families.megamoe.check import ExpertSample, RoutedRows, sampled_rows
from xstage_tune.families.megamoe.workload import Precision

_SOURCE = "megamoe/inputs.cu"
FILL: dict[Precision, KernelVariant] = {
    "bf16": KernelVariant(_SOURCE, ("fill_uniform",)),
    "w8a8": KernelVariant(_SOURCE, ("fill_uniform_e4m3",)),
}
#: The struct of ``kernels/megamoe/inputs.cu``.
FILL_ARGUMENTS = np.dtype([("values", "<u8"), ("vectors", "<u8"), ("most", "<f4"), ("seed", "<u4")])
_FILL_CTAS_PER_SM, _FILL_THREADS = 8, 256
_FILL_TIMEOUT_S = 10.0
_VECTOR_BYTES, _SCALE_BYTES = 16, 4
_UNIT_VARIANCE = 3.0**0.5  # a uniform number from -this to this has it
#: Scales are uniform from half of the most to the most, whose mean square is so much of the most's.
_MEAN_SQUARE_OF_SCALES = 7 / 12
#: Of the operands' seeds, so that no two of a layer are alike.
_WEIGHTS_SEED, _TOKENS_SEED = 1 << 30, 1 << 20


@dataclass(frozen=True, slots=True)
class Pool:
    """Routed rows as tiles of one height read them; without scales in bf16."""

    tokens: GpuMemory
    sources: GpuMemory
    scales: GpuMemory


class MoeOperands:
    """Weights, and pools of routed rows by their tiles' height.

    Args:
        rows: whose the routed rows are.
        opened: closes the memory.

    Raises:
        DeviceError: there is too little memory.
    """

    def __init__(self, gpu: Gpu, shape: MoeShape, rows: RoutedRows, opened: ExitStack) -> None:
        self._gpu, self._shape, self._rows, self._opened = gpu, shape, rows, opened
        self._pools: dict[int, Pool] = {}
        self._sampled: dict[int, tuple[Floats, Floats]] = {}
        self._seed = 0
        self.weights1 = self._memory(2 * shape.experts * expert_bytes(shape))
        self.weights2 = self._memory(shape.experts * expert_bytes(shape))
        blocks1, blocks2 = shape.hidden_blocks, shape.intermediate_blocks
        self._scales1 = self._scales((shape.experts, 2, blocks2, blocks1), self._most(shape.hidden), 1)
        self._scales2 = self._scales((shape.experts, blocks1, blocks2), self._most(shape.intermediate), 2)
        self._on_gpu1, self._on_gpu2 = self._written(self._scales1), self._written(self._scales2)
        for memory, depth, number in (
            (self.weights1, shape.hidden, 1),
            (self.weights2, shape.intermediate, 2),
        ):
            self._fill(memory, _UNIT_VARIANCE * depth**-0.5, number * _WEIGHTS_SEED)

    def scales(self, block_m: int) -> MoeScales | None:
        """Where the scales of a pool and of the weights are; None in bf16."""
        if self._shape.precision == "bf16":
            return None
        return MoeScales(self.pool(block_m).scales.address, self._on_gpu1.address, self._on_gpu2.address)

    def draw_tokens(self, seed: int) -> None:
        """Put other tokens in place of those there are: the same ones for tiles of every height."""
        self._seed = seed
        for block_m, pool in self._pools.items():
            self._fill_tokens(pool, block_m)

    def pool(self, block_m: int) -> Pool:
        """The routed rows for tiles of a height.

        Raises:
            DeviceError: there is too little memory.
        """
        if block_m not in self._pools:
            shape = self._shape
            rows = shape.pool_rows(block_m)
            scale_bytes = rows * shape.hidden_blocks * _SCALE_BYTES
            needed = rows * (shape.token_bytes + ROW_SOURCE.itemsize) + scale_bytes
            gpu = self._gpu.device
            require_bytes("MoE layer", f"GPU memory on {gpu.name}", needed, free_bytes(gpu))
            pool = Pool(
                self._memory(rows * shape.token_bytes),
                self._memory(rows * ROW_SOURCE.itemsize),
                self._memory(max(_VECTOR_BYTES, scale_bytes)),
            )
            pool.sources.write(self._sources(block_m), self._gpu.stream)
            self._fill_tokens(pool, block_m)
            self._pools[block_m] = pool
        return self._pools[block_m]

    def sample(self, block_m: int) -> list[ExpertSample]:
        """Some rows of some experts with what they are made of."""
        shape, pool = self._shape, self.pool(block_m)
        places = shape.pool_places(block_m)
        first = np.concatenate(([0], np.cumsum(shape.tokens_per_expert)))
        token_scales = self._token_scales()
        samples = []
        for expert, rows in sampled_rows(shape.tokens_per_expert, self._seed).items():
            in_pool = (places[expert] + rows).tolist()
            tokens = np.stack([self._read(pool.tokens, row, (shape.hidden,)) for row in in_pool])
            if shape.precision == "w8a8":
                tokens *= _spread(token_scales[:, first[expert] + rows].T, shape.hidden)
            samples.append(ExpertSample(expert, first[expert] + rows, tokens, *self._weights(expert)))
        return samples

    def _weights(self, expert: int) -> tuple[Floats, Floats]:
        """Both matrices of an expert in fp32, kept: the samples of all inputs are of the same experts."""
        if expert not in self._sampled:
            shape = self._shape
            weights1 = self._read(self.weights1, expert, (2, shape.intermediate, shape.hidden))
            weights2 = self._read(self.weights2, expert, (shape.hidden, shape.intermediate))
            if shape.precision == "w8a8":
                _apply(self._scales1[expert], weights1)
                _apply(self._scales2[expert], weights2)
            self._sampled[expert] = weights1, weights2
        return self._sampled[expert]

    def _most(self, depth: int) -> float:
        """The largest scale of uniform e4m3 numbers, so that the sum of so many has unit variance."""
        return _UNIT_VARIANCE * float((depth * _MEAN_SQUARE_OF_SCALES) ** -0.5) / LARGEST

    def _scales(self, size: tuple[int, ...], most: float, seed: int) -> Floats:
        drawn: Floats = np.random.default_rng(seed).uniform(most / 2, most, size).astype(np.float32)
        return drawn

    def _token_scales(self) -> Floats:
        """``[blocks of hidden, rows]`` of the routed rows, in the order of their experts."""
        shape = self._shape
        return self._scales((shape.hidden_blocks, shape.rows), self._most(1), _TOKENS_SEED + self._seed)

    def _sources(self, block_m: int) -> NDArray[np.void]:
        shape = self._shape
        sources = np.zeros(shape.pool_rows(block_m), ROW_SOURCE)
        places = self._places(block_m)
        sources["rank"][places], sources["slot"][places] = self._rows.rank, self._rows.slot
        return sources

    def _places(self, block_m: int) -> NDArray[np.int64]:
        """``[rows]`` of the pool."""
        counts = np.asarray(self._shape.tokens_per_expert)
        ahead = np.asarray(self._shape.pool_places(block_m)) - (np.cumsum(counts) - counts)
        places: NDArray[np.int64] = np.arange(self._shape.rows) + np.repeat(ahead, counts)
        return places

    def _fill_tokens(self, pool: Pool, block_m: int) -> None:
        """Expert by expert, since the places of their rows depend on the height of tiles."""
        shape = self._shape
        for expert, place in enumerate(shape.pool_places(block_m)):
            if tokens := shape.tokens_per_expert[expert]:
                seed = self._seed * _TOKENS_SEED + expert
                begin, nbytes = place * shape.token_bytes, tokens * shape.token_bytes
                self._fill(pool.tokens, _UNIT_VARIANCE, seed, begin, nbytes)
        if shape.precision == "w8a8":
            scales = np.zeros((shape.hidden_blocks, shape.pool_rows(block_m)), np.float32)
            scales[:, self._places(block_m)] = self._token_scales()
            pool.scales.write(scales, self._gpu.stream)
        synchronize(self._gpu.stream, _FILL_TIMEOUT_S, "the filling of operands")

    def _fill(
        self, memory: GpuMemory, most: float, seed: int, offset: int = 0, nbytes: int | None = None
    ) -> None:
        arguments = np.zeros(1, FILL_ARGUMENTS)
        arguments["values"] = memory.address + offset
        arguments["vectors"] = (memory.nbytes if nbytes is None else nbytes) // _VECTOR_BYTES
        arguments["most"] = LARGEST if self._shape.precision == "w8a8" else most
        arguments["seed"] = seed % 2**32
        launch(
            self._gpu.load_kernel(FILL[self._shape.precision]),
            self._gpu.stream,
            grid=(_FILL_CTAS_PER_SM * self._gpu.sm_count, 1),
            threads=_FILL_THREADS,
            shared_bytes=0,
            arguments=arguments,
            cooperative=False,
        )

    def _read(self, memory: GpuMemory, number: int, size: tuple[int, ...]) -> Floats:
        """The ``number``-th array of this size, in fp32, without scales."""
        numbers = np.empty(size, np.uint16 if self._shape.element_bytes == 2 else np.uint8)
        memory.read_into(numbers, self._gpu.stream, number * numbers.nbytes)
        return from_bf16(numbers) if numbers.dtype == np.uint16 else from_e4m3(numbers)

    def _memory(self, nbytes: int) -> GpuMemory:
        memory = GpuMemory(self._gpu.device, nbytes, self._gpu.device)
        self._opened.callback(memory.close)
        return memory

    def _written(self, values: Floats) -> GpuMemory:
        memory = self._memory(max(_VECTOR_BYTES, values.nbytes))
        if values.size:
            memory.write(values, self._gpu.stream)
        return memory


def expert_bytes(shape: MoeShape) -> int:
    """Of a third of an expert's weights: gate, up or Linear-2."""
    return shape.intermediate * shape.hidden * shape.element_bytes


def _spread(scales: Floats, columns: int) -> Floats:
    """Every scale of a row for its block's columns, of which there are so many in all."""
    return np.repeat(scales, SCALE_BLOCK, -1)[..., :columns]


def _apply(scales: Floats, weights: Floats) -> None:
    """Multiply every block of matrices ``[..., rows, columns]`` by its scale."""
    for block in range(scales.shape[-2]):
        rows = slice(block * SCALE_BLOCK, (block + 1) * SCALE_BLOCK)
        weights[..., rows, :] *= _spread(scales[..., block, None, :], weights.shape[-1])
