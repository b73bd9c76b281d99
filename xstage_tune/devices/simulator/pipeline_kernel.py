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
    backlog_at: NDArray[np.float64]  # since when the SM has stores in its own room
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


@event_kernel
def run_events(
    tiles: Tiles,
    times: Times,
    roles: Roles,
    timers: Timers,
    fluid: Fluid,
    rules: Rules,
) -> int:
    """Run until nothing is left to happen; returns the number of events.

    Timers: SM i's mainloop role has timer i and its issue role timer SMs + i. On a return with tiles
    left, every mainloop role that has some waits on a counter (a deadlock).
    """
    sms = roles.current.shape[0]
    events = 0
    while True:
        timer = timers.winner[1]
        now = timers.when_ns[timer]
        if fluid.level[CHANGE] <= now:
            if fluid.level[CHANGE] == np.inf:
                return events
            now = fluid.level[CHANGE]
            events += 1
            flow = take_change(fluid)
            if flow != QUEUE_FULL:
                sm = pop_arrived(fluid, flow)
                while sm != NOBODY:
                    _arrived(sm, now, tiles, times, roles, timers, fluid, rules)
                    sm = pop_arrived(fluid, flow)
                    events += 1
            set_rates(fluid)
            continue
        touched = False
        while timers.when_ns[timer] == now:
            events += 1
            if timer < sms:
                due = _mainloop_timer(timer, now, tiles, times, roles, timers, fluid, rules)
                set_timer(timers, timer, due)
                touched |= _next_store(timer, now, tiles, times, roles, timers, fluid, rules)
            else:
                touched |= _issue_timer(timer - sms, now, tiles, times, roles, timers, fluid, rules)
            timer = timers.winner[1]
        if touched:
            set_rates(fluid)


@event_kernel
def _mainloop_timer(
    sm: int,
    now: float,
    tiles: Tiles,
    times: Times,
    roles: Roles,
    timers: Timers,
    fluid: Fluid,
    rules: Rules,
) -> float:
    """Step a mainloop role; returns when its timer is due next (infinity while it waits)."""
    tile = roles.current[sm]
    state = roles.mainloop[sm]
    if state != TO_BEGIN and fluid.flow[sm] != NOWHERE and _starves_at(sm, roles, rules) < now:
        roles.starved_at[sm] = now
        return np.inf
    if state == TO_BEGIN:
        if np.isnan(times.ready[tile]):
            return _turn_to_tile(sm, now, tiles, times, roles)
        return _begin(sm, now, tiles, times, roles)
    if state == TO_SLOT:
        return _take_slot(sm, now, tiles, roles)
    times.end[tile] = now
    if tiles.signals_at_end[tile]:
        _signal(tiles.signals[tile], now, roles, timers, rules)
    roles.current[sm] = tile + 1
    return _turn_to_tile(sm, now, tiles, times, roles)


@event_kernel
def _starves_at(sm: int, roles: Roles, rules: Rules) -> float:
    """When a running mainloop has used up its operands, if the SM's stores do not leave its own room before.

    Loads leave the SM behind its waiting stores, so none arrives while there are any.
    """
    starves_at: float = max(roles.backlog_at[sm] + rules.load_cover_ns, roles.running_at[sm])
    return starves_at


@event_kernel
def _feed(sm: int, now: float, times: Times, roles: Roles, timers: Timers, rules: Rules) -> None:
    """The SM's own room is empty: operands arrive again, and what the mainloop missed it does now."""
    running = roles.mainloop[sm] == TO_END or roles.mainloop[sm] == TO_SLOT
    starved_at = _starves_at(sm, roles, rules)
    due = timers.when_ns[sm] if np.isnan(roles.starved_at[sm]) else roles.starved_at[sm]
    # A role that has ended its last tile has no timer any more.
    if not running or starved_at >= now or due == np.inf:
        return
    roles.starved_at[sm] = np.nan
    times.starved[roles.current[sm]] += now - starved_at
    set_timer(timers, sm, due + now - starved_at)


@event_kernel
def _turn_to_tile(sm: int, now: float, tiles: Tiles, times: Times, roles: Roles) -> float:
    tile = roles.current[sm]
    if tile == tiles.first[sm + 1]:
        return np.inf
    times.ready[tile] = now
    counter = tiles.waits_on[tile]
    if counter != NO_COUNTER:
        if roles.missing[counter] > 0:
            roles.mainloop[sm] = ON_COUNTER
            roles.next_waiting[sm] = roles.waiting[counter]
            roles.waiting[counter] = sm
            return np.inf
        if roles.visible_at[counter] > now:
            roles.mainloop[sm] = TO_BEGIN
            visible_at: float = roles.visible_at[counter]
            return visible_at
    return _begin(sm, now, tiles, times, roles)


@event_kernel
def _begin(sm: int, now: float, tiles: Tiles, times: Times, roles: Roles) -> float:
    tile = roles.current[sm]
    times.begin[tile] = now
    roles.running_at[sm] = now
    # Only this role takes this SM's slots, so one that is free now is free at the offset too.
    if roles.free_slots[sm] > 0:
        roles.free_slots[sm] -= 1
        roles.mainloop[sm] = TO_END
        end: float = now + tiles.mainloop_ns[tile]
        return end
    if tiles.slot_offset_ns[tile] > 0.0:
        roles.mainloop[sm] = TO_SLOT
        slot_at: float = now + tiles.slot_offset_ns[tile]
        return slot_at
    return _take_slot(sm, now, tiles, roles)


@event_kernel
def _take_slot(sm: int, now: float, tiles: Tiles, roles: Roles) -> float:
    tile = roles.current[sm]
    if roles.free_slots[sm] == 0:
        roles.mainloop[sm] = ON_SLOT
        roles.stalled_at[sm] = now
        return np.inf
    roles.free_slots[sm] -= 1
    roles.mainloop[sm] = TO_END
    roles.running_at[sm] = now
    end: float = now + tiles.mainloop_ns[tile] - tiles.slot_offset_ns[tile]
    return end


@event_kernel
def _signal(counter: int, now: float, roles: Roles, timers: Timers, rules: Rules) -> None:
    if counter == NO_COUNTER:
        return
    roles.missing[counter] -= 1
    if roles.missing[counter] > 0:
        return
    seen = now + rules.signal_ns
    roles.visible_at[counter] = seen
    sm = roles.waiting[counter]
    while sm != NOBODY:
        roles.mainloop[sm] = TO_BEGIN
        set_timer(timers, sm, seen)
        sm = roles.next_waiting[sm]
    roles.waiting[counter] = NOBODY


@event_kernel
def _issue_timer(
    sm: int,
    now: float,
    tiles: Tiles,
    times: Times,
    roles: Roles,
    timers: Timers,
    fluid: Fluid,
    rules: Rules,
) -> bool:
    """Step an issue role whose timer is due; True if the path's rates must be set anew."""
    set_timer(timers, tiles.first.shape[0] - 1 + sm, np.inf)
    if roles.issue[sm] == STORING:
        advance(fluid, now)
        if wait_for(fluid, sm, tiles.admitted_at[roles.storing[sm]]):
            roles.issue[sm] = ADMITTING
            return True
        _stored(sm, now, tiles, times, roles, timers, fluid, rules)
    elif roles.issue[sm] == COMPLETING:
        _free_slot(sm, now, tiles, times, roles, timers)
    elif _store(sm, now, tiles, times, roles, timers, fluid, rules):
        return True
    return _next_store(sm, now, tiles, times, roles, timers, fluid, rules)


@event_kernel
def _next_store(
    sm: int,
    now: float,
    tiles: Tiles,
    times: Times,
    roles: Roles,
    timers: Timers,
    fluid: Fluid,
    rules: Rules,
) -> bool:
    """Let an idle issue role take up ended tiles; True if it began a burst."""
    while roles.issue[sm] == IDLE and roles.storing[sm] < roles.current[sm]:
        tile = roles.storing[sm]
        times.issue[tile] = now
        if tiles.staging_ns[tile] > 0.0:
            roles.issue[sm] = STAGING
            set_timer(timers, tiles.first.shape[0] - 1 + sm, now + tiles.staging_ns[tile])
        elif _store(sm, now, tiles, times, roles, timers, fluid, rules):
            return True
    return False


@event_kernel
def _store(
    sm: int,
    now: float,
    tiles: Tiles,
    times: Times,
    roles: Roles,
    timers: Timers,
    fluid: Fluid,
    rules: Rules,
) -> bool:
    """Begin the remote burst of the staged tile, if it has one."""
    size = tiles.size[roles.storing[sm]]
    if size == NO_BURST:
        _stored(sm, now, tiles, times, roles, timers, fluid, rules)
        return False
    roles.issue[sm] = STORING
    advance(fluid, now)
    if fluid.flow[sm] == NOWHERE:
        roles.backlog_at[sm] = now
    begin_burst(fluid, sm, size)
    # Without an own room a burst passes on as it is issued: its arrival ends it, never before T0.
    if fluid.own_rooms > 0.0:
        free_ns = fluid.burst[size] / fluid.rate[size]
        set_timer(timers, tiles.first.shape[0] - 1 + sm, now + free_ns)
    return True


@event_kernel
def _arrived(
    sm: int,
    now: float,
    tiles: Tiles,
    times: Times,
    roles: Roles,
    timers: Timers,
    fluid: Fluid,
    rules: Rules,
) -> None:
    """The SM has passed on as many bytes as it was to."""
    if fluid.flow[sm] == NOWHERE:
        _feed(sm, now, times, roles, timers, rules)
        drained = now + fluid.level[OCCUPANCY] / fluid.drain
        for tile in range(roles.passing[sm], roles.storing[sm]):
            times.drained[tile] = drained
        roles.passing[sm] = roles.storing[sm]
        if roles.issue[sm] == PASSING:
            _complete(sm, drained, tiles, times, roles, timers, rules)
            return
    if roles.issue[sm] == ADMITTING or (roles.issue[sm] == STORING and fluid.own_rooms == 0.0):
        _stored(sm, now, tiles, times, roles, timers, fluid, rules)
        _next_store(sm, now, tiles, times, roles, timers, fluid, rules)


@event_kernel
def _stored(
    sm: int,
    now: float,
    tiles: Tiles,
    times: Times,
    roles: Roles,
    timers: Timers,
    fluid: Fluid,
    rules: Rules,
) -> None:
    """The tile's last store has been accepted."""
    tile = roles.storing[sm]
    times.accepted[tile] = now
    times.drained[tile] = now
    if not tiles.signals_at_end[tile]:
        _signal(tiles.signals[tile], now, roles, timers, rules)
    if tiles.size[tile] != NO_BURST and fluid.flow[sm] == NOWHERE:
        # First in, first out: what is queued at this moment leaves before, or is, this burst's tail.
        times.drained[tile] = now + fluid.level[OCCUPANCY] / fluid.drain
    if tiles.size[tile] != NO_BURST and rules.completion_coupled:
        if fluid.flow[sm] == NOWHERE:
            _complete(sm, times.drained[tile], tiles, times, roles, timers, rules)
        else:
            roles.issue[sm] = PASSING
        return
    _free_slot(sm, now, tiles, times, roles, timers)


@event_kernel
def _complete(
    sm: int,
    drained: float,
    tiles: Tiles,
    times: Times,
    roles: Roles,
    timers: Timers,
    rules: Rules,
) -> None:
    """Coupled to completion: wait until the tile's bytes have drained and are visible."""
    times.drained[roles.storing[sm]] = drained
    roles.issue[sm] = COMPLETING
    set_timer(timers, tiles.first.shape[0] - 1 + sm, drained + rules.completion_latency_ns)


@event_kernel
def _free_slot(sm: int, now: float, tiles: Tiles, times: Times, roles: Roles, timers: Timers) -> None:
    times.freed[roles.storing[sm]] = now
    roles.issue[sm] = IDLE
    roles.storing[sm] += 1
    roles.free_slots[sm] += 1
    if roles.mainloop[sm] == ON_SLOT:
        times.stall[roles.current[sm]] = now - roles.stalled_at[sm]
        set_timer(timers, sm, _take_slot(sm, now, tiles, roles))
