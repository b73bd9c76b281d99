"""The event loop of the calibration microbenchmarks: producers that only burst and spin."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xstage_tune.simulator.fluid import (
    CHANGE,
    NOBODY,
    QUEUE_FULL,
    Fluid,
    advance,
    begin_burst,
    offer_burst,
    pop_arrived,
    take_change,
    wait_for,
)
from xstage_tune.simulator.fluid_rates import set_rates
from xstage_tune.simulator.jit import event_kernel, event_loop
from xstage_tune.simulator.state_pointer import pointer_to
from xstage_tune.simulator.timers import Timers, set_timer

# What a producer does.
SPINNING = 0  # its timer: begin of the next burst
ISSUING = 1  # its timer, where producers have rooms of their own: T0 is over
ADMITTING = 2  # T0 is over, and the burst's last byte has no room yet

#: Why :func:`run_bursts` returned.
FINISHED = 0
RECORDS_FULL = 1


class BurstPlan(NamedTuple):
    """What the producers do."""

    gap_ns: float  # spin after a burst; in ``isolated`` mode start to start
    deadline_ns: float  # no burst begins from here on
    most_bursts: int  # of one producer
    isolated: bool
    spin_jitter_ns: float  # each spin is longer by a draw from [0, this)
    seed: int


class BurstRecords(NamedTuple):
    """The bursts in the order in which they ended, ``[capacity]``; ``written[0]`` of them written."""

    producer: NDArray[np.int32]
    begin_ns: NDArray[np.float64]
    end_ns: NDArray[np.float64]
    written: NDArray[np.int64]  # [1]


class Producers(NamedTuple):
    """``[K]``."""

    start_ns: NDArray[np.float64]  # of the first burst
    begin_ns: NDArray[np.float64]  # of the current burst
    bursts: NDArray[np.int64]  # bursts begun
    state: NDArray[np.int8]


@event_loop
def run_bursts(
    plan: BurstPlan, producers: Producers, timers: Timers, fluid: Fluid, records: BurstRecords
) -> int:
    """Run until every producer is at its limit, or the records are full (grow them, call again)."""
    plan, producers, timers = pointer_to(plan), pointer_to(producers), pointer_to(timers)
    fluid, records = pointer_to(fluid), pointer_to(records)
    while True:
        timer = timers.winner[1]
        now = timers.when_ns[timer]
        if fluid.level[CHANGE] <= now:
            if fluid.level[CHANGE] == np.inf:
                return FINISHED
            if records.written[0] + producers.bursts.shape[0] > records.producer.shape[0]:
                return RECORDS_FULL
            now = fluid.level[CHANGE]
            flow = take_change(fluid)
            if flow != QUEUE_FULL:
                producer = pop_arrived(fluid, flow)
                while producer != NOBODY:
                    state = producers.state[producer]
                    if state == ADMITTING or (state == ISSUING and fluid.own_rooms == 0.0):
                        _end_burst(producer, now, plan, producers, timers, records)
                    producer = pop_arrived(fluid, flow)
            set_rates(fluid)
            continue
        if records.written[0] + producers.bursts.shape[0] > records.producer.shape[0]:
            return RECORDS_FULL
        advance(fluid, now)
        while timers.when_ns[timer] == now:
            set_timer(timers, timer, np.inf)
            if producers.state[timer] == SPINNING:
                _begin_burst(timer, now, producers, timers, fluid)
            elif wait_for(fluid, timer, fluid.offered[timer] - fluid.own_rooms / producers.bursts.shape[0]):
                producers.state[timer] = ADMITTING
            else:
                _end_burst(timer, now, plan, producers, timers, records)
            timer = timers.winner[1]
        set_rates(fluid)


@event_kernel
def _begin_burst(producer: int, now: float, producers: Producers, timers: Timers, fluid: Fluid) -> None:
    offer_burst(fluid, 0)
    begin_burst(fluid, producer, 0)
    producers.begin_ns[producer] = now
    producers.bursts[producer] += 1
    producers.state[producer] = ISSUING
    # Without an own room a burst passes on as it is issued: its arrival ends it, never before T0.
    if fluid.own_rooms > 0.0:
        set_timer(timers, producer, now + fluid.burst[0] / fluid.rate[0])


@event_kernel
def _end_burst(
    producer: int, now: float, plan: BurstPlan, producers: Producers, timers: Timers, records: BurstRecords
) -> None:
    row = records.written[0]
    records.producer[row] = producer
    records.begin_ns[row] = producers.begin_ns[producer]
    records.end_ns[row] = now
    records.written[0] = row + 1
    producers.state[producer] = SPINNING
    bursts = producers.bursts[producer]
    jitter = plan.spin_jitter_ns * _uniform(plan.seed, producer, bursts) if plan.spin_jitter_ns > 0.0 else 0.0
    if plan.isolated:
        following = max(now, producers.start_ns[producer] + bursts * plan.gap_ns + jitter)
    else:
        following = now + plan.gap_ns + jitter
    if following < plan.deadline_ns and bursts < plan.most_bursts:
        set_timer(timers, producer, following)


@event_kernel
def _uniform(seed: int, producer: int, burst: int) -> float:
    """A draw from [0, 1) that depends on its arguments alone, not on the order of events (splitmix64)."""
    mixed = np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * (
        np.uint64(producer) * np.uint64(0x100000001) + np.uint64(burst) + np.uint64(1)
    )
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return np.float64(mixed >> np.uint64(11)) / 9007199254740992.0
