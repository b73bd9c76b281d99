"""The event loop of the pipeline: mainloop and issue roles of all SMs over the shared path."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xstage_tune.devices.simulator.fluid import (
    CHANGE,
    NOBODY,
    NOWHERE,
    OCCUPANCY,
    QUEUE_FULL,
    Fluid,
    advance,
    begin_burst,
    pop_arrived,
    set_rates,
    take_change,
    wait_for,
)
from xstage_tune.devices.simulator.jit import event_kernel
from xstage_tune.devices.simulator.timers import Timers, set_timer
from xstage_tune.devices.streams import NO_COUNTER

# Mainloop role.
TO_BEGIN = 0  # its timer: start of the kernel, or a counter that becomes visible
ON_COUNTER = 1
TO_SLOT = 2  # its timer: the offset at which the tile needs a slot
ON_SLOT = 3
TO_END = 4  # its timer: end of the mainloop
# Issue role.
IDLE = 0
STAGING = 1  # its timer: end of the staging part
STORING = 2  # in the path; its timer, where SMs have rooms of their own: T0 is over
ADMITTING = 3  # T0 is over, and the tile's last byte has no room yet
PASSING = 4  # accepted, and waits until its bytes are in the shared room
COMPLETING = 5  # its timer: own bytes have drained

NO_BURST = -1


class Tiles(NamedTuple):
    """Tiles of all SMs, those of one SM contiguous and in its order; ``[n]`` unless said."""

    first: NDArray[np.int64]  # [SMs + 1]
    mainloop_ns: NDArray[np.float64]
    slot_offset_ns: NDArray[np.float64]
    staging_ns: NDArray[np.float64]
    size: NDArray[np.int32]  # index of the remote burst's size, or NO_BURST
    admitted_at: NDArray[np.float64]  # remote bytes of its SM passed on when its last byte has room
    waits_on: NDArray[np.int32]  # counter, or NO_COUNTER
    signals: NDArray[np.int32]  # counter, or NO_COUNTER
    signals_at_end: NDArray[np.bool_]  # signal at the mainloop's end, else when stored


class Times(NamedTuple):
    """What happened to each tile, ``[n]``, in ns; NaN for a tile never reached."""

    ready: NDArray[np.float64]  # the mainloop role turned to the tile
    begin: NDArray[np.float64]  # its counter was complete
    stall: NDArray[np.float64]  # length of the wait for a slot
    starved: NDArray[np.float64]  # length of the wait, inside the mainloop, for operands
    end: NDArray[np.float64]  # end of the mainloop
    issue: NDArray[np.float64]  # the issue role turned to the tile
    accepted: NDArray[np.float64]  # its last store was accepted
    drained: NDArray[np.float64]  # its last remote byte had drained
    freed: NDArray[np.float64]  # its slot was free again


class Roles(NamedTuple):
    """Where the roles are, ``[SMs]`` unless said."""

    mainloop: NDArray[np.int8]
    issue: NDArray[np.int8]
    current: NDArray[np.int64]  # tile of the mainloop role
    storing: NDArray[np.int64]  # tile of the issue role; those in [storing, current) have ended
    free_slots: NDArray[np.int64]
    stalled_at: NDArray[np.float64]  # since when ON_SLOT
    running_at: NDArray[np.float64]  # since when TO_SLOT or TO_END
    backlog_at: NDArray[np.float64]  # when the first burst was issued of those in its own room
    starved_at: NDArray[np.float64]  # due time of a mainloop's timer that found it without operands, else NaN
    passing: NDArray[np.int64]  # first tile of those whose bytes may still be in the SM's own room
    missing: NDArray[np.int64]  # [counters] signals to come
    visible_at: NDArray[np.float64]  # [counters] when a complete counter is seen
    waiting: NDArray[np.int64]  # [counters] first SM that waits
    next_waiting: NDArray[np.int64]


class Rules(NamedTuple):
    """How roles interact."""

    signal_ns: float  # from a signal to its being seen by other SMs
    completion_coupled: bool
    completion_latency_ns: float
    load_cover_ns: float  # how long a mainloop does with the operands that it has; infinity for a spin


class Pipeline(NamedTuple):
    """One launch under way."""

    tiles: Tiles
    times: Times
    roles: Roles
    timers: Timers
    fluid: Fluid
    rules: Rules


@event_kernel
def run_events(run: Pipeline) -> int:
    """Run until nothing is left to happen; returns the number of events.

    Timers: SM i's mainloop role has timer i and its issue role timer SMs + i. On a return with tiles
    left, every mainloop role that has some waits on a counter (a deadlock).
    """
    sms = run.roles.current.shape[0]
    events = 0
    while True:
        timer = run.timers.winner[1]
        now = run.timers.when_ns[timer]
        if run.fluid.level[CHANGE] <= now:
            if run.fluid.level[CHANGE] == np.inf:
                return events
            now = run.fluid.level[CHANGE]
            events += 1
            flow = take_change(run.fluid)
            if flow != QUEUE_FULL:
                sm = pop_arrived(run.fluid, flow)
                while sm != NOBODY:
                    _arrived(sm, now, run)
                    sm = pop_arrived(run.fluid, flow)
                    events += 1
            set_rates(run.fluid)
            continue
        touched = False
        while run.timers.when_ns[timer] == now:
            events += 1
            if timer < sms:
                due = _mainloop_timer(timer, now, run)
                set_timer(run.timers, timer, due)
                touched |= _next_store(timer, now, run)
            else:
                touched |= _issue_timer(timer - sms, now, run)
            timer = run.timers.winner[1]
        if touched:
            set_rates(run.fluid)


@event_kernel
def _mainloop_timer(sm: int, now: float, run: Pipeline) -> float:
    """Step a mainloop role; returns when its timer is due next (infinity while it waits)."""
    tile = run.roles.current[sm]
    state = run.roles.mainloop[sm]
    if state != TO_BEGIN and run.fluid.flow[sm] != NOWHERE and _starves_at(sm, run) < now:
        run.roles.starved_at[sm] = now
        return np.inf
    if state == TO_BEGIN:
        if np.isnan(run.times.ready[tile]):
            return _turn_to_tile(sm, now, run)
        return _begin(sm, now, run)
    if state == TO_SLOT:
        return _take_slot(sm, now, run)
    run.times.end[tile] = now
    if run.tiles.signals_at_end[tile]:
        _signal(run.tiles.signals[tile], now, run)
    run.roles.current[sm] = tile + 1
    return _turn_to_tile(sm, now, run)


@event_kernel
def _starves_at(sm: int, run: Pipeline) -> float:
    """When a running mainloop has used up its operands, if the SM's stores do not leave its own room before.

    Loads leave the SM behind its waiting stores, so none arrives while there are any. One that is issued as a
    burst ends is in front of all others in that, so the wait counts from there.
    """
    starves_at: float = max(run.roles.backlog_at[sm] + run.rules.load_cover_ns, run.roles.running_at[sm])
    return starves_at


@event_kernel
def _feed(sm: int, now: float, run: Pipeline) -> None:
    """The SM's own room is empty: operands arrive again, and what the mainloop missed it does now."""
    running = run.roles.mainloop[sm] == TO_END or run.roles.mainloop[sm] == TO_SLOT
    starved_at = _starves_at(sm, run)
    due = run.timers.when_ns[sm] if np.isnan(run.roles.starved_at[sm]) else run.roles.starved_at[sm]
    # A role that has ended its last tile has no timer any more.
    if not running or starved_at >= now or due == np.inf:
        return
    run.roles.starved_at[sm] = np.nan
    run.times.starved[run.roles.current[sm]] += now - starved_at
    set_timer(run.timers, sm, due + now - starved_at)


@event_kernel
def _turn_to_tile(sm: int, now: float, run: Pipeline) -> float:
    tile = run.roles.current[sm]
    if tile == run.tiles.first[sm + 1]:
        return np.inf
    run.times.ready[tile] = now
    counter = run.tiles.waits_on[tile]
    if counter != NO_COUNTER:
        if run.roles.missing[counter] > 0:
            run.roles.mainloop[sm] = ON_COUNTER
            run.roles.next_waiting[sm] = run.roles.waiting[counter]
            run.roles.waiting[counter] = sm
            return np.inf
        if run.roles.visible_at[counter] > now:
            run.roles.mainloop[sm] = TO_BEGIN
            visible_at: float = run.roles.visible_at[counter]
            return visible_at
    return _begin(sm, now, run)


@event_kernel
def _begin(sm: int, now: float, run: Pipeline) -> float:
    tile = run.roles.current[sm]
    run.times.begin[tile] = now
    run.roles.running_at[sm] = now
    # Only this role takes this SM's slots, so one that is free now is free at the offset too.
    if run.roles.free_slots[sm] > 0:
        run.roles.free_slots[sm] -= 1
        run.roles.mainloop[sm] = TO_END
        end: float = now + run.tiles.mainloop_ns[tile]
        return end
    if run.tiles.slot_offset_ns[tile] > 0.0:
        run.roles.mainloop[sm] = TO_SLOT
        slot_at: float = now + run.tiles.slot_offset_ns[tile]
        return slot_at
    return _take_slot(sm, now, run)


@event_kernel
def _take_slot(sm: int, now: float, run: Pipeline) -> float:
    tile = run.roles.current[sm]
    if run.roles.free_slots[sm] == 0:
        run.roles.mainloop[sm] = ON_SLOT
        run.roles.stalled_at[sm] = now
        return np.inf
    run.roles.free_slots[sm] -= 1
    run.roles.mainloop[sm] = TO_END
    run.roles.running_at[sm] = now
    end: float = now + run.tiles.mainloop_ns[tile] - run.tiles.slot_offset_ns[tile]
    return end


@event_kernel
def _signal(counter: int, now: float, run: Pipeline) -> None:
    if counter == NO_COUNTER:
        return
    run.roles.missing[counter] -= 1
    if run.roles.missing[counter] > 0:
        return
    seen = now + run.rules.signal_ns
    run.roles.visible_at[counter] = seen
    sm = run.roles.waiting[counter]
    while sm != NOBODY:
        run.roles.mainloop[sm] = TO_BEGIN
        set_timer(run.timers, sm, seen)
        sm = run.roles.next_waiting[sm]
    run.roles.waiting[counter] = NOBODY


@event_kernel
def _issue_timer(sm: int, now: float, run: Pipeline) -> bool:
    """Step an issue role whose timer is due; True if the path's rates must be set anew."""
    set_timer(run.timers, run.tiles.first.shape[0] - 1 + sm, np.inf)
    if run.roles.issue[sm] == STORING:
        advance(run.fluid, now)
        if wait_for(run.fluid, sm, run.tiles.admitted_at[run.roles.storing[sm]]):
            run.roles.issue[sm] = ADMITTING
            return True
        _stored(sm, now, run)
    elif run.roles.issue[sm] == COMPLETING:
        _free_slot(sm, now, run)
    elif _store(sm, now, run):
        return True
    return _next_store(sm, now, run)


@event_kernel
def _next_store(sm: int, now: float, run: Pipeline) -> bool:
    """Let an idle issue role take up ended tiles; True if it began a burst."""
    while run.roles.issue[sm] == IDLE and run.roles.storing[sm] < run.roles.current[sm]:
        tile = run.roles.storing[sm]
        run.times.issue[tile] = now
        if run.tiles.staging_ns[tile] > 0.0:
            run.roles.issue[sm] = STAGING
            set_timer(run.timers, run.tiles.first.shape[0] - 1 + sm, now + run.tiles.staging_ns[tile])
        elif _store(sm, now, run):
            return True
    return False


@event_kernel
def _store(sm: int, now: float, run: Pipeline) -> bool:
    """Begin the remote burst of the staged tile, if it has one."""
    size = run.tiles.size[run.roles.storing[sm]]
    advance(run.fluid, now)
    if size == NO_BURST:
        if wait_for(run.fluid, sm, run.tiles.admitted_at[run.roles.storing[sm]]):
            run.roles.issue[sm] = ADMITTING
            return True
        _stored(sm, now, run)
        return False
    run.roles.issue[sm] = STORING
    free_ns = run.fluid.burst[size] / run.fluid.rate[size]
    # A load waits longest that is issued as the burst's last byte is.
    if run.fluid.flow[sm] == NOWHERE:
        run.roles.backlog_at[sm] = now + free_ns
    begin_burst(run.fluid, sm, size)
    # Without an own room a burst passes on as it is issued: its arrival ends it, never before T0.
    if run.fluid.own_rooms > 0.0:
        set_timer(run.timers, run.tiles.first.shape[0] - 1 + sm, now + free_ns)
    return True


@event_kernel
def _arrived(sm: int, now: float, run: Pipeline) -> None:
    """The SM has passed on as many bytes as it was to."""
    if run.fluid.flow[sm] == NOWHERE:
        _feed(sm, now, run)
        drained = now + run.fluid.level[OCCUPANCY] / run.fluid.drain
        for tile in range(run.roles.passing[sm], run.roles.storing[sm]):
            if run.tiles.size[tile] != NO_BURST:
                run.times.drained[tile] = drained
        run.roles.passing[sm] = run.roles.storing[sm]
        if run.roles.issue[sm] == PASSING:
            _complete(sm, drained, run)
            return
    if run.roles.issue[sm] == ADMITTING or (run.roles.issue[sm] == STORING and run.fluid.own_rooms == 0.0):
        _stored(sm, now, run)
        _next_store(sm, now, run)


@event_kernel
def _stored(sm: int, now: float, run: Pipeline) -> None:
    """The tile's last store has been accepted."""
    tile = run.roles.storing[sm]
    run.times.accepted[tile] = now
    run.times.drained[tile] = now
    if not run.tiles.signals_at_end[tile]:
        _signal(run.tiles.signals[tile], now, run)
    if run.fluid.flow[sm] == NOWHERE:
        run.roles.passing[sm] = tile + 1
        if run.tiles.size[tile] != NO_BURST:
            # First in, first out: what is queued at this moment leaves before, or is, this burst's tail.
            run.times.drained[tile] = now + run.fluid.level[OCCUPANCY] / run.fluid.drain
    if run.tiles.size[tile] != NO_BURST and run.rules.completion_coupled:
        if run.fluid.flow[sm] == NOWHERE:
            _complete(sm, run.times.drained[tile], run)
        else:
            run.roles.issue[sm] = PASSING
        return
    _free_slot(sm, now, run)


@event_kernel
def _complete(sm: int, drained: float, run: Pipeline) -> None:
    """Coupled to completion: wait until the tile's bytes have drained and are visible."""
    run.times.drained[run.roles.storing[sm]] = drained
    run.roles.issue[sm] = COMPLETING
    set_timer(run.timers, run.tiles.first.shape[0] - 1 + sm, drained + run.rules.completion_latency_ns)


@event_kernel
def _free_slot(sm: int, now: float, run: Pipeline) -> None:
    run.times.freed[run.roles.storing[sm]] = now
    run.roles.issue[sm] = IDLE
    run.roles.storing[sm] += 1
    run.roles.free_slots[sm] += 1
    if run.roles.mainloop[sm] == ON_SLOT:
        run.times.stall[run.roles.current[sm]] = now - run.roles.stalled_at[sm]
        set_timer(run.timers, sm, _take_slot(sm, now, run))
