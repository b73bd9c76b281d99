"""What to change in an attention kernel, with the numbers that would satisfy the bounds."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from xstage_tune.base.number_format import duration
from xstage_tune.estimates.figures import derived
from xstage_tune.families.advice import Action, TileSide, passes, piggyback, shrink
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.estimate import AttentionEstimate, estimate_attention
from xstage_tune.families.attention_a2a.launch import attention_grid
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.workload_fields import OUTPUT_BYTES


def attention_actions(
    workload: AttentionWorkload,
    config: AttentionConfig,
    audit: AttentionEstimate,
    fits: Callable[[AttentionConfig], bool],
) -> tuple[Action, ...]:
    """What to change in an attention kernel; piggyback where nothing need be."""
    if passes(audit.burst, audit.predicted):
        return (piggyback(),)
    actions = [] if audit.predicted.rate_ok else [_longer_sequence(workload, config, audit)]
    row_bytes = workload.head_dim * OUTPUT_BYTES * workload.output_remote_fraction
    # Of a tile that CTAs share, each stores its part of the rows.
    side = TileSide(config, "block_m", row_bytes / config.kv_splits, fits)
    return (*actions, *shrink(audit.burst, audit.predicted, side))


def _longer_sequence(
    workload: AttentionWorkload, config: AttentionConfig, audit: AttentionEstimate
) -> Action:
    """M*_ub of bursts of all SMs: with fewer, bursts grow as fast as the gap does."""
    platform = audit.burst.platform
    tiles_at_once = attention_grid(config, workload, platform).teams
    whole_round = config.block_m * ceil(tiles_at_once / workload.local_heads)
    longer = workload.model_copy(update={"tokens": max(workload.tokens, whole_round)})
    found = estimate_attention(longer, platform, config)
    tokens = max(longer.tokens, ceil(found.converged_tokens.value))
    limit = derived(tokens, "M*_ub of bursts of all SMs, rounded up", found.converged_tokens)
    gap, target = duration(audit.predicted.gap_ns.value), duration(found.burst.recovery_gap_ns.value)
    text = f"from {tokens:,} tokens on the gap is G* = {target}; at {workload.tokens:,} it is {gap}"
    return Action("longer_sequence", limit, text)
