"""What the calibrated platform says of a case: by the closed forms, and by the event simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import numpy as np

from xstage_tune.estimates.bursts import BurstTerms
from xstage_tune.estimates.figures import Figure
from xstage_tune.estimates.schedule import (
    CompletionCoupled,
    SchedulePrediction,
    visibility_latency,
    visible_after,
)
from xstage_tune.experiments.emulation.cases import EmulationCase
from xstage_tune.experiments.emulation.request import EmulationRequest
from xstage_tune.families.binding import bind
from xstage_tune.families.launch import GivenTimes
from xstage_tune.launches.skeleton_figures import LaunchFigures
from xstage_tune.launches.skeletons import Skeleton
from xstage_tune.model import burst_gap
from xstage_tune.platforms.latencies import latencies_of
from xstage_tune.platforms.rooms import shared_room_bytes
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.simulator.fused_kernels import SimulatedKernels
from xstage_tune.simulator.skeletons import SimulatedSkeletons, handover_ns, local_stores_ns

#: Launches behind a simulated figure: start times matter little beside what schedules do.
_LAUNCHES = 3


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """The steady-state equations of a case; times in ns.

    Args:
        makespan_ns: the busiest SM's mainloops, its stalls and its last T_RS (of attention whose role that
            computes stores too, the mainloops and the residual); at least what the path takes to drain all
            remote bytes but the last Q. Coupled to completion: until the last byte is visible, in place of
            the last T_RS and of the last Q.
        issue_ns: T_RS of a tile with remote stores, local stores and epilogue included; None without any.
        stall_ns: of an SM's mainloop role over the launch, equations 15, 17 and 19.
        residual_ns: E_res of attention, what equations 17 to 19 add to the same launch without remote stores;
            None for MegaMoE and where nothing is remote.
    """

    makespan_ns: float
    issue_ns: float | None
    stall_ns: float
    residual_ns: float | None = None


@dataclass(frozen=True, slots=True)
class Landmarks:
    """Where the closed forms expect a sweep to bend.

    Args:
        lead_knee_rows: D_knee, equation 16; MegaMoE only.
        converged_tokens: M*_ub, equation 20; attention only.
    """

    lead_knee_rows: float | None = None
    converged_tokens: float | None = None


def simulated(skeleton: Skeleton, platform: PlatformProfile, seed: int) -> tuple[LaunchFigures, ...]:
    """Launches of the skeleton on the simulator, from the platform alone; ``seed`` is of their start times.

    Raises:
        UsageError: the platform lacks T0 or Q of the flavour.
    """
    simulator = SimulatedSkeletons(platform, seed=seed)
    return tuple(run.figures for run in simulator.run([skeleton] * _LAUNCHES))


def as_kernel_ns(case: EmulationCase, request: EmulationRequest) -> float | None:
    """What search has for the case's config, ns: simulated with operands, until all stores have arrived.

    A skeleton loads nothing; a kernel's operands wait behind its stores. None where the platform does not
    tell how long, in sweeps, and of launches that are no kernel's.

    Raises:
        UsageError: the config does not fit the workload or the platform.
    """
    tells = isfinite(shared_room_bytes(request.platform, case.config.store_flavour))
    own = request.given == GivenTimes() and request.dependencies and not request.completion_coupled
    if not (tells and own and case.remote) or request.sweep is not None:
        return None
    run = SimulatedKernels(request.platform).run_kernel(case.workload, case.config, _LAUNCHES)
    return run.median_ns("latency")


def closed_form(case: EmulationCase, skeleton: Skeleton, request: EmulationRequest) -> ClosedForm:
    """The equations for a case.

    Raises:
        UsageError: the platform lacks what they need.
    """
    streams = skeleton.streams
    mainloops_ns = np.bincount(
        streams.sm_of_tile(),
        streams.mainloop_ns + handover_ns(streams, latencies_of(request.platform)),
        streams.sms,
    )
    busiest_ns = float(mainloops_ns.max(initial=0.0))
    tile_bytes = skeleton.local_bytes + streams.remote_bytes
    all_local_ns = local_stores_ns(request.platform, skeleton.flavour, tile_bytes, np.zeros_like(tile_bytes))
    without_ns = busiest_ns + float((streams.staging_ns + all_local_ns).max(initial=0.0))
    remote = streams.remote_bytes > 0
    if not remote.any():
        return ClosedForm(without_ns, None, 0.0)
    fixed_ns = streams.staging_ns + local_stores_ns(
        request.platform, skeleton.flavour, skeleton.local_bytes, streams.remote_bytes
    )
    coupled = request.completion_coupled
    burst, parts = _audited(case, request)

    def mean_ns(of: Callable[[SchedulePrediction], Figure]) -> float:
        return sum(part * of(predicted).value for predicted, part in parts)

    def exposed(predicted: SchedulePrediction) -> SchedulePrediction | CompletionCoupled:
        return predicted.completion_coupled if coupled else predicted

    bursts = int(np.bincount(streams.sm_of_tile(), remote).max())
    stall_ns = (bursts - 1) * mean_ns(lambda one: exposed(one).stall_ns)  # no mainloop follows the last burst
    last_fixed_ns = float(fixed_ns[remote].mean())
    # Coupled to completion, each burst waits until the one before is visible, so all are isolated. Else T_RS
    # of a skeleton is that of who stores, where ``span_ns`` of attention is that of who computes.
    alone = request.compares_alone
    stores_ns = mean_ns(lambda one: one.issue_ns if alone else one.span_ns)
    issue_ns = last_fixed_ns + (burst.isolated_issue_ns if coupled else stores_ns)
    if coupled:
        end_ns = busiest_ns + stall_ns + last_fixed_ns + visible_after(burst).value
    elif alone and not case.config.hands_stores_over:
        end_ns = busiest_ns + mean_ns(lambda one: one.residual_ns) + last_fixed_ns
    else:
        end_ns = busiest_ns + stall_ns + issue_ns
    drain_ns = _least_drain_ns(float(streams.remote_bytes.sum()), burst, coupled=coupled)
    makespan_ns = max(end_ns, drain_ns)
    residual_ns = max(0.0, makespan_ns - without_ns) if alone else None
    return ClosedForm(makespan_ns, issue_ns, stall_ns, residual_ns)


def _least_drain_ns(remote_bytes: float, burst: BurstTerms, *, coupled: bool) -> float:
    """What R alone makes a launch take: up to Q may be outstanding, coupled to completion all is visible."""
    least_bytes = remote_bytes if coupled else max(0.0, remote_bytes - burst.capacity_bytes.value)
    drain_ns = burst_gap.drain_ns(volume_bytes=least_bytes, drain_bytes_per_s=burst.drain_bytes_per_s.value)
    return float(drain_ns) + (visibility_latency(burst.platform).value if coupled else 0.0)


def landmarks(request: EmulationRequest) -> Landmarks:
    """D_knee or M*_ub of the request's config; nothing where nothing is remote.

    Raises:
        UsageError: the platform lacks what they need.
    """
    if not request.workload.stores_remotely:
        return Landmarks()
    bound = bind(request.workload, request.platform, request.config)
    quantities = bound.estimate(request.config, request.given).quantities()
    knee, converged = (quantities.get(name) for name in ("d_knee_rows", "converged_tokens"))
    return Landmarks(
        lead_knee_rows=knee.figure.value if knee else None,
        converged_tokens=converged.figure.value if converged else None,
    )


def _audited(
    case: EmulationCase, request: EmulationRequest
) -> tuple[BurstTerms, tuple[tuple[SchedulePrediction, float], ...]]:
    """The case's bursts, and its predictions with the part of its bursts that each is of."""
    audit = bind(case.workload, request.platform, case.config).skeleton_estimate(case.config, request.given)
    return audit.burst, tuple((audit.schedules[name], part) for name, part in audit.parts_of_bursts.items())
