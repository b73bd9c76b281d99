"""The All-to-All apart from the attention, in the three ways that a fused kernel is compared with."""

from __future__ import annotations

import numpy as np
from cuda.bindings import driver
from cuda.core import Stream
from numpy.typing import NDArray

from xstage_tune.cuda.attention_maps import head_address
from xstage_tune.cuda.attention_shape import MAX_RANKS, AttentionShape, Destinations
from xstage_tune.cuda.compiler import CompiledKernel
from xstage_tune.cuda.driver import check, launch
from xstage_tune.cuda.gpu import Gpu
from xstage_tune.cuda.variants import KernelVariant

STORE_KERNEL = "store_to_ranks"
PERMUTE_KERNEL = "permute_received"
SERIAL = KernelVariant("attention_a2a/serial.cu", (STORE_KERNEL, PERMUTE_KERNEL))
#: The struct of ``kernels/attention_a2a/serial.cu``.
SERIAL_ARGUMENTS = np.dtype(
    [
        ("source", "<u8"),
        ("destination", "<u8", (MAX_RANKS,)),
        ("tokens", "<u4"),
        ("ranks", "<u4"),
        ("rank", "<u4"),
        ("rows_per_rank", "<u4"),
        ("vectors", "<u4"),
        ("token_bytes", "<u4"),
    ]
)
_THREADS = 256
_CTAS_PER_SM = 4  # with 4 vectors a thread in flight more than any path needs
_VECTOR_BYTES = 16


class SerialA2A:
    """Moves a rank's attention output, ``[tokens, heads, head_dim]`` bf16, to the ranks that own the tokens.

    Every method only queues: it allocates and waits for nothing, so it may be captured into a CUDA graph.

    Raises:
        DeviceError: there is no compiler.
    """

    def __init__(self, gpu: Gpu, shape: AttentionShape) -> None:
        loaded = gpu.load(SERIAL)
        self.compiled: CompiledKernel = loaded.compiled
        self._kernels = loaded.kernels
        self._shape = shape
        self._ctas = _CTAS_PER_SM * gpu.sm_count

    def store(self, source: int, destinations: Destinations, stream: Stream) -> None:
        """The strong one: a kernel whose threads, on all SMs, store straight to every rank."""
        shape = self._shape
        arguments = self._arguments(source)
        for rank in range(shape.ranks):
            arguments["destination"][0, rank] = head_address(rank, shape, destinations)
        self._launch(STORE_KERNEL, arguments, stream)

    def copy(self, source: int, destinations: Destinations, stream: Stream) -> None:
        """By the copy engine: one strided copy a rank, into this rank's heads of its tokens."""
        shape = self._shape
        own_bytes = shape.heads * shape.row_bytes
        for rank in range(shape.ranks):
            if not shape.rows_of(rank):
                continue
            copy = driver.CUDA_MEMCPY2D()
            copy.srcMemoryType = copy.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_UNIFIED
            copy.srcDevice = self._tokens_of(rank, source)
            copy.dstDevice = head_address(rank, shape, destinations)
            copy.srcPitch = copy.WidthInBytes = own_bytes
            copy.dstPitch = shape.token_bytes
            copy.Height = shape.rows_of(rank)
            check(driver.cuMemcpy2DAsync(copy, _handle(stream)), f"copy to the buffer of rank {rank}")

    def copy_and_permute(
        self, source: int, receivers: Destinations, received: int, permuted: int, stream: Stream
    ) -> None:
        """The naive one, as a collective and a permute: one contiguous copy a rank, then a kernel.

        A rank receives ``[ranks, its tokens, heads, head_dim]`` and brings them into the order of its tokens.
        What this rank receives from the others takes no part in the copies, but all of it in the permute.

        Args:
            receivers: where each rank receives.
            received: where this rank receives, in its own memory.
            permuted: its output, ``[its tokens, ranks * heads, head_dim]``.
        """
        shape = self._shape
        for rank in range(shape.ranks):
            if shape.rows_of(rank):
                nbytes = shape.rows_of(rank) * shape.heads * shape.row_bytes
                target = receivers.buffers[rank] + shape.rank * nbytes
                copied = driver.cuMemcpyAsync(target, self._tokens_of(rank, source), nbytes, _handle(stream))
                check(copied, f"copy to rank {rank}")
        arguments = self._arguments(received)
        arguments["destination"][0, 0] = permuted
        arguments["tokens"] = shape.rows_of(shape.rank)
        self._launch(PERMUTE_KERNEL, arguments, stream)

    def _tokens_of(self, rank: int, source: int) -> int:
        """Where the tokens of ``rank`` begin in the attention's output."""
        shape = self._shape
        return source + rank * shape.rows_per_rank * shape.heads * shape.row_bytes

    def _arguments(self, source: int) -> NDArray[np.void]:
        shape = self._shape
        arguments = np.zeros(1, SERIAL_ARGUMENTS)
        arguments["source"] = source
        arguments["tokens"], arguments["rows_per_rank"] = shape.tokens, shape.rows_per_rank
        arguments["ranks"], arguments["rank"] = shape.ranks, shape.rank
        arguments["vectors"] = shape.heads * shape.row_bytes // _VECTOR_BYTES
        arguments["token_bytes"] = shape.token_bytes
        return arguments

    def _launch(self, name: str, arguments: NDArray[np.void], stream: Stream) -> None:
        launch(
            self._kernels[name],
            stream,
            grid=(self._ctas, 1),
            threads=_THREADS,
            shared_bytes=0,
            arguments=arguments,
            cooperative=False,
        )


def _handle(stream: Stream) -> driver.CUstream:
    return driver.CUstream(int(stream.handle))
