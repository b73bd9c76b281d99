"""Skeletons on the event simulator: what the calibrated platform says that a GPU would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.launches.device import Outcome
from xstage_tune.launches.skeleton_figures import LANE_TOTALS_DTYPE, figures_of
from xstage_tune.launches.skeletons import SKELETONS, TOTALS, Skeleton, SkeletonRun
from xstage_tune.launches.streams import Floats, Streams
from xstage_tune.platforms.latencies import Latencies, latencies_of
from xstage_tune.platforms.queries import issue_ns
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.simulator.drain import drain_model
from xstage_tune.simulator.measuring import SIMULATOR, measure, other_path
from xstage_tune.simulator.pipeline import PipelineConfig, PipelineRun, simulate
from xstage_tune.simulator.traces import pipeline_spans

#: CTAs start on one deadline of a common timer, as near to it as its tick lets them (an H200's).
_START_JITTER_NS = 32.0
#: Tiles of an SM that register stores let be between their slot and their last accepted store.
_SLOTS_BEHIND_REGISTER_STORES = 2


class SimulatedSkeletons:
    """Runs skeletons.

    The n-th launch of one label starts its CTAs by seed ``seed + n``: the same calls, the same times, and
    repeat n of any two skeletons by the same draw.
    """

    identity = SIMULATOR
    kinds = (SKELETONS,)

    def __init__(self, platform: PlatformProfile, *, seed: int = 0) -> None:
        self._platform = platform
        self._seed = seed
        self._launched: Counter[str] = Counter()

    def run(self, launches: Iterable[Skeleton]) -> Iterator[SkeletonRun]:
        """Simulate the skeletons in order.

        Raises:
            UsageError: the platform was calibrated for another path or GPU, lacks T0 or Q of the flavour, or
                the tile order deadlocks.
        """
        for skeleton in launches:
            seed = self._seed + self._launched[skeleton.label]
            self._launched[skeleton.label] += 1
            simulated = partial(simulate_skeleton, skeleton, self._platform, seed=seed)
            run, info = measure(simulated, producers=skeleton.streams.sms)
            table, totals = pipeline_spans(run), _totals(run, skeleton.completion_coupled)
            figures = figures_of(skeleton.streams, table, totals, run.makespan_ns)
            yield Outcome(skeleton, figures, info, table=table, arrays={TOTALS: totals})

    def close(self) -> None:
        """Nothing is held."""


def simulate_skeleton(
    skeleton: Skeleton, platform: PlatformProfile, *, seed: int = 0, trace_occupancy: bool = False
) -> PipelineRun:
    """One launch of a skeleton, from the platform's R, Q, T0 and ports alone.

    Raises:
        UsageError: as :meth:`SimulatedSkeletons.run`.
    """
    if skeleton.path != platform.path:
        raise other_path(platform, skeleton.path)
    streams, latencies = skeleton.streams, latencies_of(platform)
    streams = replace(streams, mainloop_ns=streams.mainloop_ns + handover_ns(streams, latencies))
    local_ns = local_stores_ns(platform, skeleton.flavour, skeleton.local_bytes, streams.remote_bytes)
    config = PipelineConfig(
        staging_slots=usable_slots(skeleton.flavour, skeleton.staging_slots),
        raise_ns=latencies.counter.ns,
        signal_ns=latencies.signal.ns,
        completion_coupled=skeleton.completion_coupled,
        completion_latency_ns=latencies.visibility.ns if skeleton.completion_coupled else 0.0,
        start_jitter_ns=_START_JITTER_NS,
        seed=seed,
        trace_occupancy=trace_occupancy,
    )
    drain = drain_model(platform, flavour=skeleton.flavour)
    streams = replace(streams, staging_ns=streams.staging_ns + local_ns)
    return simulate(streams, drain, config, skeleton.local_bytes)


def handover_ns(streams: Streams, latencies: Latencies) -> Floats:
    """What each tile takes the mainloop role beyond its mainloop, ``[n]``; it counts as part of that here."""
    return np.where(streams.slot_offset_ns > 0, latencies.handover_in_mainloop.ns, latencies.handover.ns)


def usable_slots(flavour: StoreFlavour, staging_slots: int) -> int:
    """How many of S slots a CTA gets to use.

    Register stores that wait fill the SM's load/store unit, and any other access of shared memory waits
    behind them: the mainloop role comes no further than its next barrier, however many slots are free. On an
    H200 three slots take as long as two. Bulk copies leave the unit alone.
    """
    return min(staging_slots, _SLOTS_BEHIND_REGISTER_STORES) if flavour == "st.v4" else staging_slots


def _totals(run: PipelineRun, completion_coupled: bool) -> NDArray[np.void]:
    """``[SMs]`` of LANE_TOTALS_DTYPE."""
    streams, times = run.streams, run.times
    sm, remote = streams.sm_of_tile(), streams.remote_bytes > 0
    totals = np.zeros(streams.sms, LANE_TOTALS_DTYPE)

    def of_sm(values: Floats | NDArray[np.bool_]) -> Floats:
        return np.bincount(sm, values, streams.sms).astype(np.float64)

    totals["tiles"] = np.diff(streams.first)
    totals["remote_tiles"] = of_sm(remote)
    totals["mainloop_ns"] = of_sm(streams.mainloop_ns)
    totals["staging_stall_ns"] = of_sm(run.stall_ns)
    totals["dependency_wait_ns"] = of_sm(run.dependency_wait_ns)
    totals["issue_ns"] = of_sm(run.issue_ns)
    totals["remote_issue_ns"] = of_sm(run.issue_ns * remote)
    if completion_coupled:
        totals["completion_ns"] = of_sm((times.freed - times.accepted) * remote)
    totals["signal_ns"] = of_sm(np.nan_to_num(times.raised - times.accepted))
    np.maximum.at(totals["finish_ns"], sm, times.accepted)
    return totals


def local_stores_ns(
    platform: PlatformProfile, flavour: StoreFlavour, local_bytes: Floats, remote_bytes: Floats
) -> Floats:
    """Time of each tile's local stores, ``[n]``: what T0 of the whole tile exceeds T0 of its remote part by.

    A GPU's own memory takes an SM's stores as fast as a remote path without backpressure: a calibration's
    local control shows it.
    """
    time_ns: Floats = _free_issue_ns(platform, flavour, local_bytes + remote_bytes)
    return np.maximum(0.0, time_ns - _free_issue_ns(platform, flavour, remote_bytes))


def _free_issue_ns(platform: PlatformProfile, flavour: StoreFlavour, burst_bytes: Floats) -> Floats:
    """T0, 0 for no bytes."""
    sizes, index = np.unique(burst_bytes, return_inverse=True)
    stores = sizes > 0
    time_ns = np.zeros(sizes.size)
    time_ns[stores] = issue_ns(platform, flavour, platform.gpu.sm_count, sizes[stores])
    return time_ns[index]
