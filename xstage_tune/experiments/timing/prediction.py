"""What the calibrated platform says of a case: by the closed forms, and by the event simulator."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import numpy as np

from xstage_tune.experiments.timing.request import ProfileRequest
from xstage_tune.families.attention_a2a.estimate import estimate_attention
from xstage_tune.families.attention_a2a.tile_times import attention_tile_times
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.simulator.fused_kernels import SimulatedKernels
from xstage_tune.simulator.pipeline import PipelineRun

#: Simulated launches behind a figure: they differ in when the CTAs start.
_LAUNCHES = 3


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """The steady-state equations of a case; times in ns. Nothing is fitted to the run beside them.

    Args:
        issue_ns: T_RS of the consumers: the platform's staging time, and equations 3 and 7 unless others
            store.
        q_loop_ns: G_Qloop, the fixed part, sigma for each KV tile, and what CTAs that share a tile take to
            merge their outputs.
        issue_overhead_ns: dt(M), equation 18.
        residual_ns: E_res, equations 18 and 19 and T0, over all bursts of the busiest SM, and equation 1 for
            the last round.
        last_drain_ns: V/R of the last round of tiles, which no Q-loop follows: in every E_res.
        completion_coupled_ns: E_res of an issuer that waits for visibility, equation 17.
        converged_tokens: M*_ub, equation 20.
        recovery_gap_ns: G*, equation 5.
        exchange_ns: of CTAs that share a tile, a part of ``q_loop_ns``.
        hiding_ratio: equation 21 of that residual, against a serial transfer at R.
    """

    issue_ns: float
    q_loop_ns: float
    issue_overhead_ns: float
    residual_ns: float
    last_drain_ns: float
    completion_coupled_ns: float
    converged_tokens: float
    recovery_gap_ns: float
    exchange_ns: float
    hiding_ratio: float


@dataclass(frozen=True, slots=True)
class Simulated:
    """The event simulator's launch of the same tiles; times in ns.

    Args:
        issue_ns: T_RS of the tiles with remote bytes, median; where others store, what a consumer spends on
            staging: the platform's, not simulated.
        residual_ns: E_res, against the launch without remote stores, both until all stores have arrived.
    """

    issue_ns: float
    residual_ns: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """Both predictions of a case."""

    closed: ClosedForm
    simulated: Simulated


def predict(request: ProfileRequest, value: float | None) -> Prediction | None:
    """Predictions at one value of the sweep; None where the platform does not speak of the stores, or of so
    few tokens none belongs to a remote rank.

    Raises:
        UsageError: the platform lacks what they need, or the config does not fit it.
    """
    workload = request.workload_at(value)
    if not request.predicted or not workload.stores_remotely:
        return None
    return Prediction(_closed_form(request, workload), _simulated(request, workload))


def _closed_form(request: ProfileRequest, workload: AttentionWorkload) -> ClosedForm:
    config, platform = request.config, request.platform
    audit = estimate_attention(workload, platform, config)
    predicted = audit.predicted
    arrival = audit.arrival
    staging_ns = audit.times.staging_ns.value
    return ClosedForm(
        issue_ns=staging_ns if config.hands_stores_over else staging_ns + predicted.span_ns.value,
        q_loop_ns=predicted.gap_ns.value,
        issue_overhead_ns=predicted.issue_overhead_ns.value,
        residual_ns=arrival.residual_ns.value,
        last_drain_ns=arrival.last_drain_ns.value,
        completion_coupled_ns=arrival.completion_coupled_residual_ns.value,
        converged_tokens=audit.converged_tokens.value,
        recovery_gap_ns=audit.burst.recovery_gap_ns.value,
        exchange_ns=audit.times.exchange_ns.value,
        hiding_ratio=arrival.hiding_ratio.value,
    )


def _simulated(request: ProfileRequest, workload: AttentionWorkload) -> Simulated:
    fused = _launches(request, workload)
    alone = _launches(request, workload.model_copy(update={"remote_fraction": 0.0}))
    return Simulated(
        issue_ns=_staging_ns(request, workload)
        if request.config.hands_stores_over
        else median(_issue_ns(run) for run in fused),
        residual_ns=median(run.end_ns for run in fused) - median(run.end_ns for run in alone),
    )


def _launches(request: ProfileRequest, workload: AttentionWorkload) -> tuple[PipelineRun, ...]:
    launch = SimulatedKernels(request.platform).launch(workload, request.config)
    return tuple(launch.run(request.seed + repeat) for repeat in range(_LAUNCHES))


def _staging_ns(request: ProfileRequest, workload: AttentionWorkload) -> float:
    """What a consumer spends on a full tile where others store it."""
    return attention_tile_times(request.config, workload, request.platform).epilogue_ns


def _issue_ns(run: PipelineRun) -> float:
    """T_RS, the median of the tiles with remote bytes."""
    return float(np.median(run.issue_ns[run.streams.remote_bytes > 0]))
