"""The audit of FlashAttention with a fused All-to-All: the Q-loop gap, equations 17 to 21."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from xstage_tune.audit.bursts import BurstTerms, burst_terms
from xstage_tune.audit.figures import Basis, Figure, derived
from xstage_tune.audit.prediction import (
    SchedulePrediction,
    completion_coupled,
    hiding,
    injection,
    issue_at,
    overhead,
    serial_drain,
    total,
)
from xstage_tune.audit.tile_times import QLoopTimes, q_loop_times
from xstage_tune.configs.schema import AttentionConfig
from xstage_tune.devices.tile_times import paced_part_of_q_loop
from xstage_tune.model import attention
from xstage_tune.model.checks import NS_PER_S
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.workloads.schema import OUTPUT_BYTES, AttentionWorkload


@dataclass(frozen=True, slots=True)
class AttentionAudit:
    """An attention's burst, Q-loop, M*_ub and what issuing from the output's own role does."""

    burst: BurstTerms
    times: QLoopTimes
    converged_tokens: Figure  # M*_ub, equation 20
    predicted: SchedulePrediction


def audit_attention(
    workload: AttentionWorkload, platform: PlatformProfile, config: AttentionConfig, *, paced: bool = True
) -> AttentionAudit:
    """Audit one config, with all its producers aligned: the paper's conservative case.

    Its tile order plays no part: every burst has the mean of the remote bytes.

    Args:
        paced: whether stores are spread over the next Q-loop where the config's kernel does that.

    Raises:
        UsageError: the platform lacks what the audit needs.
    """
    tiles = workload.local_heads * ceil(workload.tokens / config.block_m)
    producers = min(platform.gpu.sm_count, tiles)
    times = q_loop_times(workload, platform, config)
    gap = derived(
        times.fixed_ns.value + ceil(workload.tokens / config.block_n) * times.kv_tile_ns.value,
        "the Q-loop, fixed part + sigma*ceil(M/b_n)",
        times.kv_tile_ns,
        times.fixed_ns,
    )
    burst = burst_terms(platform, config.store_flavour, producers, _output_tile(workload, config))
    if paced and config.paces_stores:
        burst = burst.paced(gap, paced_part_of_q_loop(workload.head_dim))
    converged = attention.converged_tokens(
        recovery_gap_ns=burst.recovery_gap_ns.value,
        block_n=config.block_n,
        kv_tile_ns=times.kv_tile_ns.value,
    )
    predict = _predict_handed_over if config.hands_stores_over else _predict_own
    return AttentionAudit(
        burst=burst,
        times=times,
        converged_tokens=derived(
            float(converged), "equation 20, b_n*G*/sigma", burst.recovery_gap_ns, times.kv_tile_ns
        ),
        predicted=predict(workload, burst, times, gap, ceil(tiles / producers)),
    )


def _predict_own(
    workload: AttentionWorkload, burst: BurstTerms, times: QLoopTimes, gap: Figure, bursts: int
) -> SchedulePrediction:
    """The role that computes issues the burst too."""
    issue = issue_at(burst, gap)
    added = overhead(burst, issue)
    stall_ns = attention.critical_path_overhead_ns(overhead_ns=added.value, cover_ns=times.cover_ns.value)
    stall = derived(float(stall_ns), "equation 19, dT_iss - G_QK", added, times.cover_ns)
    exposed = derived(
        burst.free_issue_ns.value + stall.value, "T0 + stall: the role computes too", stall, issue
    )
    serial_drain_ns = serial_drain(burst, workload.remote_bytes)
    residual = total(bursts, exposed)
    return SchedulePrediction(
        gap_ns=gap,
        rate_ok=burst.rate_ok(gap.value),
        injection_bytes_per_s=injection(burst, gap),
        issue_ns=issue,
        issue_overhead_ns=added,
        span_ns=issue,
        stall_ns=stall,
        residual_ns=residual,
        hiding_ratio=hiding(burst, residual, serial_drain_ns),
        completion_coupled=completion_coupled(
            burst, gap, times.cover_ns, least_exposed=exposed, bursts=bursts, serial_drain_ns=serial_drain_ns
        ),
    )


def _predict_handed_over(
    workload: AttentionWorkload, burst: BurstTerms, times: QLoopTimes, gap: Figure, bursts: int
) -> SchedulePrediction:
    """Others store what the role that computes has staged: it waits where a Q-loop is too short for that."""
    issue = issue_at(burst, gap)
    stall = derived(
        max(0.0, issue.value - gap.value, burst.drain_ns.value - gap.value),
        "what T_iss and V/R exceed the Q-loop by",
        issue,
        gap,
    )
    cover = derived(gap.value, "the whole Q-loop: the output has buffers of its own", gap)
    asked = burst.volume_bytes.value / gap.value * NS_PER_S
    serial_drain_ns = serial_drain(burst, workload.remote_bytes)
    residual = total(bursts, stall)
    return SchedulePrediction(
        gap_ns=gap,
        rate_ok=burst.rate_ok(gap.value),
        injection_bytes_per_s=derived(asked, "V / G", burst.volume_bytes, gap),
        issue_ns=issue,
        issue_overhead_ns=derived(0.0, "others store", issue),
        span_ns=times.staging_ns,
        stall_ns=stall,
        residual_ns=residual,
        hiding_ratio=hiding(burst, residual, serial_drain_ns),
        completion_coupled=completion_coupled(
            burst,
            gap,
            cover,
            least_exposed=stall,
            bursts=bursts,
            serial_drain_ns=serial_drain_ns,
            beside=True,
        ),
    )


def _output_tile(workload: AttentionWorkload, config: AttentionConfig) -> Figure:
    """B: the remote part of one output tile."""
    rows = min(config.block_m, workload.tokens)
    whole = attention.output_tile_bytes(block_m=rows, head_dim=workload.head_dim, element_bytes=OUTPUT_BYTES)
    fraction = workload.output_remote_fraction
    origin = f"{rows} x {workload.head_dim} {workload.dtype} tile, {fraction:.1%} of it remote"
    return Figure(float(whole) * fraction, Basis.DERIVED, origin)
