"""Steps of the issue and signal roles, and of what they have stored, in the pipeline's event loop."""

from __future__ import annotations

import numpy as np

from xstage_tune.launches.streams import NO_COUNTER
from xstage_tune.simulator.fluid import (
    NOWHERE,
    OCCUPANCY,
    access_wait_ns,
    advance,
    begin_burst,
    offer_burst,
    wait_for,
)
from xstage_tune.simulator.jit import event_kernel
from xstage_tune.simulator.mainloop_role import feed, free_slots, signal
from xstage_tune.simulator.pipeline_state import (
    ADMITTING,
    COMPLETING,
    IDLE,
    NO_BURST,
    NO_TILE,
    PASSING,
    STAGING,
    STORING,
    Pipeline,
)
from xstage_tune.simulator.timers import set_timer


@event_kernel
def next_store(sm: int, now: float, run: Pipeline) -> bool:
    """Let an idle issue role take up ended tiles; True if the path's rates must be set anew."""
    touched = False
    while run.roles.issue[sm] == IDLE and run.roles.storing[sm] < run.roles.current[sm]:
        tile = run.roles.storing[sm]
        # One role stores the tiles that raise a counter, each once the counter of the one before is raised.
        if run.roles.raising[sm] != NO_TILE and _raises(tile, run):
            return touched
        run.times.issue[tile] = now
        touched |= _offer(sm, 2 * tile, now, run)
        if run.tiles.staging_ns[tile] > 0.0:
            run.roles.issue[sm] = STAGING
            _set_issue_timer(sm, now + run.tiles.staging_ns[tile], run)
        else:
            touched |= _store(sm, now, run)
    return touched


@event_kernel
def step_issue(sm: int, now: float, run: Pipeline) -> bool:
    """Step an issue role whose timer is due; True if the path's rates must be set anew."""
    _set_issue_timer(sm, np.inf, run)
    if run.roles.issue[sm] == STORING:
        advance(run.fluid, now)
        if not _admit(sm, now, run):
            return True
    elif run.roles.issue[sm] == COMPLETING:
        _release(sm, now, run)
    elif _store(sm, now, run):
        next_store(sm, now, run)
        return True
    return next_store(sm, now, run)


@event_kernel
def step_signal(sm: int, now: float, run: Pipeline) -> bool:
    """A counter is raised, and its role goes on; True if the path's rates must be set anew."""
    set_timer(run.timers, 2 * run.roles.raising.shape[0] + sm, np.inf)
    raised = run.roles.raising[sm]
    run.roles.raising[sm] = NO_TILE
    run.times.raised[raised] = now
    signal(run.tiles.signals[raised], now, run)
    free_slots(sm, raised + 1, run.roles.storing[sm], now, run)
    return next_store(sm, now, run)


@event_kernel
def step_passed(sm: int, now: float, run: Pipeline) -> None:
    """The SM's own room has passed on as many bytes as it was to."""
    emptied = run.fluid.flow[sm] == NOWHERE
    if emptied:
        part = run.roles.passing[sm]
        run.roles.passing[sm] = part + 1
        if part % 2 == 1:  # remote bytes
            run.times.drained[part // 2] = now + run.fluid.level[OCCUPANCY] / run.fluid.drain
        if not _pass_next(sm, run):
            feed(sm, now, run)
        _await_raise(sm, now, run)
        if run.roles.issue[sm] == PASSING and run.roles.passing[sm] > 2 * run.roles.storing[sm] + 1:
            _complete(sm, run)
            return
    if run.roles.issue[sm] == ADMITTING and emptied:
        _admit(sm, now, run)
    elif run.roles.issue[sm] == ADMITTING or (run.roles.issue[sm] == STORING and run.fluid.own_rooms == 0.0):
        # A part at its goal though not all of it is passed on has made the room that its SM waits for.
        _stored(sm, now, run)
    next_store(sm, now, run)


@event_kernel
def _set_issue_timer(sm: int, when_ns: float, run: Pipeline) -> None:
    set_timer(run.timers, run.roles.issue.shape[0] + sm, when_ns)


@event_kernel
def _raises(tile: int, run: Pipeline) -> bool:
    """Whether a tile raises a counter when it is stored."""
    raises: bool = run.tiles.signals[tile] != NO_COUNTER and not run.tiles.signals_at_end[tile]
    return raises


@event_kernel
def _store(sm: int, now: float, run: Pipeline) -> bool:
    """Issue the remote part of the staged tile, if it has one; True if the path's rates must be set anew."""
    part = 2 * run.roles.storing[sm] + 1
    burst = run.tiles.burst[part]
    touched = _offer(sm, part, now, run)
    if burst != NO_BURST:
        run.roles.issue[sm] = STORING
        # Without an own room a burst passes on as it is issued: its arrival ends it, never before T0.
        if run.fluid.own_rooms > 0.0:
            _set_issue_timer(sm, now + run.fluid.burst[burst] / run.fluid.rate[burst], run)
        return touched
    advance(run.fluid, now)
    return not _admit(sm, now, run)


@event_kernel
def _offer(sm: int, part: int, now: float, run: Pipeline) -> bool:
    """Put a part into the SM's own room; True if it is at the head there, so that rates must be set."""
    run.roles.offered[sm] = part + 1
    burst = run.tiles.burst[part]
    if burst == NO_BURST:
        if run.fluid.flow[sm] == NOWHERE:
            run.roles.passing[sm] = part + 1
        return False
    advance(run.fluid, now)
    offer_burst(run.fluid, burst)
    if run.fluid.flow[sm] != NOWHERE:
        return False
    run.roles.backlog_at[sm] = now + run.fluid.burst[burst] / run.fluid.rate[burst]
    return _pass_next(sm, run)


@event_kernel
def _pass_next(sm: int, run: Pipeline) -> bool:
    """Begin to pass on the next part in the SM's own room; False if there is none."""
    part = run.roles.passing[sm]
    while part < run.roles.offered[sm] and run.tiles.burst[part] == NO_BURST:
        part += 1
    run.roles.passing[sm] = part
    if part == run.roles.offered[sm]:
        return False
    begin_burst(run.fluid, sm, run.tiles.burst[part])
    return True


@event_kernel
def _admit(sm: int, now: float, run: Pipeline) -> bool:
    """Take the tile that is issued as stored if its last byte has room, else wait for that.

    False if it waits: then ``set_rates`` must follow.
    """
    if wait_for(run.fluid, sm, run.tiles.admitted_at[run.roles.storing[sm]]):
        run.roles.issue[sm] = ADMITTING
        return False
    _stored(sm, now, run)
    return True


@event_kernel
def _stored(sm: int, now: float, run: Pipeline) -> None:
    """The tile's last store has been accepted."""
    tile = run.roles.storing[sm]
    run.times.accepted[tile] = now
    is_remote = run.tiles.burst[2 * tile + 1] != NO_BURST
    has_passed = run.roles.passing[sm] > 2 * tile + 1
    if not is_remote:
        run.times.drained[tile] = now
    elif has_passed:
        run.times.drained[tile] = max(run.times.drained[tile], now)
    if _raises(tile, run):
        run.roles.raising[sm] = tile
        _await_raise(sm, now, run)
    if is_remote and run.rules.completion_coupled:
        if has_passed:
            _complete(sm, run)
        else:
            run.roles.issue[sm] = PASSING
        return
    _release(sm, now, run)


@event_kernel
def _await_raise(sm: int, now: float, run: Pipeline) -> None:
    """Time the raise of a stored tile's counter, once all of the tile has left the SM's own room."""
    timer = 2 * run.roles.raising.shape[0] + sm
    tile = run.roles.raising[sm]
    if tile == NO_TILE or run.timers.when_ns[timer] < np.inf:
        return
    if run.fluid.flow[sm] == NOWHERE or run.roles.passing[sm] > 2 * tile + 1:
        set_timer(run.timers, timer, now + access_wait_ns(run.fluid) + run.rules.raise_ns)


@event_kernel
def _complete(sm: int, run: Pipeline) -> None:
    """Coupled to completion: wait until the tile's bytes have drained and are visible."""
    run.roles.issue[sm] = COMPLETING
    drained = run.times.drained[run.roles.storing[sm]]
    _set_issue_timer(sm, drained + run.rules.completion_latency_ns, run)


@event_kernel
def _release(sm: int, now: float, run: Pipeline) -> None:
    """The issue role is done with a tile. Its slot is free once the signal role has passed it too."""
    tile = run.roles.storing[sm]
    run.roles.issue[sm] = IDLE
    run.roles.storing[sm] = tile + 1
    if run.roles.raising[sm] == NO_TILE or run.roles.raising[sm] == tile:
        free_slots(sm, tile, tile + 1, now, run)
