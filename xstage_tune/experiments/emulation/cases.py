"""The launches that a request compares: each schedule, at each value of the sweep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xstage_tune.experiments.emulation.request import EmulationRequest
from xstage_tune.experiments.emulation.sweep import Sweep
from xstage_tune.families.binding import family_of, fused_launch
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.fused_skeleton import fused_skeleton
from xstage_tune.families.launch import FusedLaunch
from xstage_tune.families.workload import Workload
from xstage_tune.families.workload_files import workload_from_keys
from xstage_tune.launches.skeletons import Skeleton

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
    workload, config = workload_at(request.workload, request.sweep, value), request.config
    suffix = _suffix(request, value)
    family = family_of(workload)
    bound = family.bind(workload, request.platform)
    if request.sweep is not None and value is not None and request.sweep.key in family.knobs:
        config = bound.with_knob(config, request.sweep.key, int(value))
    for order in request.schedules:
        for placement in request.placements:
            one = bound.ordered(config, order, placement)
            yield EmulationCase(f"{one.label}{suffix}", one.name, workload, one.config, value)
    if request.compares_alone:
        alone = f"{WITHOUT_STORES}{suffix}"
        yield EmulationCase(alone, WITHOUT_STORES, workload, config, value, remote=False)


def _suffix(request: EmulationRequest, value: float | None) -> str:
    """What a label says of the swept value; nothing of a lead, which the schedule's own label has."""
    if request.sweep is None or value is None or request.sweep.key == "lead":
        return ""
    return f", {request.sweep.key}={request.sweep.shown(value)}"


def workload_at(workload: Workload, sweep: Sweep | None, value: float | None) -> Workload:
    """A workload at one value of a sweep; the same where that is of a config's knob.

    Raises:
        UsageError: the value does not fit it.
    """
    if sweep is None or value is None or sweep.key not in ("tokens", "remote_fraction"):
        return workload
    at = value if sweep.key == "remote_fraction" else int(value)
    key = workload.TOKENS_KEY if sweep.key == "tokens" else sweep.key
    origin = f"--sweep {sweep.key}={sweep.shown(value)}"
    changed = {**workload.model_dump(exclude_none=True), key: at}
    return workload_from_keys(changed, origin)
