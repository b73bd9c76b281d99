"""What the calibrated platform says of a layer's schedules: by the closed forms, and by the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from xstage_tune.experiments.schedules.request import LayerRequest
from xstage_tune.families.binding import bind
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.tile_times import local_store_bytes_per_ns
from xstage_tune.launches.streams import Floats
from xstage_tune.simulator.fused_kernels import Launch, SimulatedKernels, waits_ns
from xstage_tune.simulator.pipeline import PipelineRun
from xstage_tune.simulator.traces import tensor_activity

#: Simulated launches behind a figure: they differ in when the CTAs start.
_LAUNCHES = 3


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """The steady-state equations of a schedule; times in ns. Nothing is fitted to the run beside them.

    Args:
        latency_ns: of the launch, as a search ranks it.
        l1_ns, l2_ns: T_L1 and T_L2.
        gap_ns: G between Linear-2 bursts, equation 12.
        rate_ok: whether the rate bound holds, equation 14.
        issue_ns: T_RS of a tile whose stores leave at once.
        stall_ns: dt of a tile, equations 11, 13 and 15.
    """

    latency_ns: float
    l1_ns: float
    l2_ns: float
    gap_ns: float
    rate_ok: bool
    issue_ns: float
    stall_ns: float


@dataclass(frozen=True, slots=True)
class Simulated:
    """The event simulator's launch of the same tiles; times in ns.

    Args:
        latency_ns: until all stores have arrived.
        waits_ns: of the mainloop role, mean over the SMs.
        active: part of the launch in which an SM's mainloop runs.
        issue_ns: T_RS of Linear-2 tiles with remote bytes whose stores leave at once, median.
        stall_ns: the wait for the slot that those held, median.
    """

    latency_ns: float
    waits_ns: float
    active: float
    issue_ns: float | None
    stall_ns: float | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """Both predictions of a schedule."""

    closed: ClosedForm
    simulated: Simulated


def predict(request: LayerRequest, value: float | None) -> Mapping[str, Prediction] | None:
    """Predictions of each schedule at one value of the sweep; None where the platform does not speak of them.

    Raises:
        UsageError: the platform lacks what they need, or the config does not fit it.
    """
    if not request.predicted:
        return None
    case = request.case_at(value)
    return {
        name: Prediction(
            _closed_form(request, case.workload, config), _simulated(request, case.workload, config)
        )
        for name, config in case.schedules
    }


def _closed_form(request: LayerRequest, workload: MoeWorkload, config: MegaMoeConfig) -> ClosedForm:
    bound = bind(workload, request.platform, config)
    estimate = bound.estimate(config)
    of_schedule, quantities = estimate.schedules[estimate.audited], estimate.quantities()
    return ClosedForm(
        latency_ns=bound.judge()(config).prediction.latency_ns,
        l1_ns=quantities["l1_mainloop_ns"].figure.value,
        l2_ns=quantities["l2_mainloop_ns"].figure.value,
        gap_ns=of_schedule.gap_ns.value,
        rate_ok=of_schedule.rate_ok,
        issue_ns=of_schedule.span_ns.value,
        stall_ns=of_schedule.stall_ns.value,
    )


def _simulated(request: LayerRequest, workload: MoeWorkload, config: MegaMoeConfig) -> Simulated:
    launch = SimulatedKernels(request.platform).launch(workload, config)
    unpaced = replace(launch.streams, paced_ns=np.zeros(launch.streams.tiles))
    seeds = range(request.seed, request.seed + _LAUNCHES)
    paced = [launch.run(seed) for seed in seeds]
    at_once = [replace(launch, streams=unpaced).run(seed) for seed in seeds]

    # Of the model's storing role the epilogue is a part, of the kernel's it is not.
    local_ns = launch.local_bytes / local_store_bytes_per_ns(request.platform)
    epilogue_ns = (launch.streams.staging_ns - local_ns)[_of_linear2(launch)]

    def of_tiles(of: Callable[[PipelineRun, Launch], Floats]) -> float | None:
        samples = [of(run, launch) for run in at_once]
        return median(float(np.median(one)) for one in samples) if samples[0].size else None

    return Simulated(
        latency_ns=median(run.end_ns for run in paced),
        waits_ns=median(waits_ns(run) for run in paced),
        active=median(float(tensor_activity(run, 1).value[0]) for run in paced),
        issue_ns=of_tiles(lambda run, launch: run.issue_ns[_of_linear2(launch)] - epilogue_ns),
        stall_ns=of_tiles(_stall_ns),
    )


def _stall_ns(run: PipelineRun, launch: Launch) -> Floats:
    """Waits for the slots that Linear-2 tiles held, S tiles later on their SMs."""
    streams, slots = launch.streams, launch.staging_slots
    tiles = np.flatnonzero(_of_linear2(launch))
    last = streams.first[1:][streams.sm_of_tile()[tiles]]
    later = tiles[tiles + slots < last] + slots
    stalled: Floats = run.stall_ns[later]
    return stalled


def _of_linear2(launch: Launch) -> NDArray[np.bool_]:
    remote: NDArray[np.bool_] = launch.streams.remote_bytes > 0
    return remote if launch.linear2 is None else remote & launch.linear2
