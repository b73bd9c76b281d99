"""Full attention with the Ulysses All-to-All fused into its output, on torch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from xstage_tune.base.errors import UsageError
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.defaults import default_attention_config
from xstage_tune.ops.collective import ProcessGroup
from xstage_tune.ops.group import attend_over_group
from xstage_tune.ops.runtime import build_kernel, current_stream, import_torch
from xstage_tune.ops.tensors import Tensor, attention_sizes

if TYPE_CHECKING:
    from xstage_tune.cuda.attention_kernel import AttentionA2A
    from xstage_tune.cuda.attention_shape import AttentionShape, Destinations


def attention_a2a(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    destination: Sequence[int] | Destinations | ProcessGroup,
    config: AttentionConfig | None = None,
    *,
    rank: int | None = None,
    softmax_scale: float | None = None,
    complete: bool = True,
    timeout_s: float = 60.0,
) -> Any:
    """Attend with this rank's heads to all tokens, and store every token's rows to the rank that owns it.

    Queued on torch's current stream.

    To addresses it may be captured into a CUDA graph, once it has been called outside of one with the same
    shapes, config and GPU: the first call compiles.

    To a process group every rank calls it, equally often and in one order. The first call with a shape,
    config and scale sets up buffers in torch symmetric memory, which waits for all ranks. Each call then
    holds the stream until all ranks' rows have arrived. It cannot be captured.

    Args:
        q, k, v: ``[tokens, local heads, head_dim]`` bf16, contiguous, on one Hopper GPU; not causal.
        destination: a ``torch.distributed`` process group of P ranks; or where rank ``t``'s
            ``[ceil(tokens / P) or fewer, P * local heads, head_dim]`` bf16 lies, one address for each of the
            P ranks, in any memory that the GPU can store to (its own, a peer's, pinned host memory); or
            :class:`~xstage_tune.cuda.attention_shape.Destinations`, which also name the words to
            signal and the second buffers. One address is the attention alone:
            ``[tokens, local heads, head_dim]``.
        config: the variant; by default the one that a search has to beat,
            :func:`~xstage_tune.families.attention_a2a.defaults.default_attention_config`.
        rank: this rank, whose heads are ``[rank * local heads, (rank + 1) * local heads)``: for addresses 0
            by default; a group knows it.
        softmax_scale: by default ``head_dim ** -0.5``.
        complete: with signals, end with a fence and a signal to all ranks; a group's calls always do.
        timeout_s: of a group, how long the GPU waits for other ranks. The next call reports that the time
            ran out, as does :func:`~xstage_tune.ops.group.check_group`.

    Returns:
        Of a group, this rank's tokens with all ranks' heads, a view of a buffer:
        ``[rows, P * local heads, head_dim]`` bf16, ``rows`` being ``ceil(tokens / P)``, on the last ranks
        fewer. Use it, or copy it, in the order of the stream before the next call: the ranks store that
        call's rows to the other buffer, and then to this one. Of addresses None.

    Raises:
        UsageError: a tensor, the destination or the config do not fit; the ranks of a group disagree; or
            what cannot be captured is being captured.
        DeviceError: torch is not installed, the GPU is no Hopper, or it lacks memory; the GPUs of a group
            cannot address each other; another rank failed or was late.
    """
    from xstage_tune.cuda.attention_shape import AttentionShape, Destinations

    tokens, heads, head_dim = attention_sizes(q, k, v)
    if isinstance(destination, ProcessGroup):
        _check_group_arguments(destination, rank, complete)
        shape = AttentionShape(tokens, heads, head_dim, destination.size(), destination.rank())
    else:
        destination = destination if isinstance(destination, Destinations) else _of_addresses(destination)
        shape = AttentionShape(tokens, heads, head_dim, len(destination.buffers), rank or 0)
        destination.check(shape)
    torch = import_torch()
    sms = torch.cuda.get_device_properties(q.device).multi_processor_count
    chosen = config or default_attention_config(tokens, heads, sms)
    with torch.cuda.device(q.device):
        if isinstance(destination, ProcessGroup):
            return attend_over_group((q, k, v), destination, shape, chosen, softmax_scale, timeout_s)
        kernel = _kernel(q.device.index, shape, chosen, softmax_scale)
        prepared = kernel.prepare(q.data_ptr(), k.data_ptr(), v.data_ptr(), destination, complete=complete)
        kernel.launch(prepared, current_stream())
        return None


def _check_group_arguments(group: ProcessGroup, rank: int | None, complete: bool) -> None:
    if rank is not None and rank != group.rank():
        raise UsageError(
            f"rank {rank} is rank {group.rank()} of the group", "leave rank out: the group knows it"
        )
    if not complete:
        raise UsageError(
            "attention over a process group that does not complete",
            "leave complete out, or give Destinations",
        )


def _of_addresses(addresses: Sequence[int]) -> Destinations:
    from xstage_tune.cuda.attention_shape import Destinations

    if not isinstance(addresses, Sequence):
        raise UsageError(
            f"the destination is of type {type(addresses).__name__}",
            "give one address a rank, Destinations, or a process group that this rank is in",
        )
    return Destinations(tuple(addresses))


@cache
def _kernel(
    device: int,  # noqa: ARG001 - a part of the key
    shape: AttentionShape,
    config: AttentionConfig,
    softmax_scale: float | None,
) -> AttentionA2A:
    """The compiled variant for addresses, on torch's current GPU ``device``."""
    if import_torch().cuda.is_current_stream_capturing():
        raise UsageError(
            f"config {config.label} is not compiled for this shape yet, and a graph is being captured",
            "call attention_a2a once before the capture",
        )
    return build_kernel(shape, config, softmax_scale)
