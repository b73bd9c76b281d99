"""Simulate persistent CTAs, each a mainloop role and an issue role joined by staging slots."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError
from xstage_tune.launches.streams import NO_COUNTER, Floats, Streams
from xstage_tune.simulator import pipeline_state as state
from xstage_tune.simulator.drain import DrainModel
from xstage_tune.simulator.fluid import ACCEPTED, NOBODY, PEAK, TRACED, new_fluid
from xstage_tune.simulator.jit import run_compiled
from xstage_tune.simulator.pipeline_kernel import run_events
from xstage_tune.simulator.timers import new_timers


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """How the roles of a CTA, and the CTAs, are joined.

    Args:
        staging_slots: S, tiles that may be between their slot offset and their last accepted store.
        raise_ns: from a stored tile's last byte leaving its SM to the counter's being raised. Until then the
            role that raises it holds the next tile that does, and the slots of those in between.
        signal_ns: from a counter's last signal to its being seen by another SM.
        completion_coupled: the issue role waits until its own bytes have drained.
        completion_latency_ns: what visibility takes beyond draining (T_lat of equation 17).
        load_cover_ns: how long a mainloop goes on without new operands, from those it has loaded ahead. Loads
            leave an SM behind the stores in its own room, so a longer backlog there stops it. Infinity for a
            mainloop that loads nothing, as a skeleton's; of no effect where a path has no own rooms.
        start_jitter_ns: CTAs start at times drawn uniformly from [0, start_jitter_ns).
        mainloop_jitter_ns: each mainloop is longer by a draw from [0, mainloop_jitter_ns).
        seed: of the draws.
        trace_occupancy: keep the queue's occupancy over time.

    Raises:
        UsageError: a figure is out of range.
    """

    staging_slots: int = 2
    raise_ns: float = 0.0
    signal_ns: float = 0.0
    completion_coupled: bool = False
    completion_latency_ns: float = 0.0
    load_cover_ns: float = math.inf
    start_jitter_ns: float = 0.0
    mainloop_jitter_ns: float = 0.0
    seed: int = 0
    trace_occupancy: bool = False

    def __post_init__(self) -> None:
        if self.staging_slots < 1:
            raise UsageError(f"staging slots must be 1 or more, got {self.staging_slots}")
        times = (
            self.raise_ns,
            self.signal_ns,
            self.completion_latency_ns,
            self.start_jitter_ns,
            self.mainloop_jitter_ns,
        )
        if not all(np.isfinite(time) and time >= 0 for time in times):
            raise UsageError("pipeline: latencies and jitters must be finite and not negative")
        if not self.load_cover_ns >= 0:
            raise UsageError(f"pipeline: load_cover_ns must not be negative, got {self.load_cover_ns}")


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """The outcome of one simulated launch. Times are ns after the launch, ``[n]`` by tile.

    Args:
        streams: what was run, with the jittered mainloops.
        times: what happened to each tile; see ``pipeline_state.Times``.
        makespan_ns: when the last store was accepted; coupled to completion, when the last slot was free.
        drained_ns: when the last remote byte had drained.
        peak_occupancy_bytes: largest occupancy of the queue.
        accepted_bytes: integral of the accepted rate.
        occupancy: ``[m, 2]`` breakpoints (ns, bytes), linear in between; empty unless asked for.
        events: number of events processed.
    """

    streams: Streams
    times: state.Times
    makespan_ns: float
    drained_ns: float
    peak_occupancy_bytes: float
    accepted_bytes: float
    occupancy: Floats = field(repr=False)
    events: int

    @property
    def issue_ns(self) -> Floats:
        """T_RS of each tile: staging, stores and backpressure (equation 15)."""
        return self.times.accepted - self.times.issue

    @property
    def stall_ns(self) -> Floats:
        """Each mainloop's wait for a staging slot (dt of equation 15)."""
        return self.times.stall

    @property
    def end_ns(self) -> float:
        """When the launch is over: all is accepted, and what left the GPU has drained."""
        return max(self.makespan_ns, self.drained_ns)

    @property
    def starved_ns(self) -> Floats:
        """Each mainloop's wait for operands behind its SM's stores; part of the time from begin to end."""
        return self.times.starved

    @property
    def dependency_wait_ns(self) -> Floats:
        """Each mainloop's wait for its row counter."""
        return self.times.begin - self.times.ready


def simulate(
    streams: Streams, drain: DrainModel, config: PipelineConfig, local_bytes: Floats | float = 0.0
) -> PipelineRun:
    """Run the streams to their end.

    Args:
        local_bytes: what each tile stores to the GPU's own memory before its remote bytes, ``[n]`` or one for
            all: in the SM's own room they wait behind remote bytes of the tiles before.

    Raises:
        UsageError: ``drain`` is for another number of SMs, or the order deadlocks on its counters.
    """
    if drain.producers != streams.sms:
        raise UsageError(
            f"the drain model is for {drain.producers} producers, the streams for {streams.sms} SMs"
        )
    rng = np.random.default_rng(config.seed)
    start_ns = rng.random(streams.sms) * config.start_jitter_ns
    if config.mainloop_jitter_ns > 0:
        longer = streams.mainloop_ns + rng.random(streams.tiles) * config.mainloop_jitter_ns
        streams = replace(streams, mainloop_ns=longer)
    if drain.own_room_bytes == 0.0:
        local_bytes = 0.0  # only in front of the shared room do they wait
    local_bytes = np.array(np.broadcast_to(local_bytes, streams.tiles), np.float64)
    bursts, burst_of_part = _bursts(streams, local_bytes)
    stored_bytes = _stored_bytes(streams, local_bytes + streams.remote_bytes)
    parts = int(np.count_nonzero(burst_of_part >= 0)) if config.trace_occupancy else 0
    fluid = new_fluid(drain, bursts.burst_bytes, bursts.paced_ns, bursts.remote, traced_bursts=parts)
    tiles = state.Tiles(
        first=_column(streams.first, np.int64),
        mainloop_ns=_column(streams.mainloop_ns, np.float64),
        slot_offset_ns=_column(streams.slot_offset_ns, np.float64),
        staging_ns=_column(streams.staging_ns, np.float64),
        burst=burst_of_part,
        admitted_at=np.maximum(0.0, stored_bytes - drain.own_room_bytes),
        waits_on=_column(streams.waits_on, np.int32),
        signals=_column(streams.signals, np.int32),
        signals_at_end=_column(streams.signals_at_end, np.bool_),
    )
    times = state.Times(*(np.full(streams.tiles, np.nan) for _ in state.Times._fields))
    times.stall[:] = times.starved[:] = 0.0
    roles = _roles(streams, config.staging_slots)
    due_ns = np.full(3 * streams.sms, np.inf)
    due_ns[: streams.sms] = np.where(np.diff(streams.first) > 0, start_ns, np.inf)
    rules = state.Rules(
        float(config.raise_ns),
        float(config.signal_ns),
        bool(config.completion_coupled),
        float(config.completion_latency_ns),
        float(config.load_cover_ns) if drain.delays_loads else math.inf,
    )
    launch = state.Pipeline(tiles, times, roles, new_timers(due_ns), fluid, rules)
    events = run_compiled(run_events, launch)
    _require_finished(streams, times)
    return PipelineRun(
        streams=streams,
        times=times,
        makespan_ns=float((times.freed if config.completion_coupled else times.accepted).max(initial=0.0)),
        drained_ns=float(times.drained.max(initial=0.0)),
        peak_occupancy_bytes=float(fluid.level[PEAK]),
        accepted_bytes=float(fluid.level[ACCEPTED]),
        occupancy=fluid.trace[: fluid.mark[TRACED]].copy(),
        events=int(events),
    )


def _column(values: NDArray[Any], dtype: type[Any]) -> NDArray[Any]:
    """A contiguous, writable column: one type, so that the event loop is compiled once."""
    return np.require(values, dtype, ["C", "W"])


@dataclass(frozen=True, slots=True)
class _Bursts:
    """The distinct kinds of bursts of a launch, ``[kinds]``; see :func:`new_fluid`."""

    burst_bytes: Floats
    paced_ns: Floats
    remote: NDArray[np.bool_]


def _bursts(streams: Streams, local_bytes: Floats) -> tuple[_Bursts, NDArray[np.int64]]:
    """The distinct kinds, and each part's index among them, ``[2n]`` (see ``pipeline_state.Tiles``)."""
    local, of_local = _distinct(local_bytes, np.zeros(streams.tiles))
    remote, of_remote = _distinct(streams.remote_bytes, streams.paced_ns)
    of_remote[of_remote >= 0] += local.size
    pairs = np.concatenate((local, remote))
    bursts = _Bursts(pairs.real.copy(), pairs.imag.copy(), np.arange(pairs.size) >= local.size)
    return bursts, np.column_stack((of_local, of_remote)).ravel()


def _distinct(burst_bytes: Floats, paced_ns: Floats) -> tuple[NDArray[np.complex128], NDArray[np.int64]]:
    """Distinct pairs of bytes and pace, as complex numbers, which numpy sorts; index of each, or NO_BURST."""
    index = np.full(burst_bytes.size, state.NO_BURST, np.int64)
    stores = burst_bytes > 0
    distinct, index[stores] = np.unique(burst_bytes[stores] + 1j * paced_ns[stores], return_inverse=True)
    return distinct, index


def _stored_bytes(streams: Streams, tile_bytes: Floats) -> Floats:
    """What an SM has stored with each tile, ``[n]``."""
    stored = np.concatenate(([0.0], np.cumsum(tile_bytes)))
    before: Floats = stored[streams.first[:-1]][streams.sm_of_tile()]
    return stored[1:] - before


def _roles(streams: Streams, staging_slots: int) -> state.Roles:
    """All roles at the start of a launch: nothing done, every slot free."""
    sms = streams.sms
    signalled = streams.signals[streams.signals != NO_COUNTER]
    return state.Roles(
        mainloop=np.full(sms, state.TO_BEGIN, np.int8),
        issue=np.full(sms, state.IDLE, np.int8),
        current=streams.first[:-1].copy(),
        storing=streams.first[:-1].copy(),
        raising=np.full(sms, state.NO_TILE, np.int64),
        free_slots=np.full(sms, staging_slots, np.int64),
        stalled_at=np.zeros(sms),
        running_at=np.zeros(sms),
        backlog_at=np.zeros(sms),
        starved_at=np.full(sms, np.nan),
        offered=2 * streams.first[:-1],
        passing=2 * streams.first[:-1],
        missing=np.bincount(signalled, minlength=streams.counters),
        visible_at=np.zeros(streams.counters),
        waiting=np.full(streams.counters, NOBODY, np.int64),
        next_waiting=np.full(sms, NOBODY, np.int64),
    )


def _require_finished(streams: Streams, times: state.Times) -> None:
    unfinished = np.flatnonzero(np.isnan(times.freed))
    if unfinished.size == 0:
        return
    waiting = np.flatnonzero(~np.isnan(times.ready) & np.isnan(times.begin))
    tile = int(waiting[0])
    raise UsageError(
        f"the tile order deadlocks: {unfinished.size} of {streams.tiles} tiles cannot run; SM "
        f"{streams.sm_of_tile()[tile]} waits at tile {tile} for counter {streams.waits_on[tile]}",
        "a tile comes before one that it depends on: raise the lead or the ring's rows",
    )
