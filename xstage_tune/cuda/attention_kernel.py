"""The fused FlashAttention on a GPU: compiled once, launched many times."""

from __future__ import annotations

from dataclasses import dataclass
from math import e, inf, log2

import numpy as np
from cuda.core import Device, Kernel, Stream
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError
from xstage_tune.base.spans import RECORD_DTYPE, SpanTable
from xstage_tune.cuda.attention_arguments import EPOCH_STATE, attention_arguments
from xstage_tune.cuda.attention_shape import AttentionShape, Destinations
from xstage_tune.cuda.attention_variants import (
    EPOCHS,
    KERNEL,
    attention_variant,
    recording_bytes,
    threads,
)
from xstage_tune.cuda.compiler import CompiledKernel
from xstage_tune.cuda.driver import allow_shared_memory, launch
from xstage_tune.cuda.fused_loading import (
    SpanBuffers,
    compile_fused,
    load_kernels,
    require_clean,
    require_hopper,
)
from xstage_tune.cuda.memory import GpuMemory
from xstage_tune.families.attention_a2a.budget import finishing_warpgroups
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.order import AttentionGrid

_SPANS_PER_TILE = 3


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """The argument block of launches on the same tensors and destinations, and whether they signal."""

    arguments: NDArray[np.void]
    destinations: Destinations


class AttentionA2A:
    """One variant for one shape on one GPU: compile once, prepare per set of buffers, launch many times.

    Args:
        device: the GPU; its primary context must be current in the calling thread.
        shape: what this rank computes.
        config: the variant.
        softmax_scale: by default ``head_dim ** -0.5``.
        record_spans: build the variant that records, for every tile and consumer warpgroup, the Q-loop, the
            wait for a staging slot and the issue of its stores.
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
            config, shape.head_dim, record_spans=record_spans, omit_signal=omit_signal
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
        self._epochs = GpuMemory.zeroed(device, EPOCH_STATE.itemsize)
        self._recording = _span_buffers(device, shape, config, grid) if record_spans else None

    def prepare(
        self, query: int, key: int, value: int, destinations: Destinations, *, complete: bool = True
    ) -> PreparedLaunch:
        """Arguments of launches on these tensors and destinations.

        Args:
            query, key, value: addresses of ``[tokens, heads, head_dim]`` bf16, contiguous.
            complete: make every launch end with a fence, which waits for all of its stores, and a signal to
                all ranks. Otherwise :meth:`signal` does that once for all launches before it; until then
                all of them store to the buffer of the same epoch. No matter where ``destinations`` has no
                signals.

        Raises:
            UsageError: the destinations do not fit the shape, or an address is misaligned.
        """
        arguments = attention_arguments(
            self.shape, self.config, (query, key, value), destinations, self._scale_log2
        )
        row = arguments[0]
        if destinations.signals:
            row["epochs"] = self._epochs.address
            row["complete"] = complete
        if self._recording is not None:
            row["lanes"], row["spans"] = self._recording.lanes.address, self._recording.spans.address
            row["span_capacity"] = self._recording.capacity
        return PreparedLaunch(arguments, destinations)

    def launch(self, prepared: PreparedLaunch, stream: Stream) -> None:
        """Queue one launch. Allocates and waits for nothing, so it may be captured into a CUDA graph."""
        launch(
            self._kernel,
            stream,
            grid=(self.ctas, 1),
            threads=threads(self.config),
            shared_bytes=self._shared_bytes,
            arguments=prepared.arguments,
            cooperative=False,
        )

    def signal(self, prepared: PreparedLaunch, stream: Stream) -> None:
        """Queue the completion of launches that were prepared without it: fence, and signal the next epoch.

        Raises:
            UsageError: the destinations have no signals.
        """
        if not prepared.destinations.signals:
            raise UsageError("these destinations have no signals", "give one signal a rank")
        launch(
            self._epoch_kernels["signal_epoch"],
            stream,
            grid=(1, 1),
            threads=1,
            shared_bytes=0,
            arguments=prepared.arguments,
            cooperative=False,
        )

    def epoch(self, stream: Stream) -> int:
        """Epochs signalled so far; waits for the stream."""
        state = np.zeros(1, EPOCH_STATE)
        self._epochs.read_into(state, stream)
        return int(state["epoch"][0])

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
        self._epochs.close()
        if self._recording is not None:
            self._recording.close()


def _span_buffers(
    device: Device, shape: AttentionShape, config: AttentionConfig, grid: AttentionGrid
) -> SpanBuffers:
    lanes_per_cta = finishing_warpgroups(config)
    fitting = recording_bytes(config, shape.head_dim) // lanes_per_cta // RECORD_DTYPE.itemsize
    return SpanBuffers(device, grid.ctas * lanes_per_cta, min(fitting, _SPANS_PER_TILE * grid.rounds))


def load_epoch_kernels(device: Device) -> dict[str, Kernel]:
    """The kernels that signal and wait, by name, loaded on ``device``, whose context is current.

    Raises:
        DeviceError: there is no compiler, or no GPU.
    """
    return load_kernels(device, compile_fused(EPOCHS))


def _require_kv_tiles(shape: AttentionShape, config: AttentionConfig) -> None:
    if config.kv_splits > 1 and shape.tokens <= config.block_n:
        raise UsageError(
            f"config {config.label} has nothing to split: {shape.tokens} KV rows are one tile of "
            f"{config.block_n}",
            "take kv_splits = 1",
        )


def require_usable(compiled: CompiledKernel, config: AttentionConfig) -> None:
    """See :func:`~xstage_tune.cuda.fused_loading.require_clean`."""
    require_clean(compiled, KERNEL, config.label, "lower block_n")
