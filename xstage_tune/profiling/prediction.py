"""What the calibrated platform says of a case: by the closed forms, and by the event simulator."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from statistics import median

from xstage_tune.audit.attention import audit_attention
from xstage_tune.devices.fused_skeleton import fused_skeleton
from xstage_tune.devices.skeleton_figures import LaunchFigures, median_of
from xstage_tune.emulation.prediction import simulated
from xstage_tune.profiling.request import ProfileRequest
from xstage_tune.workloads.schema import AttentionWorkload


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """The steady-state equations of a case; times in ns. Nothing is refitted to the application.

    Args:
        issue_ns: T_RS, equations 3 and 7.
        q_loop_ns: G_Qloop, the fixed part and sigma for each KV tile.
        issue_overhead_ns: dt(M), equation 18.
        residual_ns: E_res, equations 18 and 19 and T0, over all bursts of the busiest SM.
        completion_coupled_ns: E_res of an issuer that waits for visibility, equation 17.
        converged_tokens: M*_ub, equation 20.
        recovery_gap_ns: G*, equation 5.
        hiding_ratio: equation 21, against a serial transfer at R.
    """

    issue_ns: float
    q_loop_ns: float
    issue_overhead_ns: float
    residual_ns: float
    completion_coupled_ns: float
    converged_tokens: float
    recovery_gap_ns: float
    hiding_ratio: float | None


@dataclass(frozen=True, slots=True)
class Simulated:
    """The event simulator's launch of the same tiles; times in ns.

    Args:
        issue_ns: T_RS of the tiles with remote bytes, median.
        residual_ns: E_res, against the launch without remote stores.
    """

    issue_ns: float | None
    residual_ns: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """Both predictions of a case."""

    closed: ClosedForm
    simulated: Simulated


def predict(request: ProfileRequest, value: int | None) -> Prediction | None:
    """Predictions at one value of the sweep; None where the platform does not speak of the stores.

    Raises:
        UsageError: the platform lacks what they need, or the config does not fit it.
    """
    if not request.predicted:
        return None
    workload = request.workload_at(value)
    return Prediction(_closed_form(request, workload), _simulated(request, workload))


def _closed_form(request: ProfileRequest, workload: AttentionWorkload) -> ClosedForm:
    audit = audit_attention(workload, request.platform, request.config)
    predicted = audit.predicted
    return ClosedForm(
        issue_ns=predicted.span_ns.value,
        q_loop_ns=predicted.gap_ns.value,
        issue_overhead_ns=predicted.issue_overhead_ns.value,
        residual_ns=predicted.residual_ns.value,
        completion_coupled_ns=predicted.completion_coupled.residual_ns.value,
        converged_tokens=audit.converged_tokens.value,
        recovery_gap_ns=audit.burst.recovery_gap_ns.value,
        hiding_ratio=predicted.hiding_ratio.value if predicted.hiding_ratio else None,
    )


def _simulated(request: ProfileRequest, workload: AttentionWorkload) -> Simulated:
    fused, alone = (_launches(request, workload, remote=remote) for remote in (True, False))
    return Simulated(
        issue_ns=median_of(fused, attrgetter("issue_p50_ns")),
        residual_ns=_makespan_ns(fused) - _makespan_ns(alone),
    )


def _launches(
    request: ProfileRequest, workload: AttentionWorkload, *, remote: bool
) -> tuple[LaunchFigures, ...]:
    skeleton = fused_skeleton(
        "fused" if remote else "attention",
        workload,
        request.config,
        request.platform,
        path=request.path,
        remote=remote,
    )
    return simulated(skeleton, request.platform, request.seed)


def _makespan_ns(launches: tuple[LaunchFigures, ...]) -> float:
    return median(launch.makespan_ns for launch in launches)
