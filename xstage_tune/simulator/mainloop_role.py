"""Steps of the mainloop roles in the pipeline's event loop."""

from __future__ import annotations

import numpy as np

from xstage_tune.launches.streams import NO_COUNTER
from xstage_tune.simulator.fluid import NOBODY, NOWHERE, access_wait_ns, advance, held_bytes
from xstage_tune.simulator.jit import event_kernel
from xstage_tune.simulator.pipeline_state import (
    ON_COUNTER,
    ON_SLOT,
    TO_BEGIN,
    TO_END,
    TO_SLOT,
    Pipeline,
)
from xstage_tune.simulator.timers import set_timer


@event_kernel
def step_mainloop(sm: int, now: float, run: Pipeline) -> float:
    """Step a mainloop role whose timer is due; returns when it is due next (infinity while it waits)."""
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
        signal(run.tiles.signals[tile], now, run)
    run.roles.current[sm] = tile + 1
    return _turn_to_tile(sm, now, run)


@event_kernel
def _starves_at(sm: int, run: Pipeline) -> float:
    """When a running mainloop has used up its operands, if the SM's stores do not leave its own room before.

    Loads leave the SM behind its waiting stores, so none arrives while there are any. Of those issued during
    a burst the last waits longest, so what is loaded ahead counts from the burst's last byte.
    """
    starves_at: float = max(run.roles.backlog_at[sm] + run.rules.load_cover_ns, run.roles.running_at[sm])
    return starves_at


@event_kernel
def feed(sm: int, now: float, run: Pipeline) -> None:
    """The SM's own room is empty: loads leave, and what the mainloop misses until they return it does then.

    On their way they wait behind all that is outstanding, as in one queue.
    """
    running = run.roles.mainloop[sm] == TO_END or run.roles.mainloop[sm] == TO_SLOT
    starved_at = _starves_at(sm, run)
    due = run.timers.when_ns[sm] if np.isnan(run.roles.starved_at[sm]) else run.roles.starved_at[sm]
    fed_at = now + held_bytes(run.fluid) / run.fluid.drain
    # A role that has ended its last tile has no timer any more.
    if not running or starved_at >= fed_at or due == np.inf:
        return
    run.roles.starved_at[sm] = np.nan
    run.times.starved[run.roles.current[sm]] += fed_at - starved_at
    set_timer(run.timers, sm, due + fed_at - starved_at)


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
def free_slots(sm: int, first: int, end: int, now: float, run: Pipeline) -> None:
    """The slots of tiles from ``first`` to before ``end`` are free; a mainloop that waits for one goes on."""
    for tile in range(first, end):
        run.times.freed[tile] = now
    run.roles.free_slots[sm] += end - first
    if end > first and run.roles.mainloop[sm] == ON_SLOT:
        run.times.stall[run.roles.current[sm]] = now - run.roles.stalled_at[sm]
        set_timer(run.timers, sm, _take_slot(sm, now, run))


@event_kernel
def signal(counter: int, now: float, run: Pipeline) -> None:
    """Raise a counter; if that completes it, those that wait for it see it ``signal_ns`` later or more.

    They poll it, one access behind the other: half an access's wait goes by until the next one comes to it.
    """
    if counter == NO_COUNTER:
        return
    run.roles.missing[counter] -= 1
    if run.roles.missing[counter] > 0:
        return
    advance(run.fluid, now)
    seen = now + access_wait_ns(run.fluid) / 2 + run.rules.signal_ns
    run.roles.visible_at[counter] = seen
    sm = run.roles.waiting[counter]
    while sm != NOBODY:
        run.roles.mainloop[sm] = TO_BEGIN
        set_timer(run.timers, sm, seen)
        sm = run.roles.next_waiting[sm]
    run.roles.waiting[counter] = NOBODY
