"""How fast each flow class passes bytes on, and when that changes next (see the package docstring)."""

from __future__ import annotations

import numpy as np

from xstage_tune.simulator.fluid import (
    CAUSE,
    CHANGE,
    ENTERING,
    INFLOW,
    LIMITED,
    LIVE,
    OCCUPANCY,
    QUEUE_FULL,
    UPDATED,
    Fluid,
)
from xstage_tune.simulator.jit import event_kernel


@event_kernel
def set_rates(fluid: Fluid) -> None:
    """Set every class's rate for the bursts now active, and find the queue's next event."""
    level, mark = fluid.level, fluid.mark
    fluid.demand[:] = 0.0
    total = 0.0
    for k in range(mark[LIVE]):
        flow = fluid.live[k]
        own = fluid.rate[fluid.flow_kind[flow]]
        fluid.slope[flow] = own
        if fluid.remote[fluid.flow_kind[flow]]:
            fluid.demand[fluid.flow_branch[flow]] += fluid.active[flow] * own
            total += fluid.active[flow] * own
    limited = total > fluid.drain and level[OCCUPANCY] >= fluid.capacity
    mark[LIMITED] = 1 if limited else 0
    level[INFLOW] = fluid.drain if limited else total
    if limited:
        _grant_branches(fluid)
        for branch in range(fluid.share.shape[0]):
            if fluid.granted[branch] < fluid.demand[branch]:
                _grant_bursts(fluid, branch)
            else:
                fluid.turn[branch] = np.inf
        _take_turns(fluid)
    level[ENTERING] = _entering(fluid)
    _find_change(fluid)


@event_kernel
def _grant_branches(fluid: Fluid) -> None:
    """Divide R among the branches by share, none above its demand (max-min fair)."""
    left, weight = fluid.drain, 0.0
    for branch in range(fluid.share.shape[0]):
        fluid.granted[branch] = -1.0 if fluid.demand[branch] > 0.0 else 0.0
        if fluid.demand[branch] > 0.0:
            weight += fluid.share[branch]
    settled = True
    while settled:
        settled = False
        for branch in range(fluid.share.shape[0]):
            if fluid.granted[branch] < 0.0 and fluid.demand[branch] * weight <= left * fluid.share[branch]:
                fluid.granted[branch] = fluid.demand[branch]
                left -= fluid.demand[branch]
                weight -= fluid.share[branch]
                settled = True
    for branch in range(fluid.share.shape[0]):
        if fluid.granted[branch] < 0.0:
            fluid.granted[branch] = left * fluid.share[branch] / weight


@event_kernel
def _grant_bursts(fluid: Fluid, branch: int) -> None:
    """Divide a branch's grant among its remote bursts by weight, none above its own rate (max-min fair)."""
    left, weight = fluid.granted[branch], 0.0
    for k in range(fluid.mark[LIVE]):
        flow = fluid.live[k]
        if fluid.flow_branch[flow] == branch and fluid.remote[fluid.flow_kind[flow]]:
            weight += fluid.active[flow] * fluid.flow_weight[flow]
            fluid.slope[flow] = -1.0
    settled = True
    while settled:
        settled = False
        for k in range(fluid.mark[LIVE]):
            flow = fluid.live[k]
            own = fluid.rate[fluid.flow_kind[flow]]
            mine = fluid.flow_branch[flow] == branch and fluid.slope[flow] < 0.0
            if mine and own * weight <= left * fluid.flow_weight[flow]:
                fluid.slope[flow] = own
                left -= fluid.active[flow] * own
                weight -= fluid.active[flow] * fluid.flow_weight[flow]
                settled = True
    fluid.turn[branch] = left / weight
    for k in range(fluid.mark[LIVE]):
        flow = fluid.live[k]
        if fluid.slope[flow] < 0.0:
            fluid.slope[flow] = fluid.turn[branch] * fluid.flow_weight[flow]


@event_kernel
def _take_turns(fluid: Fluid) -> None:
    """Let local bytes pass on in turn with the remote ones of their port, byte for byte."""
    for k in range(fluid.mark[LIVE]):
        flow = fluid.live[k]
        if not fluid.remote[fluid.flow_kind[flow]] and fluid.flow_sending[flow] > 0:
            turn = fluid.turn[fluid.flow_branch[flow]] * fluid.flow_weight[flow]
            fluid.slope[flow] = min(fluid.slope[flow], turn)


@event_kernel
def _entering(fluid: Fluid) -> float:
    """Bytes/ns of remote bursts that are not paced."""
    total = 0.0
    for k in range(fluid.mark[LIVE]):
        flow = fluid.live[k]
        kind = fluid.flow_kind[flow]
        if fluid.remote[kind] and not fluid.trickles[kind]:
            total += fluid.active[flow] * fluid.slope[flow]
    return total


@event_kernel
def _find_change(fluid: Fluid) -> None:
    """The soonest of: the shared room becomes full, a class's first producer is at its goal."""
    level, mark = fluid.level, fluid.mark
    soonest, cause = np.inf, QUEUE_FULL
    if mark[LIMITED] == 0 and level[INFLOW] > fluid.drain:
        soonest = (fluid.capacity - level[OCCUPANCY]) / (level[INFLOW] - fluid.drain)
    for k in range(mark[LIVE]):
        flow = fluid.live[k]
        until_end = (fluid.target[fluid.first[flow]] - fluid.work[flow]) / fluid.slope[flow]
        if until_end <= soonest:
            soonest, cause = max(until_end, 0.0), flow
    level[CHANGE] = level[UPDATED] + soonest
    mark[CAUSE] = cause
