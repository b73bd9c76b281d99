"""The launches that a request compares: each schedule, at each value of the sweep."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast, get_args

from xstage_tune.base.errors import UsageError
from xstage_tune.experiments.emulation.request import EmulationRequest, ScheduleName
from xstage_tune.families.binding import fused_launch
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.fused_skeleton import fused_skeleton
from xstage_tune.families.launch import FusedLaunch
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule, ScheduleKind
from xstage_tune.families.megamoe.defaults import fitting_stages, schedule_of_kind
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload import Workload
from xstage_tune.families.workload_files import workload_from_keys
from xstage_tune.launches.skeletons import Skeleton
from xstage_tune.platforms.schema import PlatformProfile

#: An attention's launch with nothing remote: T_FA of the residual.
WITHOUT_STORES = "no remote stores"


@dataclass(frozen=True, slots=True)
class EmulationCase:
    """One skeleton to run.

    Args:
        label: unique in a request.
        name: of the schedule, its parameters left out, the same at every value of a sweep.
        value: of the swept quantity; None without a sweep.
        remote: False for an attention's launch that keeps all stores local.
    """

    label: str
    name: str
    workload: Workload
    config: KernelConfig
    value: float | None = None
    remote: bool = True


def cases_of(request: EmulationRequest) -> tuple[EmulationCase, ...]:
    """The cases in the order in which results list them: by value, then by schedule.

    Raises:
        UsageError: a value of the sweep does not fit the workload or the platform.
    """
    values = request.sweep.values if request.sweep else (None,)
    return tuple(case for value in values for case in _cases_at(request, value))


def skeleton_of(case: EmulationCase, request: EmulationRequest) -> Skeleton:
    """A case made ready for a device; raises as ``fused_skeleton``."""
    return fused_skeleton(
        case.label,
        case.workload,
        case.config,
        request.platform,
        path=request.path,
        given=request.given,
        dependencies=request.dependencies,
        completion_coupled=request.completion_coupled,
        remote=case.remote,
    )


def launch_of(case: EmulationCase, request: EmulationRequest) -> FusedLaunch:
    """The tiles of a case; raises as ``fused_launch``."""
    return fused_launch(
        case.workload,
        case.config,
        request.platform,
        given=request.given,
        dependencies=request.dependencies,
    )


def _cases_at(request: EmulationRequest, value: float | None) -> Iterator[EmulationCase]:
    """All schedules at one value of the sweep."""
    workload = _workload_at(request, value)
    suffix = _suffix(request, value)
    config = request.config
    if request.compares_alone:
        for order in request.schedules:
            ordered = config.model_copy(update={"tile_order": order})
            yield EmulationCase(f"{order}{suffix}", order, workload, ordered, value)
        alone = f"{WITHOUT_STORES}{suffix}"
        yield EmulationCase(alone, WITHOUT_STORES, workload, config, value, remote=False)
        return
    workload = cast(MoeWorkload, workload)
    tiles = _tiles_at(request, cast(MegaMoeConfig, config), workload, value)
    for kind in request.schedules:
        schedule = _schedule(request, tiles, workload, kind, value)
        for placement in request.placements:
            placed = schedule.model_copy(update={"placement": placement})
            name = kind + (", by share" if placement == "share" else "")
            variant = tiles.model_copy(update={"schedule": placed})
            yield EmulationCase(f"{placed.label}{suffix}", name, workload, variant, value)


def _suffix(request: EmulationRequest, value: float | None) -> str:
    """What a label says of the swept value; nothing of a lead, which the schedule's own label has."""
    if request.sweep is None or value is None or request.sweep.key == "lead":
        return ""
    return f", {request.sweep.key}={request.sweep.shown(value)}"


def _workload_at(request: EmulationRequest, value: float | None) -> Workload:
    sweep, workload = request.sweep, request.workload
    if sweep is None or value is None or sweep.key not in ("tokens", "remote_fraction"):
        return workload
    key: str = sweep.key
    at = value if key == "remote_fraction" else int(value)
    if key == "tokens":
        key = workload.TOKENS_KEY
    origin = f"--sweep {sweep.key}={sweep.shown(value)}"
    changed = {**workload.model_dump(exclude_none=True), key: at}
    return workload_from_keys(changed, origin)


def _tiles_at(
    request: EmulationRequest, config: MegaMoeConfig, workload: MoeWorkload, value: float | None
) -> MegaMoeConfig:
    """The config with a swept staging depth."""
    if request.sweep is None or request.sweep.key != "staging_depth" or value is None:
        return config
    return with_staging_depth(config, int(value), workload, request.platform)


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


def _schedule(
    request: EmulationRequest,
    tiles: MegaMoeConfig,
    workload: MoeWorkload,
    kind: ScheduleName,
    value: float | None,
) -> Schedule:
    """The config's own parameters for its own schedule, the usual ones for the others; or the swept lead."""
    if request.sweep and request.sweep.key == "lead" and value is not None:
        return Schedule(kind="interleaved", lead_rows=int(value))
    if tiles.schedule.kind == kind:
        return tiles.schedule
    moe_kind = next(one for one in get_args(ScheduleKind) if one == kind)
    return schedule_of_kind(moe_kind, tiles, workload, request.platform)
