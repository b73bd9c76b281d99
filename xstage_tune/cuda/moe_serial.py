"""A MoE layer without fusion: products by the vendor's library through torch, the rest by own kernels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import DeviceError
from xstage_tune.cuda.driver import launch
from xstage_tune.cuda.gpu import Gpu, LoadedVariant
from xstage_tune.cuda.memory import RESERVE_BYTES, GpuMemory, free_bytes, require_bytes
from xstage_tune.cuda.moe_arguments import MoeTensors
from xstage_tune.cuda.moe_shape import MAX_RANKS, MoeShape
from xstage_tune.cuda.variants import KernelVariant
from xstage_tune.families.megamoe.workload import Precision

SERIAL_SOURCE = "megamoe/serial.cu"
ACTIVATE, SEND = "activate", "send_rows"
#: The struct of ``kernels/megamoe/serial.cu``.
SERIAL_ARGUMENTS = np.dtype(
    [
        ("products1", "<u8"),
        ("activations", "<u8"),
        ("scales", "<u8"),
        ("products2", "<u8"),
        ("places", "<u8"),
        ("first_scale", "<u8"),
        ("scale_step", "<u8"),
        ("sources", "<u8"),
        ("destination", "<u8", (MAX_RANKS,)),
        ("rows", "<u4"),
        ("hidden", "<u4"),
        ("intermediate", "<u4"),
        ("padding", "<u4"),
    ]
)
_THREADS, _CTAS_PER_SM = 256, 4
#: Rows of a product are whole units of so many: padding of the pool makes them so.
_ROW_UNIT = 16


def serial_variant(precision: Precision) -> KernelVariant:
    """The own kernels of a precision."""
    return KernelVariant(SERIAL_SOURCE, (ACTIVATE, SEND), {"FORMAT": int(precision == "w8a8")})


class SerialMoe:
    """Queues the layer's steps, expert by expert, on the GPU's stream: it allocates and waits for nothing.

    Args:
        tensors: of the fused kernel, whose operands and destinations these steps share.
        block_m: of its tiles, which the pool is laid out for.

    Raises:
        DeviceError: torch is not installed, or there is too little memory.
    """

    def __init__(self, gpu: Gpu, shape: MoeShape, tensors: MoeTensors, block_m: int) -> None:
        self._gpu, self._shape = gpu, shape
        self.loaded: LoadedVariant = gpu.load(serial_variant(shape.precision))
        try:
            self._torch: Any = import_module("torch")
        except ImportError as error:
            raise DeviceError(
                f"torch is not available: {error}", "without it a profile has no serial baseline"
            ) from None
        self._stream = self._torch.cuda.ExternalStream(int(gpu.stream.handle), device=gpu.device.device_id)
        self._products1: list[Callable[[], None]] = []
        self._products2: list[Callable[[], None]] = []
        self._memory = ExitStack()
        with ExitStack() as opened:
            self._open(opened, tensors, block_m)
            self._memory = opened.pop_all()

    def queue_products(self) -> None:
        """Both products of every expert."""
        self._each(self._products1)
        self._each(self._products2)

    def queue(self) -> None:
        """The whole layer: products, SwiGLU between them, and every row to its rank."""
        self._each(self._products1)
        self._launch(ACTIVATE)
        self._each(self._products2)
        self._launch(SEND)

    def close(self) -> None:
        """Free the memory; safe to call twice."""
        self._products1 = self._products2 = []
        self._memory.close()

    def _each(self, products: list[Callable[[], None]]) -> None:
        with self._torch.cuda.stream(self._stream):
            for product in products:
                product()

    def _open(self, opened: ExitStack, tensors: MoeTensors, block_m: int) -> None:
        shape, device = self._shape, self._gpu.device
        rows, blocks = shape.pool_rows(block_m), shape.intermediate_blocks
        sizes = {
            "products1": 4 * rows * shape.intermediate,
            "activations": shape.element_bytes * rows * shape.intermediate,
            "scales": max(16, 4 * rows * blocks),
            "products2": rows * shape.row_bytes,
        }
        needed = sum(sizes.values()) + RESERVE_BYTES
        require_bytes("MoE layer", f"GPU memory on {device.name}", needed, free_bytes(device))
        self._arguments = np.zeros(1, SERIAL_ARGUMENTS)
        row = self._arguments[0]
        for name, nbytes in sizes.items():
            row[name] = _opened(opened, GpuMemory(device, nbytes, device)).address
        layout = pool_layout(shape, block_m)
        for name, array in layout.tables(blocks).items():
            memory = _opened(opened, GpuMemory(device, max(16, array.nbytes), device))
            if array.size:
                memory.write(array, self._gpu.stream)
            row[name] = memory.address
        row["sources"] = tensors.sources
        row["destination"][: shape.ranks] = tensors.destinations
        row["rows"], row["hidden"], row["intermediate"] = shape.rows, shape.hidden, shape.intermediate
        operands = _Operands(self._torch, device.device_id, shape, tensors, row, rows)
        with self._torch.cuda.stream(self._stream):
            self._products1 = [operands.product1(*one) for one in layout.experts]
            self._products2 = [operands.product2(*one) for one in layout.experts]
        self._stream.synchronize()

    def _launch(self, name: str) -> None:
        launch(
            self.loaded.kernels[name],
            self._gpu.stream,
            grid=(_CTAS_PER_SM * self._gpu.sm_count, 1),
            threads=_THREADS,
            shared_bytes=0,
            arguments=self._arguments,
            cooperative=False,
        )


class PoolLayout(NamedTuple):
    """Where routed rows lie in a pool.

    Args:
        experts: of each that has rows: its number, the first of them, and how many its products compute.
        places: ``[rows]`` of the routed rows.
        begins, computed: ``[rows]`` the first row of a row's expert, and how many that one computes.
    """

    experts: tuple[tuple[int, int, int], ...]
    places: NDArray[np.int64]
    begins: NDArray[np.int64]
    computed: NDArray[np.int64]

    def tables(self, blocks: int) -> dict[str, NDArray[np.uint32]]:
        """What the own kernels read, by the field of their arguments.

        Args:
            blocks: scales of a row, of which an expert's lie together, those of one block of columns side by
                side.
        """
        columns = {
            "places": self.places,
            "first_scale": self.begins * blocks + self.places - self.begins,
            "scale_step": self.computed,
        }
        return {name: column.astype(np.uint32) for name, column in columns.items()}


def pool_layout(shape: MoeShape, block_m: int) -> PoolLayout:
    """The pool of tiles of ``block_m`` rows; the padding behind an expert's rows is computed in part."""
    tokens = np.asarray(shape.tokens_per_expert, np.int64)
    begins = np.asarray(shape.pool_places(block_m), np.int64)
    computed = _ROW_UNIT * -(-tokens // _ROW_UNIT)
    within = np.arange(shape.rows) - np.repeat(np.cumsum(tokens) - tokens, tokens)
    experts = tuple(
        (expert, int(begins[expert]), int(computed[expert])) for expert in np.flatnonzero(tokens).tolist()
    )
    return PoolLayout(
        experts, np.repeat(begins, tokens) + within, np.repeat(begins, tokens), np.repeat(computed, tokens)
    )


class _Operands:
    """The layer's memory as torch tensors, and the products of one expert's rows."""

    def __init__(
        self,
        torch: Any,
        device: int,
        shape: MoeShape,
        tensors: MoeTensors,
        arguments: np.void,
        pool_rows: int,
    ) -> None:
        self._torch, self._device, self._shape = torch, device, shape
        self._tensors, self._arguments, self._pool_rows = tensors, arguments, pool_rows
        self._scaled = shape.precision == "w8a8"

    def product1(self, expert: int, begin: int, rows: int) -> Callable[[], None]:
        """Gate and up of an expert's rows."""
        shape, scales = self._shape, self._tensors.scales
        columns, depth = 2 * shape.intermediate, shape.hidden
        tokens = self._rows(self._tensors.pool, begin, rows, depth)
        weights = self._rows(self._tensors.weights1, expert * columns, columns, depth)
        into = self._bf16(int(self._arguments["products1"]), begin, rows, columns)
        if scales is None:
            return self._plain(tokens, weights, into)
        of_pool = self._floats(scales.tokens, 0, shape.hidden_blocks, self._pool_rows)
        of_tokens = of_pool[:, begin : begin + rows].contiguous()
        blocks = 2 * shape.intermediate_blocks
        of_weights = self._floats(scales.weights1, expert * blocks, blocks, shape.hidden_blocks)
        return self._with_scales(tokens, of_tokens, weights, of_weights, into)

    def product2(self, expert: int, begin: int, rows: int) -> Callable[[], None]:
        """Outputs of an expert's rows."""
        shape, scales = self._shape, self._tensors.scales
        columns, depth = shape.hidden, shape.intermediate
        made = self._rows(int(self._arguments["activations"]), begin, rows, depth)
        weights = self._rows(self._tensors.weights2, expert * columns, columns, depth)
        into = self._bf16(int(self._arguments["products2"]), begin, rows, columns)
        if scales is None:
            return self._plain(made, weights, into)
        blocks = shape.intermediate_blocks
        first_scale = int(self._arguments["scales"]) + 4 * begin * blocks
        of_made = self._floats(first_scale, 0, blocks, rows)
        of_weights = self._floats(scales.weights2, expert * shape.hidden_blocks, shape.hidden_blocks, blocks)
        return self._with_scales(made, of_made, weights, of_weights, into)

    def _plain(self, rows: Any, weights: Any, into: Any) -> Callable[[], None]:
        return lambda: self._torch.mm(rows, weights.T, out=into)

    def _with_scales(
        self, rows: Any, of_rows: Any, weights: Any, of_weights: Any, into: Any
    ) -> Callable[[], None]:
        """Scales of rows are ``[blocks, rows]``, of weights ``[blocks of columns, blocks of depth]``."""
        multiply = self._torch._scaled_mm
        return lambda: multiply(
            rows, weights.T, of_rows.T, of_weights.T, out_dtype=self._torch.bfloat16, out=into
        )

    def _rows(self, address: int, first: int, rows: int, columns: int) -> Any:
        element = self._torch.float8_e4m3fn if self._scaled else self._torch.bfloat16
        return self._tensor(address, element, first, rows, columns)

    def _bf16(self, address: int, first: int, rows: int, columns: int) -> Any:
        return self._tensor(address, self._torch.bfloat16, first, rows, columns)

    def _floats(self, address: int, first: int, rows: int, columns: int) -> Any:
        return self._tensor(address, self._torch.float32, first, rows, columns)

    def _tensor(self, address: int, element: Any, first: int, rows: int, columns: int) -> Any:
        """``[rows, columns]`` from row ``first`` of a matrix at an address; it owns nothing."""
        row_bytes = columns * element.itemsize
        memory = _Bytes(address + first * row_bytes, rows * row_bytes)
        numbers = self._torch.as_tensor(memory, device=f"cuda:{self._device}")
        return numbers.view(element).view(rows, columns)


class _Bytes:
    """Memory of the GPU, as torch takes it from others."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3,
        }  # fmt: skip


def _opened(opened: ExitStack, memory: GpuMemory) -> GpuMemory:
    opened.callback(memory.close)
    return memory
