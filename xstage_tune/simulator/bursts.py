"""Bursts on the event simulator: calibration runs on it unchanged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import DeviceError
from xstage_tune.base.fabric import StorePath
from xstage_tune.base.spans import SpanKind, SpanTable
from xstage_tune.launches.bursts import BURSTS, COPY_RATES, BurstPoint, BurstRun, CopyProbe, CopyRate
from xstage_tune.launches.device import Outcome
from xstage_tune.launches.sm_ids import spread_sm_ids
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.simulator import burst_kernel as kernel
from xstage_tune.simulator.drain import DrainModel, drain_model
from xstage_tune.simulator.fluid import new_fluid
from xstage_tune.simulator.jit import run_compiled
from xstage_tune.simulator.measuring import SIMULATOR, measure
from xstage_tune.simulator.timers import new_timers
from xstage_tune.simulator.traces import lane_rows, span_rows

Floats = NDArray[np.float64]

_FIRST_RECORDS_PER_PRODUCER = 64


@dataclass(frozen=True, slots=True)
class BurstTimes:
    """Bursts ordered by producer, then by begin, ``[n]``, in ns after the common start."""

    producer: NDArray[np.int64]
    begin_ns: Floats
    end_ns: Floats


@dataclass(frozen=True, slots=True)
class BurstJitter:
    """Uniform draws added to the producers' starts and to every spin."""

    start_ns: float = 0.0
    spin_ns: float = 0.0
    seed: int = 0


NO_JITTER = BurstJitter()


def simulate_bursts(point: BurstPoint, drain: DrainModel, jitter: BurstJitter = NO_JITTER) -> BurstTimes:
    """Run one microbenchmark. As on a GPU, a burst that began before the deadline runs to its end."""
    rng = np.random.default_rng((jitter.seed, point.repeat))
    start_ns = rng.random(point.producers) * jitter.start_ns
    isolated = point.mode == "isolated"
    plan = kernel.BurstPlan(
        gap_ns=float(point.gap_ns),
        deadline_ns=np.inf if isolated else float(point.window_ns),
        most_bursts=point.bursts if isolated else np.iinfo(np.int64).max,
        isolated=isolated,
        spin_jitter_ns=float(jitter.spin_ns),
        seed=int(rng.integers(2**62)),
    )
    begins = (start_ns < plan.deadline_ns) & (plan.most_bursts > 0)
    timers = new_timers(np.where(begins, start_ns, np.inf))
    producers = kernel.Producers(
        start_ns=start_ns,
        begin_ns=np.zeros(point.producers),
        bursts=np.zeros(point.producers, np.int64),
        state=np.full(point.producers, kernel.SPINNING, np.int8),
    )
    fluid = new_fluid(drain, np.array([float(point.burst_bytes)]))
    records = _records(_FIRST_RECORDS_PER_PRODUCER * point.producers)
    while run_compiled(kernel.run_bursts, plan, producers, timers, fluid, records) == kernel.RECORDS_FULL:
        records = _doubled(records)
    kept = slice(0, int(records.written[0]))
    order = np.lexsort((records.begin_ns[kept], records.producer[kept]))
    return BurstTimes(
        producer=records.producer[kept][order].astype(np.int64),
        begin_ns=records.begin_ns[kept][order],
        end_ns=records.end_ns[kept][order],
    )


def _records(capacity: int) -> kernel.BurstRecords:
    return kernel.BurstRecords(
        producer=np.empty(capacity, np.int32),
        begin_ns=np.empty(capacity),
        end_ns=np.empty(capacity),
        written=np.zeros(1, np.int64),
    )


def _doubled(records: kernel.BurstRecords) -> kernel.BurstRecords:
    larger = _records(2 * records.producer.size)
    for name in kernel.BurstRecords._fields:
        column: NDArray[np.generic] = getattr(records, name)
        getattr(larger, name)[: column.size] = column
    return larger


class SimulatedBursts:
    """Runs bursts, and tells the copy engine's rate.

    Args:
        platform: whose (T0, R, Q) and arbitration to simulate; its path and ``local`` can be run.
        jitter: seeded disturbance of starts and spins; none by default.
    """

    identity = SIMULATOR
    kinds = (BURSTS, COPY_RATES)

    def __init__(self, platform: PlatformProfile, jitter: BurstJitter = NO_JITTER) -> None:
        self._platform = platform
        self._jitter = jitter

    def run(self, launches: Iterable[BurstPoint | CopyProbe]) -> Iterator[Outcome[Any, Any]]:
        """Simulate the points in order.

        Raises:
            DeviceError: a point asks for another path, for more producers than there are SMs, or for a
                number of producers that its idle SMs do not leave.
            UsageError: the profile lacks the T0 or Q of a point's flavour.
        """
        for launch in launches:
            self._require_path(launch.path)
            yield self._copied(launch) if isinstance(launch, CopyProbe) else self._run(launch)

    def close(self) -> None:
        """Nothing is held."""

    def _copied(self, probe: CopyProbe) -> Outcome[CopyProbe, CopyRate]:
        """The copy engine's rate of the profile, else R, which it cannot be below."""
        drain = self._platform.drain
        rate = drain.copy_engine_bytes_per_s or drain.bytes_per_s
        figures = CopyRate(probe.path, copy_bytes=0, samples_bytes_per_s=(rate,))
        figures, info = measure(lambda: figures, producers=0, kernel="the platform's copy engine")
        return Outcome(probe, figures, info)

    def _run(self, point: BurstPoint) -> BurstRun:
        sms = self._platform.gpu.sm_count
        if not 1 <= point.producers <= sms:
            raise DeviceError(f"{point.producers} producers asked for, {self._platform.name} has {sms} SMs")
        sm_ids = _active_sms(point, sms)

        def run() -> BurstTimes:
            drain = drain_model(
                self._platform, producers=point.producers, flavour=point.flavour, sm_ids=sm_ids.tolist()
            )
            if point.path == "local":
                drain = replace(drain, drain_bytes_per_s=np.inf, capacity_bytes=np.inf)
            return simulate_bursts(point, drain, self._jitter)

        times, info = measure(
            run,
            producers=point.producers,
            kernel="simulated bursts",
            sha256=hashlib.sha256(repr((self._platform, self._jitter)).encode()).hexdigest(),
        )
        # There is no memory to check, so nothing is claimed to have been checked.
        return Outcome(point, None, info, table=_table(times, sm_ids))

    def _require_path(self, path: StorePath) -> None:
        own = self._platform.path
        if path not in (own, "local"):
            raise DeviceError(
                f"platform '{self._platform.name}' was calibrated for path '{own}', not '{path}'",
                f"use --path {own} or local, or a platform of that path",
            )


def _active_sms(point: BurstPoint, sm_count: int) -> NDArray[np.int64]:
    """``[K]`` SM of each producer: those that are not to stay idle, else spread evenly."""
    if not point.idle_sms:
        return spread_sm_ids(point.producers, sm_count)
    active = np.setdiff1d(np.arange(sm_count), point.idle_sms)
    if active.size != point.producers:
        raise DeviceError(f"{point.producers} producers asked for, {active.size} SMs are not to stay idle")
    return active


def _table(times: BurstTimes, sm_ids: NDArray[np.int64]) -> SpanTable:
    recorded = np.bincount(times.producer, minlength=sm_ids.size)
    first = np.concatenate(([0], np.cumsum(recorded)))[:-1]
    index = np.arange(times.producer.size) - first[times.producer]
    spans = span_rows(times.producer, index, times.begin_ns, times.end_ns, kind=SpanKind.ISSUE, role=0)
    return SpanTable(spans, lane_rows(float(times.end_ns.max(initial=0.0)), recorded, sm_ids))
