"""Configs that need no search, pure functions of the shapes: the historical default, today's heuristics."""

from __future__ import annotations

from math import ceil

from xstage_tune.configs.architecture import Architecture, architecture_of, compute_of
from xstage_tune.configs.attention_budget import HEAD_DIM_LIMIT
from xstage_tune.configs.megamoe_budget import OPERAND_SWIZZLE_BYTES, ROW_LIMIT, stage_bytes
from xstage_tune.configs.resources import check_config
from xstage_tune.configs.schema import AttentionConfig, KernelConfig, MegaMoeConfig, Schedule, ScheduleKind
from xstage_tune.configs.static_schedules import wave_experts
from xstage_tune.configs.tiling import linear_tiles, padded_columns
from xstage_tune.devices.base import StoreFlavour
from xstage_tune.errors import UsageError
from xstage_tune.model.moe import lead_knee_rows
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.workloads.routing import busiest_rank, local_tokens_per_expert
from xstage_tune.workloads.schema import MoeWorkload, Workload

#: Rows of tokens that DeepGEMM's MegaMoE chooses from.
_BLOCK_M = (16, 32, 64, 96, 128, 192)
#: Widths of N-tiles, the usual one first.
_BLOCK_N = (128, 64, 256)
#: Rows and KV rows of an attention tile, the usual ones first.
_ATTENTION_TILES = ((128, 128), (128, 64), (64, 64), (64, 32))
_STAGING_DEPTH = 2
_EPILOGUE_WARPS = 8
_MOST_STAGES = 8


def default_config(workload: Workload, platform: PlatformProfile) -> KernelConfig:
    """The baseline that a tuned config has to beat.

    MoE: the expert-wave schedule that the paper compares with, with DeepGEMM's static choices: the fewest
    tokens a row that hold the mean tokens of an expert, 128 columns, a 128-byte depth, two staged tiles, as
    many stages as fit, and the fewest experts a wave whose Linear-1 tiles fill all SMs twice, rounded up to
    a divisor of the local experts. Where 128 columns do not divide the layer, 64 or 256 that do; where none
    does, 128 with partial tiles. Attention: 128x128 tiles with two KV stages, the output in V's buffer, heads
    in turn, as FlashAttention does; smaller ones where those do not fit.

    Raises:
        UsageError: no such config fits the shapes or the platform; says which limit binds.
    """
    if isinstance(workload, MoeWorkload):
        base = _megamoe_base(workload, platform)
        return base.model_copy(update={"schedule": schedule_of_kind("wave", base, workload, platform)})
    return _first_feasible([_attention(m, n, platform) for m, n in _ATTENTION_TILES], workload, platform)


def heuristic_configs(workload: Workload, platform: PlatformProfile) -> dict[str, KernelConfig]:
    """What today's libraries would run, by name.

    MoE: the default's tiles under DeepGEMM's ``alternating`` schedule, and under the ``clamped-lag`` of its
    open Hopper change. Attention: FlashAttention-3's 128x176 tile where it fits.

    Raises:
        UsageError: as :func:`default_config`.
    """
    if isinstance(workload, MoeWorkload):
        base = _megamoe_base(workload, platform)
        return {
            "alternating": base,
            "clamped-lag": base.model_copy(update={"schedule": Schedule(kind="clamped-lag")}),
        }
    wide = _attention(128, 176, platform)
    return {"fa3-tile": wide} if check_config(wide, workload, platform).feasible else {}


def interleaved_config(workload: MoeWorkload, platform: PlatformProfile) -> MegaMoeConfig:
    """The default's tiles under Algorithm 1, with the lead of :func:`usual_lead_rows`.

    Raises:
        UsageError: as :func:`default_config`.
    """
    base = _megamoe_base(workload, platform)
    return base.model_copy(update={"schedule": schedule_of_kind("interleaved", base, workload, platform)})


def schedule_of_kind(
    kind: ScheduleKind, config: MegaMoeConfig, workload: MoeWorkload, platform: PlatformProfile
) -> Schedule:
    """A schedule with its usual parameters for the tiles of ``config``: the default's wave, the lead of
    :func:`usual_lead_rows`."""
    if kind == "wave":
        return Schedule(kind=kind, experts_per_wave=_experts_per_wave(config, workload, platform))
    if kind == "interleaved":
        return Schedule(kind=kind, lead_rows=usual_lead_rows(config, workload, platform.gpu.sm_count))
    return Schedule(kind=kind)


def usual_lead_rows(config: MegaMoeConfig, workload: MoeWorkload, sms: int) -> int:
    """The lead D to run Algorithm 1 with: two D_knee (equation 16) and a margin.

    D_knee rows are one round of Linear-1 on all SMs. A second one covers its stores. The margin is for SMs
    that run a Linear-2 tile first: in rounds, the ratio of both mainloops, which is that of their depths.
    """
    knee = lead_knee_rows(block_n=config.block_n, producers=sms, intermediate=workload.intermediate)
    return ceil((2 + workload.intermediate / workload.hidden) * float(knee))


def fitting_stages(config: MegaMoeConfig, workload: MoeWorkload, platform: PlatformProfile) -> int:
    """Most pipeline stages, up to 8, that fit beside the rest of ``config``; 0 when none does."""
    architecture, limit = architecture_of(platform), compute_of(platform).shared_bytes_per_cta
    shared = check_config(config, workload, platform).budgets[0]
    one = stage_bytes(config, workload, architecture)
    # Each stage also has two barriers, of 8 bytes.
    rest = shared.used - config.pipeline_stages * (one + 16)
    return max(0, min(_MOST_STAGES, (limit - rest) // (one + 16)))


def preferred_flavour(platform: PlatformProfile) -> StoreFlavour:
    """The store flavour that the platform has times for; register stores where it has both."""
    flavours = {point.flavour for point in platform.issue}
    return "st.v4" if "st.v4" in flavours else "tma"


def _megamoe_base(workload: MoeWorkload, platform: PlatformProfile) -> MegaMoeConfig:
    """The static choices under the alternating schedule, which has no parameter."""
    architecture = architecture_of(platform)
    tokens = local_tokens_per_expert(workload, busiest_rank(workload)).mean()
    block_m = next((m for m in _BLOCK_M if m >= tokens), _BLOCK_M[-1])
    smaller = [m for m in reversed(_BLOCK_M) if m <= block_m]
    candidates = [_megamoe(m, n, workload, platform, architecture) for n in _BLOCK_N for m in smaller]
    # Partial tiles only where no width divides the layer; the depth of a stage has no alternative.
    candidates.sort(key=lambda config: padded_columns(config.block_n, workload, architecture) != "")
    chosen = _first_feasible(candidates, workload, platform)
    assert isinstance(chosen, MegaMoeConfig)
    return chosen


def _megamoe(
    block_m: int, block_n: int, workload: MoeWorkload, platform: PlatformProfile, architecture: Architecture
) -> MegaMoeConfig:
    step = architecture.mma_n_step
    one_stage = MegaMoeConfig(
        block_m=step * ceil(block_m / step),
        block_n=block_n,
        block_k=int(OPERAND_SWIZZLE_BYTES / workload.activation_bytes),
        pipeline_stages=1,
        staging_depth=_STAGING_DEPTH,
        schedule=Schedule(kind="alternating"),
        store_flavour=preferred_flavour(platform),
        epilogue_warps=_EPILOGUE_WARPS,
    )
    return one_stage.model_copy(
        update={"pipeline_stages": max(1, fitting_stages(one_stage, workload, platform))}
    )


def _experts_per_wave(config: MegaMoeConfig, workload: MoeWorkload, platform: PlatformProfile) -> int:
    return wave_experts(
        local_experts=workload.local_experts,
        tokens_per_expert=local_tokens_per_expert(workload, busiest_rank(workload)).mean(),
        block_m=config.block_m,
        linear1_tiles=linear_tiles(config, workload, architecture_of(platform))[0].count,
        sms=platform.gpu.sm_count,
    )


def _attention(block_m: int, block_n: int, platform: PlatformProfile) -> AttentionConfig:
    return AttentionConfig(
        block_m=block_m,
        block_n=block_n,
        kv_stages=2,
        output_staging="alias-v",
        tile_order="sequential",
        store_flavour=preferred_flavour(platform),
    )


def _first_feasible(
    candidates: list[AttentionConfig] | list[MegaMoeConfig], workload: Workload, platform: PlatformProfile
) -> KernelConfig:
    for config in candidates:
        if check_config(config, workload, platform).feasible:
            return config
    problem = check_config(candidates[0], workload, platform).violations[0]
    if problem.limit_name in (HEAD_DIM_LIMIT, ROW_LIMIT):
        other = "pad the matrices, with --set" if problem.limit is None else f"--set head_dim={problem.limit}"
        raise UsageError(
            f"no config of '{workload.name}' can run on '{platform.name}': {problem.message}",
            f"{other}, or take another platform",
        )
    raise UsageError(
        f"workload '{workload.name}' has no default config on '{platform.name}': {problem.message}",
        "xstage-tune search needs none; its answer is --config study:latest",
    )
