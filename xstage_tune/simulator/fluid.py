"""The shared path as a fluid queue: exact rates, occupancy and burst ends (see the package docstring).

Bytes and ns throughout; rates in bytes/ns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xstage_tune.simulator.drain import NS_PER_S, DrainModel
from xstage_tune.simulator.jit import event_kernel

# Slots of ``Fluid.level``.
OCCUPANCY = 0  # bytes in the shared room at UPDATED
ACCEPTED = 1  # bytes that have entered it up to UPDATED
PEAK = 2  # most bytes held in all rooms up to UPDATED
INFLOW = 3  # bytes/ns that enter it since UPDATED
UPDATED = 4  # ns: time up to which the state is integrated
CHANGE = 5  # ns: next event of the queue, infinity for none
OFFERED = 6  # remote bytes of all bursts offered, but for trickles, which wait nowhere
ENTERED = 7  # of these, bytes that have entered the shared room up to UPDATED
ENTERING = 8  # bytes/ns of these since UPDATED

# Slots of ``Fluid.mark``.
LIVE = 0  # number of live flow classes
LIMITED = 1  # 1 while the queue is full and limits the bursts
CAUSE = 2  # flow class whose first producer is at its goal at CHANGE, or QUEUE_FULL
TRACED = 3  # breakpoints written

QUEUE_FULL = -1
NOBODY = -1
NOWHERE = -1


class Fluid(NamedTuple):
    """State of the queue."""

    drain: float  # R
    capacity: float  # of the shared room
    own_rooms: float  # of all producers together
    outside: float  # part of what waits in them that has left its SM
    weights: int  # distinct weights of ports
    share: NDArray[np.float64]  # [branches]
    burst: NDArray[np.float64]  # [kinds] bytes
    remote: NDArray[np.bool_]  # [kinds] False: bytes for the GPU's own memory, which only take their turn
    trickles: NDArray[np.bool_]  # [kinds] paced so that those of all producers stay below R
    rate: NDArray[np.float64]  # [kinds] injection without backpressure, burst / T0 unless it is paced
    level: NDArray[np.float64]
    mark: NDArray[np.int64]
    # by producer
    branch: NDArray[np.int64]
    port: NDArray[np.int64]
    flow: NDArray[np.int64]  # class of its backlog, NOWHERE without one
    offered: NDArray[np.float64]  # bytes of its bursts begun so far
    goal: NDArray[np.float64]  # of these, passed on to the shared room when its class is at ``target``
    target: NDArray[np.float64]  # work of that class
    before: NDArray[np.int64]  # neighbours in that class, by target
    after: NDArray[np.int64]
    # by port
    weight: NDArray[np.int64]  # its place among the distinct weights
    member: NDArray[np.int64]  # [ports, most members] producers, NOBODY behind the last
    sending: NDArray[np.int64]  # members with remote bytes at the head of their own room
    # by flow class
    active: NDArray[np.int64]  # members
    work: NDArray[np.float64]  # bytes passed on by one member since the class was idle
    slope: NDArray[np.float64]  # bytes/ns of one member
    first: NDArray[np.int64]  # the producer that is first at its goal
    last: NDArray[np.int64]
    live: NDArray[np.int64]  # the live classes, mark[LIVE] of them, in no order
    live_at: NDArray[np.int64]  # place of a class in ``live``
    flow_branch: NDArray[np.int64]
    flow_kind: NDArray[np.int64]
    flow_sending: NDArray[np.int64]  # sending members of each member's port
    flow_weight: NDArray[np.float64]  # of a member within its branch: its port's weight / sending members
    # by branch
    demand: NDArray[np.float64]
    granted: NDArray[np.float64]
    turn: NDArray[np.float64]  # bytes/ns of a unit of weight while the branch is limited, else infinity
    # breakpoints of the occupancy; no rows when it is not traced
    trace: NDArray[np.float64]  # [n, 2] of (ns, bytes)


def new_fluid(
    drain: DrainModel,
    burst_bytes: NDArray[np.float64],
    paced_ns: NDArray[np.float64] | float = 0.0,
    remote: NDArray[np.bool_] | bool = True,
    traced_bursts: int = 0,
) -> Fluid:
    """An empty queue.

    Args:
        drain: the path.
        burst_bytes: ``[kinds]`` of each kind of burst to come, all positive.
        paced_ns: ``[kinds]`` or one for all: least time that a burst is spread over.
        remote: ``[kinds]`` or one for all: whether a burst goes through the path, or only waits in its
            producer's own room behind those that do.
        traced_bursts: room for the occupancy's breakpoints of this many bursts.
    """
    producers, branches, kinds = drain.producers, len(drain.branch_share), burst_bytes.size
    member = _members(drain.port_of_sm)
    weights, weight_of_port = np.unique(drain.port_weight, return_inverse=True)
    classes = (branches, kinds, weights.size, member.shape[1] + 1)
    flow_branch, flow_kind, flow_weight, flow_sending = np.indices(classes).reshape(4, -1)
    flows = flow_branch.size
    # Of a burst there are a begin, the end of its T0, and up to two goals; the queue fills at most once per
    # goal, and runs empty at most once per begin.
    rows = 8 * traced_bursts + 8 if traced_bursts else 0
    level = np.zeros(9)
    free_ns = drain.free_issue_ns(burst_bytes)
    drain_rate = drain.drain_bytes_per_s / NS_PER_S
    level[CHANGE] = np.inf
    return Fluid(
        drain=drain_rate,
        capacity=max(0.0, float(drain.shared_room_bytes)),
        own_rooms=drain.own_room_bytes * producers,
        outside=drain.outside_part,
        weights=weights.size,
        share=np.asarray(drain.branch_share, np.float64),
        burst=np.asarray(burst_bytes, np.float64),
        remote=np.array(np.broadcast_to(remote, kinds), np.bool_),
        trickles=np.array(paced_ns > producers * burst_bytes / drain_rate, np.bool_),
        rate=burst_bytes / np.maximum(free_ns, paced_ns),
        level=level,
        mark=np.zeros(4, np.int64),
        branch=np.asarray(drain.branch_of_sm, np.int64),
        port=np.asarray(drain.port_of_sm, np.int64),
        flow=np.full(producers, NOWHERE),
        offered=np.zeros(producers),
        goal=np.zeros(producers),
        target=np.zeros(producers),
        before=np.full(producers, NOBODY),
        after=np.full(producers, NOBODY),
        weight=weight_of_port.astype(np.int64),
        member=member,
        sending=np.zeros(len(member), np.int64),
        active=np.zeros(flows, np.int64),
        work=np.zeros(flows),
        slope=np.zeros(flows),
        first=np.full(flows, NOBODY),
        last=np.full(flows, NOBODY),
        live=np.zeros(flows, np.int64),
        live_at=np.zeros(flows, np.int64),
        flow_branch=flow_branch.astype(np.int64),
        flow_kind=flow_kind.astype(np.int64),
        flow_sending=flow_sending.astype(np.int64),
        flow_weight=weights[flow_weight] / np.maximum(flow_sending, 1),
        demand=np.zeros(branches),
        granted=np.zeros(branches),
        turn=np.zeros(branches),
        trace=np.zeros((rows, 2)),
    )


def _members(port_of_sm: tuple[int, ...]) -> NDArray[np.int64]:
    """``[ports, most members]`` producers of each port, NOBODY behind the last."""
    ports: list[list[int]] = [[] for _ in range(max(port_of_sm) + 1)]
    for producer, port in enumerate(port_of_sm):
        ports[port].append(producer)
    member = np.full((len(ports), max(len(producers) for producers in ports)), NOBODY, np.int64)
    for row, producers in zip(member, ports, strict=True):
        row[: len(producers)] = producers
    return member


@event_kernel
def advance(fluid: Fluid, now_ns: float) -> None:
    """Integrate the state up to ``now_ns``, no later than the queue's next event."""
    level = fluid.level
    step = now_ns - level[UPDATED]
    if step <= 0.0:
        return
    for k in range(fluid.mark[LIVE]):
        flow = fluid.live[k]
        fluid.work[flow] += fluid.slope[flow] * step
    entered = level[ENTERED]
    level[ACCEPTED] += level[INFLOW] * step
    level[ENTERED] += level[ENTERING] * step
    if fluid.mark[LIMITED] == 0:
        net = level[INFLOW] - fluid.drain
        occupancy = level[OCCUPANCY] + net * step
        if occupancy <= 0.0:
            if level[OCCUPANCY] > 0.0:
                until_empty = -level[OCCUPANCY] / net
                held = _held(fluid, 0.0, entered + level[ENTERING] * until_empty)
                _trace(fluid, level[UPDATED] + until_empty, held)
            occupancy = 0.0
        level[OCCUPANCY] = min(occupancy, fluid.capacity)
    level[UPDATED] = now_ns
    held = held_bytes(fluid)
    level[PEAK] = max(level[PEAK], held)
    _trace(fluid, now_ns, held)


@event_kernel
def held_bytes(fluid: Fluid) -> float:
    """Bytes in all rooms at the time of the last event."""
    held: float = _held(fluid, fluid.level[OCCUPANCY], fluid.level[ENTERED])
    return held


@event_kernel
def _held(fluid: Fluid, occupancy: float, entered: float) -> float:
    """Bytes in all rooms, as if a producer could use another's own room.

    Args:
        occupancy: of the shared room.
        entered: bytes of the offered bursts that have entered it.
    """
    held: float = occupancy + _in_own_rooms(fluid, entered)
    return held


@event_kernel
def _in_own_rooms(fluid: Fluid, entered: float) -> float:
    in_own_rooms: float = min(max(fluid.level[OFFERED] - entered, 0.0), fluid.own_rooms)
    return in_own_rooms


@event_kernel
def _trace(fluid: Fluid, now_ns: float, occupancy: float) -> None:
    if fluid.trace.shape[0] > 0:
        row = fluid.mark[TRACED]
        fluid.trace[row, 0] = now_ns
        fluid.trace[row, 1] = occupancy
        fluid.mark[TRACED] = row + 1


@event_kernel
def offer_burst(fluid: Fluid, kind: int) -> None:
    """Count a burst that is being issued, whether or not those before it have left its producer's room."""
    if fluid.remote[kind] and not fluid.trickles[kind]:
        fluid.level[OFFERED] += fluid.burst[kind]


@event_kernel
def begin_burst(fluid: Fluid, producer: int, kind: int) -> None:
    """Pass on a burst from the time up to which the state is integrated; ``set_rates`` must follow.

    Its producer's goal is that it and those begun before, all of one kind, are passed on.
    """
    passed = passed_bytes(fluid, producer)
    if fluid.flow[producer] == NOWHERE:
        if fluid.remote[kind]:
            fluid.sending[fluid.port[producer]] += 1
            _reclass_members(fluid, fluid.port[producer])
    else:
        _leave(fluid, producer)
    fluid.offered[producer] += fluid.burst[kind]
    fluid.goal[producer] = fluid.offered[producer]
    _enter(fluid, producer, kind, fluid.offered[producer] - passed)


@event_kernel
def passed_bytes(fluid: Fluid, producer: int) -> float:
    """Bytes of a producer that are in the shared room or beyond, at the time of the last event."""
    flow = fluid.flow[producer]
    if flow == NOWHERE:
        everything: float = fluid.offered[producer]
        return everything
    passed: float = fluid.goal[producer] - (fluid.target[producer] - fluid.work[flow])
    return passed


@event_kernel
def access_wait_ns(fluid: Fluid) -> float:
    """How long an access that leaves its SM now waits: behind all remote bytes that have left theirs.

    0 where no room of the producers is known: there nothing is assumed of accesses that are no remote stores.
    """
    if fluid.own_rooms == 0.0:
        return 0.0
    in_front = fluid.level[OCCUPANCY] + fluid.outside * _in_own_rooms(fluid, fluid.level[ENTERED])
    wait_ns: float = in_front / fluid.drain
    return wait_ns


@event_kernel
def wait_for(fluid: Fluid, producer: int, position: float) -> bool:
    """Make it a producer's goal to have passed on ``position`` bytes; False if it has.

    ``set_rates`` must follow.
    """
    flow = fluid.flow[producer]
    left = position - passed_bytes(fluid, producer)
    if flow == NOWHERE or left <= 0.0:
        return False
    if position < fluid.goal[producer]:
        _leave(fluid, producer)
        fluid.goal[producer] = position
        _enter(fluid, producer, fluid.flow_kind[flow], left)
    return True


@event_kernel
def take_change(fluid: Fluid) -> int:
    """Integrate up to the queue's next event; the class whose first member is at its goal, or QUEUE_FULL."""
    cause: int = fluid.mark[CAUSE]
    advance(fluid, fluid.level[CHANGE])
    # The event's own quantity is set, not integrated, so rounding can never leave it just short.
    if cause == QUEUE_FULL:
        fluid.level[OCCUPANCY] = fluid.capacity
        fluid.level[PEAK] = max(fluid.level[PEAK], held_bytes(fluid))
    else:
        fluid.work[cause] = fluid.target[fluid.first[cause]]
    return cause


@event_kernel
def pop_arrived(fluid: Fluid, flow: int) -> int:
    """The first producer of a class if it is at its goal, else NOBODY.

    Its next goal is to pass on all it has offered; if that is done, it has left (``flow`` is NOWHERE).
    """
    if fluid.active[flow] == 0:
        return NOBODY
    producer: int = fluid.first[flow]
    if fluid.target[producer] > fluid.work[flow]:
        return NOBODY
    _leave(fluid, producer)
    left = fluid.offered[producer] - fluid.goal[producer]
    fluid.goal[producer] = fluid.offered[producer]
    if left > 0.0:
        _enter(fluid, producer, fluid.flow_kind[flow], left)
        return producer
    if fluid.remote[fluid.flow_kind[flow]]:
        fluid.sending[fluid.port[producer]] -= 1
        _reclass_members(fluid, fluid.port[producer])
    return producer


@event_kernel
def _reclass_members(fluid: Fluid, port: int) -> None:
    """Move a port's members to the classes of its new number of sending ones."""
    most = fluid.member.shape[1]
    if most == 1:
        return
    for k in range(most):
        producer = fluid.member[port, k]
        if producer == NOBODY or fluid.flow[producer] == NOWHERE:
            continue
        flow = fluid.flow[producer]
        left = fluid.target[producer] - fluid.work[flow]
        # One that has arrived too is about to be popped from where it is.
        if left > 0.0 and fluid.flow_sending[flow] != fluid.sending[port]:
            _leave(fluid, producer)
            _enter(fluid, producer, fluid.flow_kind[flow], left)


@event_kernel
def _enter(fluid: Fluid, producer: int, kind: int, left: float) -> None:
    """Put a producer with ``left`` bytes to its goal into its class, in the order of arrivals."""
    port, kinds, most = fluid.port[producer], fluid.rate.shape[0], fluid.member.shape[1]
    flow = (fluid.branch[producer] * kinds + kind) * fluid.weights + fluid.weight[port]
    flow = flow * (most + 1) + fluid.sending[port]
    if fluid.active[flow] == 0:
        fluid.work[flow] = 0.0
        fluid.live[fluid.mark[LIVE]] = flow
        fluid.live_at[flow] = fluid.mark[LIVE]
        fluid.mark[LIVE] += 1
    target = fluid.work[flow] + left
    # Whole bursts go to the end at once; only the others have to look for their place.
    before, after = fluid.last[flow], NOBODY
    while before != NOBODY and fluid.target[before] > target:
        before, after = fluid.before[before], before
    if before == NOBODY:
        fluid.first[flow] = producer
    else:
        fluid.after[before] = producer
    if after == NOBODY:
        fluid.last[flow] = producer
    else:
        fluid.before[after] = producer
    fluid.before[producer], fluid.after[producer] = before, after
    fluid.target[producer], fluid.flow[producer] = target, flow
    fluid.active[flow] += 1


@event_kernel
def _leave(fluid: Fluid, producer: int) -> None:
    """Take a producer out of its class."""
    flow = fluid.flow[producer]
    before, after = fluid.before[producer], fluid.after[producer]
    if before == NOBODY:
        fluid.first[flow] = after
    else:
        fluid.after[before] = after
    if after == NOBODY:
        fluid.last[flow] = before
    else:
        fluid.before[after] = before
    fluid.flow[producer] = NOWHERE
    fluid.active[flow] -= 1
    if fluid.active[flow] == 0:
        place = fluid.live_at[flow]
        fluid.mark[LIVE] -= 1
        moved = fluid.live[fluid.mark[LIVE]]
        fluid.live[place] = moved
        fluid.live_at[moved] = place
