"""Full attention with the Ulysses All-to-All fused into its output, on torch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from math import ceil
from typing import TYPE_CHECKING, Any

from xstage_tune.configs.schema import AttentionConfig
from xstage_tune.errors import DeviceError, UsageError
from xstage_tune.ops.tensors import Tensor, attention_sizes

if TYPE_CHECKING:
    from xstage_tune.devices.cuda.attention_kernel import AttentionA2A
    from xstage_tune.devices.cuda.attention_shape import AttentionShape, Destinations


def default_attention_config(tokens: int, heads: int, sms: int) -> AttentionConfig:
    """The variant that is taken where none is given: the tile whose rounds of all SMs take the least time.

    A round of 192-row tiles takes about as long as one and a half of 128 rows. At 3 heads, 8,192 tokens are
    one round of 129 tiles, or two of 128 rows whose second is half empty. Equal times go to
    FlashAttention-3's tile.

    Args:
        tokens, heads: of this rank.
        sms: SMs of the GPU.
    """

    def rows_in_turn(block_m: int) -> int:
        return block_m * ceil(heads * ceil(tokens / block_m) / sms)

    tall = rows_in_turn(192) < rows_in_turn(128)
    return AttentionConfig(
        block_m=192 if tall else 128,
        block_n=128 if tall else 176,
        kv_stages=2,
        output_staging="alias-q" if tall else "alias-v",
        tile_order="rotated",
        store_flavour="st.v4",
    )


def attention_a2a(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out_ptrs: Sequence[int] | Destinations,
    config: AttentionConfig | None = None,
    *,
    rank: int = 0,
    softmax_scale: float | None = None,
    complete: bool = True,
) -> None:
    """Attend with this rank's heads to all tokens, and store every token's rows to the rank that owns it.

    Queued on torch's current stream. It may be captured into a CUDA graph once it has been called outside
    of one with the same shapes, config and GPU: the first call compiles.

    Args:
        q, k, v: ``[tokens, local heads, head_dim]`` bf16, contiguous, on one Hopper GPU; not causal.
        out_ptrs: where rank ``t``'s ``[ceil(tokens / P) or fewer, P * local heads, head_dim]`` bf16 lies,
            one address for each of the P ranks, in any memory that the GPU can store to (its own, a peer's,
            pinned host memory); or :class:`~xstage_tune.devices.cuda.attention_shape.Destinations`, which
            also name the words to signal and the second buffers. One address is the attention alone:
            ``[tokens, local heads, head_dim]``.
        config: the variant; :func:`default_attention_config` by default.
        rank: this rank, whose heads are ``[rank * local heads, (rank + 1) * local heads)``.
        softmax_scale: by default ``head_dim ** -0.5``.
        complete: with signals, end with a fence and a signal to all ranks.

    Raises:
        UsageError: a tensor, the destinations or the config do not fit; or the first call is being captured.
        DeviceError: torch is not installed, the GPU is no Hopper, or it lacks memory.
    """
    from xstage_tune.devices.cuda.attention_shape import AttentionShape, Destinations

    tokens, heads, head_dim = attention_sizes(q, k, v)
    destinations = out_ptrs if isinstance(out_ptrs, Destinations) else Destinations(tuple(out_ptrs))
    shape = AttentionShape(tokens, heads, head_dim, len(destinations.buffers), rank)
    destinations.check(shape)
    torch = _torch()
    sms = torch.cuda.get_device_properties(q.device).multi_processor_count
    chosen = config or default_attention_config(tokens, heads, sms)
    with torch.cuda.device(q.device):
        kernel = _kernel(q.device.index, shape, chosen, softmax_scale)
        prepared = kernel.prepare(q.data_ptr(), k.data_ptr(), v.data_ptr(), destinations, complete=complete)
        kernel.launch(prepared, _current_stream(torch))


@cache
def _kernel(
    device: int, shape: AttentionShape, config: AttentionConfig, softmax_scale: float | None
) -> AttentionA2A:
    """The compiled variant; torch's context of the GPU is current."""
    from cuda.core import Device

    from xstage_tune.devices.cuda.attention_kernel import AttentionA2A

    torch = _torch()
    if torch.cuda.is_current_stream_capturing():
        raise UsageError(
            f"config {config.label} is not compiled for this shape yet, and a graph is being captured",
            "call attention_a2a once before the capture",
        )
    gpu = Device(device)
    gpu.set_current()
    return AttentionA2A(gpu, shape, config, softmax_scale=softmax_scale)


def _current_stream(torch: Any) -> Any:
    from cuda.core import Stream

    return Stream.from_handle(torch.cuda.current_stream().cuda_stream)


def _torch() -> Any:
    try:
        return import_module("torch")
    except ImportError as error:
        raise DeviceError(f"torch is not available: {error}", "install it as its own site says") from None
