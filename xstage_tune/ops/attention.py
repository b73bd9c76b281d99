"""Full attention with the Ulysses All-to-All fused into its output, on torch tensors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xstage_tune.base.errors import UsageError
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.ops.collective import ProcessGroup
from xstage_tune.ops.eager import attend
from xstage_tune.ops.tensors import Tensor

if TYPE_CHECKING:
    from xstage_tune.cuda.attention_shape import Destinations


def attention_a2a(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    destination: Sequence[int] | Destinations | ProcessGroup,
    config: AttentionConfig | None = None,
    *,
    rank: int | None = None,
    heads: int | None = None,
    softmax_scale: float | None = None,
    complete: bool = True,
    timeout_s: float = 300.0,
    out: Any = None,
    lse: Any = None,
) -> Any:
    """Attend with this rank's heads to all tokens, and store every token's rows to the rank that owns it.

    Queued on torch's current stream. May be captured into a CUDA graph once it has been called outside of one
    with the same shapes, strides, config and GPU: the first call compiles, and over a group waits for all
    ranks. Nothing is allocated afterwards but the result, and nothing waits for the GPU.

    Over a process group every rank calls it, equally often and in one order: a replay counts as what was
    captured, a capture does not count. Calls of a group follow each other, whatever streams they are on: an
    eager call waits for the one before it by an event. Replays cannot be ordered here: launch a graph on the
    stream of the other calls, or order it by events. A call that overlaps another is refused on the GPU, and
    reported as a late rank is.

    ``torch.compile(fullgraph=True)`` takes it over a process group. It has no gradient.

    Args:
        q: ``[tokens, local heads, head_dim]`` bf16 on one Hopper GPU, head_dim 64 or 128. Rows of head_dim
            neighbours; strides of tokens and heads are multiples of 8, so that views of one QKV tensor pass.
        k, v: ``[KV tokens, local heads, head_dim]``, as ``q``. Not causal: padding at their end is left out
            by slicing it off.
        destination: a ``torch.distributed`` process group of P ranks; or where rank ``t``'s
            ``[ceil(tokens / P) or fewer, heads, head_dim]`` bf16 lies, one address for each of the
            P ranks, in any memory that the GPU can store to (its own, a peer's, pinned host memory); or
            :class:`~xstage_tune.cuda.attention_shape.Destinations`, which also name the words to
            signal and the second buffers. One address is the attention alone:
            ``[tokens, local heads, head_dim]``.
        config: the variant; by default the one that a search has to beat,
            :func:`~xstage_tune.families.attention_a2a.defaults.default_attention_config`, or where the
            installed compiler spills in it a smaller tile, with a warning.
        rank: this rank, which has the ``rank``-th part of the heads: for addresses 0 by default; a group
            knows it.
        heads: of all ranks, by default ``P * local heads``. Where P does not divide them, the first
            ``heads % P`` ranks have one more than the others.
        softmax_scale: by default ``head_dim ** -0.5``.
        complete: with signals, end with a fence and a signal to all ranks; a group's calls always do.
        timeout_s: of a group, how long the GPU waits for other ranks. Where the time runs out the result is
            NaNs, nothing is stored or signalled from then on, and the next call outside of a capture reports
            it, as does :func:`~xstage_tune.ops.group.check_group`.
        lse: where the log-sum-exp of every row goes: the natural logarithm of the sum over keys of exp(scaled
            score), with which outputs over parts of the keys are merged. Of this rank's heads and all tokens,
            contiguous ``[local heads, tokens]`` fp32: the ranks exchange no lse. A kernel of its own writes
            it; of a group all ranks give one, or none.
        out: of a group, where the result goes: contiguous, else as what is returned.

    Returns:
        Of a group, this rank's tokens with all ranks' heads: ``[rows, heads, head_dim]`` bf16,
        ``rows`` being ``ceil(tokens / P)``, on the last ranks fewer. A tensor of its own, which no later call
        touches; of a captured call, replays write it again. Of addresses None.

    Raises:
        UsageError: a tensor, the destination or the config do not fit; a tensor requires a gradient; the
            ranks of a group disagree; or what has to be called first is being captured.
        DeviceError: torch is not installed, the GPU is no Hopper, or it lacks memory; the GPUs of a group
            cannot address each other; another rank failed or was late; two calls ran at once.
    """
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_compiling():
        if lse is not None:
            raise UsageError("an lse in a compiled program", "call attention_a2a outside of torch.compile")
        return _traced(torch, q, k, v, destination, config, heads, softmax_scale, timeout_s, out)
    return attend(q, k, v, destination, config, rank, heads, softmax_scale, complete, timeout_s, out, lse)


def _traced(
    torch: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    destination: Any,
    config: AttentionConfig | None,
    heads: int | None,
    softmax_scale: float | None,
    timeout_s: float,
    out: Any,
) -> Any:
    """What a compiler sees: one operator, which knows the group by its name and the config by its JSON."""
    import xstage_tune.ops.operator  # noqa: F401 - makes the operator

    result = torch.ops.xstage_tune.attention_over_group(
        q, k, v, destination.group_name, destination.rank(), destination.size(),
        None if config is None else config_text(config), heads, softmax_scale, timeout_s,
    )  # fmt: skip
    return result if out is None else out.copy_(result)


def config_text(config: AttentionConfig) -> str:
    """The config as JSON, by steps that a compiler can follow."""
    return (
        f'{{"block_m": {config.block_m}, "block_n": {config.block_n}, "kv_stages": {config.kv_stages}, '
        f'"output_staging": "{config.output_staging}", "tile_order": "{config.tile_order}", '
        f'"store_flavour": "{config.store_flavour}", "kv_splits": {config.kv_splits}}}'
    )
