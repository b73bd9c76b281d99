"""A fused MoE layer over the ranks of a process group, on torch tensors."""

from __future__ import annotations

import sys
from typing import Any

from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.ops.collective import ProcessGroup
from xstage_tune.ops.moe_eager import compute
from xstage_tune.ops.tensors import Tensor


def mega_moe(
    tokens: Tensor,
    topk_ids: Tensor,
    topk_weights: Tensor,
    weights1: Tensor,
    weights2: Tensor,
    group: ProcessGroup,
    *,
    max_tokens: int,
    scales1: Tensor | None = None,
    scales2: Tensor | None = None,
    token_scales: Tensor | None = None,
    max_rows: int | None = None,
    config: MegaMoeConfig | None = None,
    timeout_s: float = 300.0,
    out: Any = None,
) -> Any:
    """Send every token to its experts, whatever rank they live on, and sum what they make of it.

    One kernel pulls the tokens that are routed here, computes Linear-1 (gate and up), SwiGLU and Linear-2,
    and stores each row to the rank whose token it is of; a reduction sums a token's rows in the order of its
    choices, so the result is the same bit for bit in every run. Expert e lives on rank
    ``e // local experts``.

    Queued on torch's current stream. The routing stays on the GPU: nothing is read back, so calls may be
    captured into CUDA graphs, once they have been called outside of one with the same sizes. The first call
    compiles, and waits for all ranks; nothing is allocated afterwards but the result, and nothing waits for
    the GPU. Layers of the same sizes share memory.

    Every rank calls it, equally often and in one order, with as many tokens as it has, or none: a replay
    counts as what was captured. Calls follow each other, whatever streams they are on: an eager call waits
    for the one before it by an event. Launch graphs on the stream of the other calls, or order them by
    events.

    ``torch.compile(fullgraph=True)`` takes it. It has no gradient.

    Args:
        tokens: ``[tokens, hidden]`` bf16, contiguous, on one Hopper GPU. With e4m3 weights they are quantised
            here, a scale for every 128 columns of a token; or they come as e4m3 with ``token_scales``.
        topk_ids: ``[tokens, top_k]`` int32 or int64, experts of all ranks.
        topk_weights: ``[tokens, top_k]`` fp32.
        weights1: this rank's experts' gate and up, ``[local experts, 2 * intermediate, hidden]`` bf16 or
            e4m3, gate first, contiguous.
        weights2: ``[local experts, hidden, intermediate]``.
        group: a ``torch.distributed`` process group of 1 to 8 ranks.
        max_tokens: of any rank in a call; the same on all ranks. Memory is for so many.
        scales1, scales2: of e4m3, fp32, one for each block of 128x128:
            ``[local experts, 2 * intermediate / 128, hidden / 128]`` and the other way round, rounded up.
        token_scales: of tokens in e4m3, ``[tokens, hidden / 128]`` fp32.
        max_rows: that are routed to one rank in a call; by default memory is for all that there can be. More
            end the call with NaNs, and a fault.
        config: the variant, whose schedule is ``wave`` or ``interleaved``; by default the widest tile, and
            Algorithm 1 with its usual lead.
        timeout_s: how long the GPU waits for other ranks. Where the time runs out the result is NaNs, nothing
            is stored or signalled from then on, and the next call outside of a capture reports it, as does
            :func:`~xstage_tune.ops.group.check_group`.
        out: where the result goes: contiguous ``[tokens, hidden]`` bf16.

    Returns:
        ``[tokens, hidden]`` bf16, a tensor of its own.

    Raises:
        UsageError: a tensor or the config does not fit; a tensor requires a gradient; the ranks disagree; or
            what has to be called first is being captured.
        DeviceError: torch is not installed, the GPU is no Hopper, or it lacks memory; the GPUs cannot address
            each other; another rank failed or was late; a choice was no expert; rows did not fit.
    """
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_compiling():
        import xstage_tune.ops.moe_operator  # noqa: F401 - makes the operator

        result = torch.ops.xstage_tune.moe_over_group(
            tokens, topk_ids, topk_weights, weights1, weights2, scales1, scales2, token_scales,
            group.group_name, max_tokens, max_rows, None if config is None else moe_config_text(config),  # type: ignore[attr-defined]
            timeout_s,
        )  # fmt: skip
        return result if out is None else out.copy_(result)
    return compute(
        tokens, topk_ids, topk_weights, weights1, weights2, scales1, scales2, token_scales, group, max_tokens,
        max_rows, config, timeout_s, out,
    )  # fmt: skip


def moe_config_text(config: MegaMoeConfig) -> str:
    """The config as JSON, by steps that a compiler can follow."""
    schedule = config.schedule
    of_kind = f'"lead_rows": {schedule.lead_rows}'
    if schedule.kind == "wave":
        of_kind = f'"experts_per_wave": {schedule.experts_per_wave}'
    return (
        f'{{"block_m": {config.block_m}, "block_n": {config.block_n}, "block_k": {config.block_k}, '
        f'"pipeline_stages": {config.pipeline_stages}, "staging_depth": {config.staging_depth}, '
        f'"schedule": {{"kind": "{schedule.kind}", {of_kind}}}, '
        f'"store_flavour": "{config.store_flavour}", "epilogue_warps": {config.epilogue_warps}}}'
    )
