"""The event loop of the pipeline: the roles of all SMs over the shared path."""

from __future__ import annotations

import numpy as np

from xstage_tune.simulator.fluid import (
    CHANGE,
    NOBODY,
    QUEUE_FULL,
    pop_arrived,
    take_change,
)
from xstage_tune.simulator.fluid_rates import set_rates
from xstage_tune.simulator.jit import event_loop
from xstage_tune.simulator.mainloop_role import step_mainloop
from xstage_tune.simulator.pipeline_state import Pipeline
from xstage_tune.simulator.state_pointer import pointer_to
from xstage_tune.simulator.storing_roles import next_store, step_issue, step_passed, step_signal
from xstage_tune.simulator.timers import set_timer


@event_loop
def run_events(launch: Pipeline) -> int:
    """Run until nothing is left to happen; returns the number of events.

    On a return with tiles left, every mainloop role that has some waits on a counter (a deadlock).
    """
    run = pointer_to(launch)
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
                    step_passed(sm, now, run)
                    sm = pop_arrived(run.fluid, flow)
                    events += 1
            set_rates(run.fluid)
            continue
        touched = False
        while run.timers.when_ns[timer] == now:
            events += 1
            if timer < sms:
                due = step_mainloop(timer, now, run)
                set_timer(run.timers, timer, due)
                touched |= next_store(timer, now, run)
            elif timer < 2 * sms:
                touched |= step_issue(timer - sms, now, run)
            else:
                touched |= step_signal(timer - 2 * sms, now, run)
            timer = run.timers.winner[1]
        if touched:
            set_rates(run.fluid)
