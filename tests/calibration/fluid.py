"""An exact fluid model of producers, a drain and an arbiter, as a burst device.

K producers inject at B/T0(B) while the shared queue has room; the queue drains at R and holds Q(K). When it
is full, R is shared by a round robin on two levels: equally among the branches with an active producer, then
among such ports of a branch, then among the active SMs of a port. The law's equations are exact here
except for the jitter that is asked for, so a fit must return the parameters that went in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.base.spans import LANE_DTYPE, SPAN_DTYPE, SpanKind, SpanTable
from xstage_tune.launches.bursts import BURSTS, COPY_RATES, BurstPoint, BurstRun, CopyProbe, CopyRate
from xstage_tune.launches.device import DeviceDescription, GpuState, LaunchInfo, Outcome, Verification

TICK_NS = 32
CLOCK_GHZ = 1.98
#: Loop overhead between the end of a burst and the start of the next, beside the asked-for gap.
LOOP_NS = 60.0
_JITTERS = 64


@dataclass(frozen=True)
class Fluid:
    """The true parameters. Ports must cover ``range(sm_count)``."""

    sm_count: int = 33
    drain_bytes_per_s: float = 52.6e9
    ports: tuple[tuple[int, ...], ...] = ()  # none: one port for all
    branch_of_port: tuple[int, ...] = ()  # none: all ports on one branch
    capacity_bytes: Callable[[int], float] = lambda k: 4.0e6 * (k / 132) ** 0.5
    free_issue_ns: Callable[[float], float] = lambda burst: 50 + 15e-3 * burst
    jitter: float = 0.01  # relative, of T0
    start_jitter_ns: float = 30.0
    rate_jitter: float = 0.0005  # relative, of R between runs
    span_capacity: int = 13_000
    copy_bytes_per_s: float = 55.1e9
    throttle_reasons: tuple[str, ...] = ()
    link: dict[str, str | int | float] = field(default_factory=dict)
    seed: int = 7
    #: Bursts after which a producer stops, whatever the window: the protocol of trap 3.
    fixed_bursts: int | None = None
    tma_issue_factor: float = 1.5
    mismatched: Callable[[BurstPoint], int] = lambda _: 0

    def port_of(self) -> NDArray[np.int64]:
        """Port of each SM, ``[sm_count]``."""
        port = np.zeros(self.sm_count, dtype=np.int64)
        for number, members in enumerate(self.ports):
            port[list(members)] = number
        return port


class FluidDevice:
    """A :class:`Fluid` behind the protocol of a device that looks like a GPU."""

    identity = "NVIDIA Fluid 1"
    kinds = (BURSTS.name, COPY_RATES.name)

    def __init__(self, truth: Fluid) -> None:
        self.truth = truth
        # The hardware's placement: the first K of a fixed order, which fills ports unevenly.
        self._order = np.random.default_rng(truth.seed).permutation(truth.sm_count)

    def describe(self) -> DeviceDescription:
        return DeviceDescription(
            kind="cuda",
            name="NVIDIA Fluid 1",
            uuid="GPU-fluid",
            architecture="sm_90a",
            sm_count=self.truth.sm_count,
            l2_bytes=60 << 20,
            memory_bytes=1 << 37,
            max_sm_clock_mhz=1980,
            driver="580",
            cuda="13.0",
            nvrtc="13.0",
            paths=("host", "local"),
            link=self.truth.link,
        )

    def label_launches(self, run_id: str) -> None:
        pass

    def copy_rate(self, path: StorePath) -> CopyRate:
        rate = self.truth.copy_bytes_per_s
        return CopyRate(path, 1 << 28, (rate, rate * 0.999, rate * 1.001))

    def run(self, launches: Iterable[BurstPoint | CopyProbe]) -> Iterator[Outcome[Any, Any]]:
        for launch in launches:
            if isinstance(launch, CopyProbe):
                yield Outcome(launch, self.copy_rate(launch.path), _info(self.truth))
            else:
                yield self.burst(launch)

    def close(self) -> None:
        pass

    def burst(self, point: BurstPoint) -> BurstRun:
        truth = self.truth
        rng = np.random.default_rng([truth.seed, *_key(point)])
        if point.idle_sms:
            sm_ids = np.setdiff1d(np.arange(truth.sm_count), point.idle_sms)
        else:
            sm_ids = self._order[: point.producers]
        begin, end, issued = self._simulate(point, sm_ids, rng)
        table = _table(begin, end, issued, sm_ids, truth.span_capacity, rng)
        verification = Verification(1 << 20, truth.mismatched(point))
        return Outcome(point, None, _info(truth, point.producers), verification, table)

    def _simulate(
        self, point: BurstPoint, sm_ids: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        truth = self.truth
        k = point.producers
        local = point.path == "local"
        rate = 4e12 if local else truth.drain_bytes_per_s * (1 + truth.rate_jitter * rng.standard_normal())
        capacity = 1e12 if local else truth.capacity_bytes(k)
        free_ns = truth.free_issue_ns(point.burst_bytes) * (_factor(point.flavour, truth))
        slowdown = 1 + truth.jitter * rng.standard_normal((k, _JITTERS))
        delay = truth.start_jitter_ns * rng.random((k, _JITTERS))
        limit = truth.fixed_bursts or (point.bursts if point.mode == "isolated" else 1 << 20)
        room = limit if limit < 1 << 20 else _most_bursts(point, free_ns)
        return _run(
            point.mode == "isolated",
            float(point.gap_ns) + (0.0 if point.mode == "isolated" else LOOP_NS),
            float(point.window_ns) if truth.fixed_bursts is None else 1e18,
            float(point.burst_bytes),
            rate * 1e-9,
            capacity,
            free_ns * np.maximum(slowdown, 0.5),
            delay,
            truth.port_of()[sm_ids],
            np.array(truth.branch_of_port or [0] * max(len(truth.ports), 1)),
            limit,
            room,
        )


class Watched:
    """A device of which everything is kept, and the progress of what runs on it."""

    def __init__(self, device: FluidDevice) -> None:
        self._device = device
        self.identity, self.kinds = device.identity, device.kinds
        self.totals: list[int] = []
        self.runs: list[BurstRun] = []
        self.copy_rates: list[CopyRate] = []

    def planned(self, total: int) -> None:
        self.totals.append(total)

    def advance(self, label: str) -> None:
        pass

    def describe(self) -> DeviceDescription:
        return self._device.describe()

    def label_launches(self, run_id: str) -> None:
        pass

    def run(self, launches: Iterable[BurstPoint | CopyProbe]) -> Iterator[Outcome[Any, Any]]:
        for outcome in self._device.run(launches):
            if isinstance(outcome.launch, CopyProbe):
                self.copy_rates.append(outcome.figures)
            else:
                self.runs.append(outcome)
            yield outcome

    def close(self) -> None:
        pass


def with_dropped(run: BurstRun, capacity: int) -> BurstRun:
    """The run as a recorder with room for ``capacity`` spans a lane would have kept it."""
    lanes = run.table.lanes.copy()
    rank = np.concatenate([np.arange(n) for n in lanes["recorded"]])
    lanes["dropped"] += np.maximum(lanes["recorded"].astype(np.int64) - capacity, 0).astype(np.uint32)
    lanes["recorded"] = np.minimum(lanes["recorded"], capacity)
    return replace(run, table=SpanTable(run.table.spans[rank < capacity], lanes))


def _info(truth: Fluid, producers: int = 0) -> LaunchInfo:
    state = GpuState(1980, 2600, 300.0, 40, truth.throttle_reasons)
    return LaunchInfo(
        kernel="fluid",
        kernel_sha256="0" * 64,
        registers=32,
        spill_bytes=0,
        shared_bytes=0,
        timer_tick_ns=TICK_NS,
        elapsed_ns=1,
        started_at="2026-01-01T00:00:00+00:00",
        before=state,
        after=state,
        producers=producers,
    )


def _key(point: BurstPoint) -> list[int]:
    path = {"peer": 0, "host": 1, "local": 2}[point.path]
    return [
        path,
        int(point.mode == "isolated"),
        int(point.flavour == "tma"),
        point.producers,
        point.burst_bytes,
        point.gap_ns,
        point.window_ns,
        point.bursts,
        point.repeat,
        *point.idle_sms,
    ]


def _factor(flavour: StoreFlavour, truth: Fluid) -> float:
    return truth.tma_issue_factor if flavour == "tma" else 1.0


def _most_bursts(point: BurstPoint, free_ns: float) -> int:
    return int(point.window_ns / (0.5 * free_ns + point.gap_ns + LOOP_NS)) + 2


def _table(
    begin_ns: NDArray[np.float64],
    end_ns: NDArray[np.float64],
    issued: NDArray[np.int64],
    sm_ids: NDArray[np.int64],
    capacity: int,
    rng: np.random.Generator,
) -> SpanTable:
    k = len(issued)
    kept = np.minimum(issued, capacity)
    lead_ns = 20_000.0
    lanes = np.zeros(k, LANE_DTYPE)
    lanes["timer_begin_ns"] = (10**12 + rng.integers(0, 50, k)) // TICK_NS * TICK_NS
    lanes["tick_begin"] = rng.integers(0, 1 << 40, k)
    length_ns = np.ceil((end_ns.max() + 2 * lead_ns) / TICK_NS) * TICK_NS
    lanes["timer_end_ns"] = lanes["timer_begin_ns"] + np.uint64(length_ns)
    lanes["tick_end"] = lanes["tick_begin"] + np.uint64(round(length_ns * CLOCK_GHZ))
    lanes["recorded"] = kept
    lanes["dropped"] = issued - kept
    lanes["issued"] = issued
    lanes["lane"] = np.arange(k)
    lanes["sm_id"] = sm_ids
    mask = np.arange(begin_ns.shape[1]) < kept[:, None]
    lane, index = np.nonzero(mask)
    spans = np.zeros(len(lane), SPAN_DTYPE)
    offset = lead_ns - (lanes["timer_begin_ns"].astype(np.float64) - 1e12)
    begin_ticks = np.round((begin_ns + offset[:, None])[mask] * CLOCK_GHZ)
    end_ticks = np.round((end_ns + offset[:, None])[mask] * CLOCK_GHZ)
    spans["begin_ticks"] = begin_ticks
    spans["duration_ticks"] = end_ticks - begin_ticks
    spans["index"] = index
    spans["lane"] = lane
    spans["kind"] = SpanKind.ISSUE
    return SpanTable(spans, lanes)


@njit(cache=True)
def _share(active, caps, port, branch_of, rate, full, rates):  # pragma: no cover - compiled
    """Rates of the producers, ``rates[k]``; True when the queue stays full."""
    total = 0.0
    for k in range(len(caps)):
        rates[k] = caps[k] if active[k] else 0.0
        total += rates[k]
    if not full or total <= rate:
        return False
    ports = len(branch_of)
    branches = branch_of.max() + 1
    members = np.zeros(ports)
    cap = np.zeros(branches)
    for k in range(len(caps)):
        if active[k]:
            members[port[k]] += 1
            cap[branch_of[port[k]]] += caps[k]
    populated = np.zeros(branches)
    for p in range(ports):
        if members[p] > 0:
            populated[branch_of[p]] += 1
    # Water-filling: a branch whose SMs cannot take its share leaves the rest to the others.
    share = np.zeros(branches)
    left = rate
    settled = cap <= 0
    while not settled.all():
        even = left / (~settled).sum()
        changed = False
        for b in range(branches):
            if not settled[b] and cap[b] <= even:
                share[b] = cap[b]
                left -= cap[b]
                settled[b] = True
                changed = True
        if not changed:
            for b in range(branches):
                if not settled[b]:
                    share[b] = even
            break
    for k in range(len(caps)):
        if active[k]:
            b = branch_of[port[k]]
            rates[k] = min(caps[k], share[b] / populated[b] / members[port[k]])
    return True


@njit(cache=True)
def _run(isolated, gap, window, burst_bytes, rate, capacity, free, delay, port, branch_of, limit, room):
    """Begin and end of every burst, ``[K, room]``, and bursts issued, ``[K]``."""  # pragma: no cover
    producers = len(port)
    begin = np.zeros((producers, room))
    end = np.zeros((producers, room))
    issued = np.zeros(producers, dtype=np.int64)
    active = np.zeros(producers, dtype=np.bool_)
    finished = np.zeros(producers, dtype=np.bool_)
    left = np.zeros(producers)
    start = delay[:, 0].copy()
    caps = np.zeros(producers)
    rates = np.zeros(producers)
    queued = 0.0
    now = 0.0
    variants = free.shape[1]
    while not finished.all():
        full = queued >= capacity * (1 - 1e-12)
        held = _share(active, caps, port, branch_of, rate, full, rates)
        inflow = rates.sum()
        outflow = rate if queued > 0 else min(rate, inflow)
        growth = 0.0 if held else inflow - outflow
        step = 1e18
        for k in range(producers):
            if active[k]:
                step = min(step, left[k] / rates[k])
            elif not finished[k]:
                step = min(step, start[k] - now)
        if growth > 0 and not full:
            step = min(step, (capacity - queued) / growth)
        elif growth < 0 and queued > 0:
            step = min(step, queued / -growth)
        step = max(step, 0.0)
        now += step
        queued = min(max(queued + growth * step, 0.0), capacity)
        if capacity - queued < 1e-6 and growth > 0:
            queued = capacity
        if queued < 1e-6 and growth <= 0:
            queued = 0.0
        for k in range(producers):
            if active[k]:
                left[k] -= rates[k] * step
                if left[k] <= 1e-6:
                    active[k] = False
                    end[k, issued[k]] = now
                    issued[k] += 1
                    jitter = delay[k, issued[k] % variants]
                    if isolated:
                        start[k] = issued[k] * gap + jitter
                    else:
                        start[k] = now + gap + jitter
                    finished[k] = issued[k] >= limit
            elif not finished[k] and start[k] - now <= 1e-9:
                if now >= window and not isolated:
                    finished[k] = True
                else:
                    active[k] = True
                    left[k] = burst_bytes
                    caps[k] = burst_bytes / free[k, issued[k] % variants]
                    begin[k, issued[k]] = now
    return begin, end, issued
