"""The fused FlashAttention on a GPU: compiled once, launched many times."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from math import e, inf, log2

import numpy as np
from cuda.core import Device, Stream

from xstage_tune.base.errors import UsageError
from xstage_tune.base.spans import RECORD_DTYPE, SpanTable
from xstage_tune.cuda.attention_arguments import RECEIPT, attention_arguments
from xstage_tune.cuda.attention_epochs import Exchange, Receipt, load_epoch_kernels
from xstage_tune.cuda.attention_maps import InputStrides
from xstage_tune.cuda.attention_shape import AttentionShape, Destinations
from xstage_tune.cuda.attention_variants import (
    KERNEL,
    attention_variant,
    recording_bytes,
    threads,
)
from xstage_tune.cuda.compiler import CompiledKernel
from xstage_tune.cuda.driver import Launch, allow_shared_memory
from xstage_tune.cuda.fused_loading import (
    SpanBuffers,
    compile_fused,
    load_kernels,
    require_clean,
    require_hopper,
)
from xstage_tune.families.attention_a2a.budget import finishing_warpgroups
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.order import AttentionGrid

_SPANS_PER_TILE = 3


#: What ``complete`` of the arguments asks for: the numbers of ``Completion`` of ``arguments.cuh``.
_SIGNAL, _SIGNAL_AND_RECEIVE = 1, 2


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """A launch on given tensors and destinations, to be queued many times.

    Args:
        exchange: None for destinations without signals.
        numbers: of calls that do not overlap; None where launches may.
        call: this launch's place for such a number.
        lse: its place for where log-sum-exps go, of a variant that writes them.
        output, timeout_ns: its places for where this rank's tokens are received, and for how long senders are
            awaited; behind that the output becomes NaNs and the exchange has a fault.
    """

    launch: Launch
    exchange: Exchange | None
    numbers: Iterator[int] | None
    call: ctypes.c_uint32
    lse: ctypes.c_uint64
    output: ctypes.c_uint64
    timeout_ns: ctypes.c_uint64

    def queue(self, stream: int) -> None:
        """Launch on the stream of this handle. Allocates and waits for nothing, so it may be captured."""
        if self.numbers is not None:
            self.call.value = next(self.numbers)
        self.launch.queue(stream)


class AttentionA2A:
    """One variant for one shape on one GPU: compile once, prepare per set of buffers, launch many times.

    Args:
        device: the GPU; its primary context must be current in the calling thread.
        shape: what this rank computes.
        config: the variant.
        softmax_scale: by default ``head_dim ** -0.5``.
        record_spans: build the variant that records, for every tile and consumer warpgroup, the Q-loop, the
            wait for a staging slot and the issue of its stores.
        write_lse: build the variant that also writes, of every row of this rank's heads, the natural
            logarithm of the sum of exponentials of its scaled scores.
        omit_signal: for a test of the completion's check: a kernel that signals nothing.

    Raises:
        UsageError: the kernel has no such variant, it spills, there are too few tokens to split, or the
            scale is not positive.
        DeviceError: the GPU is older than Hopper or has another architecture, or there is no compiler.
    """

    def __init__(
        self,
        device: Device,
        shape: AttentionShape,
        config: AttentionConfig,
        *,
        softmax_scale: float | None = None,
        record_spans: bool = False,
        write_lse: bool = False,
        omit_signal: bool = False,
    ) -> None:
        require_hopper(device, "attention")
        scale = shape.head_dim**-0.5 if softmax_scale is None else softmax_scale
        if not 0 < scale < inf:
            raise UsageError(f"softmax scale {scale} is not positive", "leave it out for head_dim ** -0.5")
        _require_kv_tiles(shape, config)
        self.shape = shape
        self.config = config
        self._scale_log2 = scale * log2(e)
        variant = attention_variant(
            config, shape.head_dim, record_spans=record_spans, write_lse=write_lse, omit_signal=omit_signal
        )
        self.compiled = compile_fused(variant)
        require_usable(self.compiled, config)
        self._kernel = load_kernels(device, self.compiled)[KERNEL]
        self._shared_bytes = int(variant.defines["SHARED_BYTES"])
        allow_shared_memory(self._kernel, self._shared_bytes, device)
        self._epoch_kernels = load_epoch_kernels(device)
        sms = int(device.properties.multiprocessor_count)
        grid = AttentionGrid(shape.heads, shape.tokens, config.block_m, sms, kv_splits=config.kv_splits)
        #: CTAs of a launch: at most one an SM.
        self.ctas = grid.ctas
        self._recording = _span_buffers(device, shape, config, grid) if record_spans else None

    def prepare(
        self,
        query: int,
        key: int,
        value: int,
        destinations: Destinations,
        *,
        strides: InputStrides | None = None,
        exchange: Exchange | None = None,
        complete: bool = True,
        receipt: Receipt | None = None,
    ) -> PreparedLaunch:
        """Arguments of launches on these tensors and destinations.

        Args:
            query, key, value: addresses of ``[tokens, heads, head_dim]`` bf16.
            strides: of the three, in bytes, from token to token and from head to head; contiguous by default.
            exchange: the epochs of these destinations, which need them if they have signals.
            complete: make every launch end with a fence, which waits for all of its stores, and a signal to
                all ranks. Otherwise :meth:`signal` does that once for all launches before it; until then
                all of them store to the buffer of the same epoch. No matter where ``destinations`` has no
                signals.
            receipt: where this rank's tokens are received; :class:`PreparedLaunch` says where to.

        Raises:
            UsageError: the destinations do not fit the shape, an address is misaligned, or signals come
                without an exchange.
        """
        arguments = attention_arguments(
            self.shape, self.config, (query, key, value), destinations, self._scale_log2, strides
        )
        row = arguments[0]
        row["ctas"] = self.ctas
        grid = self.ctas
        if destinations.signals:
            if exchange is None:
                raise UsageError("destinations with signals need an exchange", "give the one of their epochs")
            row["exchange"] = exchange.address
            row["complete"] = complete and (_SIGNAL if receipt is None else _SIGNAL_AND_RECEIVE)
            if receipt is not None:
                ctas = receipt.ctas + receipt.ctas % self.config.kv_splits  # whole clusters
                receipt.fill(arguments, self.shape.ranks, ctas)
                grid += ctas
        else:
            exchange = None
        if self._recording is not None:
            row["lanes"], row["spans"] = self._recording.lanes.address, self._recording.spans.address
            row["span_capacity"] = self._recording.capacity
        launch = Launch(self._kernel, grid, threads(self.config), self._shared_bytes, arguments)
        held = int(arguments.ctypes.data)
        in_receipt = _offset(arguments.dtype, "receipt")

        def address(offset: int) -> ctypes.c_uint64:
            return ctypes.c_uint64.from_address(held + offset)

        return PreparedLaunch(
            launch,
            exchange,
            exchange.numbers if exchange is not None and complete else None,
            ctypes.c_uint32.from_address(held + _offset(arguments.dtype, "call")),
            address(_offset(arguments.dtype, "lse")),
            address(in_receipt + _offset(RECEIPT, "output")),
            address(in_receipt + _offset(RECEIPT, "timeout_ns")),
        )

    def launch(self, prepared: PreparedLaunch, stream: Stream) -> None:
        """Queue one launch. Allocates and waits for nothing, so it may be captured into a CUDA graph."""
        prepared.queue(int(stream.handle))

    def signal(self, prepared: PreparedLaunch, stream: Stream) -> None:
        """Queue the completion of launches that were prepared without it: fence, and signal the next epoch.

        Raises:
            UsageError: the destinations have no signals.
        """
        if prepared.exchange is None:
            raise UsageError("these destinations have no signals", "give one signal a rank")
        kernel = self._epoch_kernels["signal_epoch"]
        Launch(kernel, 1, 1, 0, prepared.launch.arguments).queue(int(stream.handle))

    def read_spans(self, stream: Stream) -> SpanTable:
        """Spans of the last launch; waits for the stream.

        Lane ``cta * warpgroups + warpgroup``, whose number is also the spans' role; ``index`` is the tile's
        number on its CTA. A tile's ``MAINLOOP``, ``STAGING_STALL`` and ``ISSUE`` follow each other without
        gaps.

        Raises:
            UsageError: this variant records no spans.
        """
        if self._recording is None:
            raise UsageError("this variant records no spans", "build it with record_spans")
        return self._recording.read(stream)

    def close(self) -> None:
        """Free the buffers; safe to call twice."""
        if self._recording is not None:
            self._recording.close()


def _offset(dtype: np.dtype[np.void], name: str) -> int:
    assert dtype.fields is not None
    return int(dtype.fields[name][1])


def _span_buffers(
    device: Device, shape: AttentionShape, config: AttentionConfig, grid: AttentionGrid
) -> SpanBuffers:
    lanes_per_cta = finishing_warpgroups(config)
    fitting = recording_bytes(config, shape.head_dim) // lanes_per_cta // RECORD_DTYPE.itemsize
    return SpanBuffers(device, grid.ctas * lanes_per_cta, min(fitting, _SPANS_PER_TILE * grid.rounds))


def _require_kv_tiles(shape: AttentionShape, config: AttentionConfig) -> None:
    if config.kv_splits > 1 and shape.keys <= config.block_n:
        raise UsageError(
            f"config {config.label} has nothing to split: {shape.keys} KV rows are one tile of "
            f"{config.block_n}",
            "take kv_splits = 1",
        )


def require_usable(compiled: CompiledKernel, config: AttentionConfig) -> None:
    """See :func:`~xstage_tune.cuda.fused_loading.require_clean`."""
    require_clean(compiled, KERNEL, config.label, "lower block_n")
