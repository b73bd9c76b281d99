"""MegaMoE configs that need no search, pure functions of the shapes: the default, today's heuristics."""

from __future__ import annotations

from bisect import bisect_left
from math import ceil

from xstage_tune.base.errors import UsageError
from xstage_tune.families.architecture import Architecture, architecture_of, compute_of
from xstage_tune.families.megamoe.budget import OPERAND_SWIZZLE_BYTES, megamoe_budgets, stage_bytes
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule, ScheduleKind
from xstage_tune.families.megamoe.routing import busiest_tokens
from xstage_tune.families.megamoe.static_schedules import wave_experts
from xstage_tune.families.megamoe.tiling import linear_tiles, padded_columns
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.model.moe import lead_knee_rows
from xstage_tune.platforms.queries import preferred_flavour
from xstage_tune.platforms.schema import PlatformProfile

#: Rows of tokens that DeepGEMM's MegaMoE chooses from.
_BLOCK_M = (16, 32, 64, 96, 128, 192)
#: Widths of N-tiles, the usual one first.
_BLOCK_N = (128, 64, 256)
_STAGING_DEPTH = 2
_EPILOGUE_WARPS = 8
_MOST_STAGES = 8


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
    """:func:`lead_rows_of` a layer."""
    return lead_rows_of(
        block_n=config.block_n, hidden=workload.hidden, intermediate=workload.intermediate, sms=sms
    )


def lead_rows_of(*, block_n: int, hidden: int, intermediate: int, sms: int) -> int:
    """The lead D to run Algorithm 1 with: two D_knee (equation 16) and a margin.

    D_knee rows are one round of Linear-1 on all SMs. A second one covers its stores. The margin is for SMs
    that run a Linear-2 tile first: in rounds, the ratio of both mainloops, which is that of their depths.
    """
    knee = lead_knee_rows(block_n=block_n, producers=sms, intermediate=intermediate)
    return ceil((2 + intermediate / hidden) * float(knee))


def fitting_stages(config: MegaMoeConfig, workload: MoeWorkload, platform: PlatformProfile) -> int:
    """Most pipeline stages, up to 8, that fit beside the rest of ``config``; 0 when none does."""
    architecture, limit = architecture_of(platform), compute_of(platform).shared_bytes_per_cta
    shared = megamoe_budgets(config, workload, architecture, compute_of(platform))[0]
    one = stage_bytes(config, workload, architecture)
    # Each stage also has two barriers, of 8 bytes.
    rest = shared.used - config.pipeline_stages * (one + 16)
    return max(0, min(_MOST_STAGES, (limit - rest) // (one + 16)))


def with_staging_depth(
    config: MegaMoeConfig, staging_depth: int, workload: MoeWorkload, platform: PlatformProfile
) -> MegaMoeConfig:
    """A config with S slots, and with fewer pipeline stages where they need the room.

    Raises:
        UsageError: not even one stage fits beside them; says how many slots would.
    """

    def stages_beside(depth: int) -> int:
        return fitting_stages(config.model_copy(update={"staging_depth": depth}), workload, platform)

    # Fewer stages fit beside more slots: the depths that leave a stage come before all that leave none.
    fits = bisect_left(range(1, staging_depth + 1), True, key=lambda depth: stages_beside(depth) < 1)
    if fits == staging_depth:
        stages = min(stages_beside(fits), config.pipeline_stages)
        return config.model_copy(update={"staging_depth": fits, "pipeline_stages": stages})
    if fits:
        raise UsageError(
            f"{staging_depth} staging slots do not fit the shared memory of a CTA: {fits} do, of a "
            f"{config.block_m}x{config.block_n} tile beside one pipeline stage",
            f"--staging-depth {fits}, or a config with a smaller tile",
        )
    raise UsageError(f"no staging slot of a {config.block_m}x{config.block_n} tile fits the shared memory")


def base_candidates(workload: MoeWorkload, platform: PlatformProfile) -> list[MegaMoeConfig]:
    """DeepGEMM's static choices under the alternating schedule, which has no parameter, best first.

    The fewest tokens a row that hold the mean tokens of an expert, 128 columns, a 128-byte depth, two staged
    tiles, as many stages as fit. Where 128 columns do not divide the layer, 64 or 256 that do; where none
    does, 128 with partial tiles.
    """
    architecture = architecture_of(platform)
    tokens = busiest_tokens(workload).mean()
    block_m = next((m for m in _BLOCK_M if m >= tokens), _BLOCK_M[-1])
    smaller = [m for m in reversed(_BLOCK_M) if m <= block_m]
    candidates = [_megamoe(m, n, workload, platform, architecture) for n in _BLOCK_N for m in smaller]
    # Partial tiles only where no width divides the layer; the depth of a stage has no alternative.
    return sorted(candidates, key=lambda one: padded_columns(one.block_n, workload, architecture) != "")


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
        tokens_per_expert=busiest_tokens(workload).mean(),
        block_m=config.block_m,
        linear1_tiles=linear_tiles(config, workload, architecture_of(platform))[0].count,
        sms=platform.gpu.sm_count,
    )
