"""The shared path as a fluid queue: exact rates, occupancy and burst ends (see the package docstring).

Bytes and ns throughout; rates in bytes/ns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xstage_tune.devices.simulator.drain import NS_PER_S, DrainModel
from xstage_tune.devices.simulator.jit import event_kernel

# Slots of ``Fluid.level``.
OCCUPANCY = 0  # bytes in the queue at UPDATED
ACCEPTED = 1  # bytes accepted up to UPDATED
PEAK = 2  # largest occupancy up to UPDATED
INFLOW = 3  # accepted bytes/ns since UPDATED
UPDATED = 4  # ns: time up to which the state is integrated
CHANGE = 5  # ns: next event of the queue, infinity for none

# Slots of ``Fluid.mark``.
LIVE = 0  # number of live flow classes
LIMITED = 1  # 1 while the queue is full and limits the bursts
CAUSE = 2  # flow class whose first burst ends at CHANGE, or QUEUE_FULL
TRACED = 3  # breakpoints written

QUEUE_FULL = -1
NOBODY = -1


class Fluid(NamedTuple):
    """State of the queue. Flow class of port p and size s: ``p * sizes + s``."""

    drain: float  # R
    capacity: float  # Q(K)
    share: NDArray[np.float64]  # [ports]
    burst: NDArray[np.float64]  # [sizes] bytes
    rate: NDArray[np.float64]  # [sizes] injection without backpressure, burst / T0
    level: NDArray[np.float64]
    mark: NDArray[np.int64]
    # by flow class
    active: NDArray[np.int64]  # bursts being injected
    work: NDArray[np.float64]  # bytes injected by one member since the class was idle
    slope: NDArray[np.float64]  # bytes/ns of one member
    first: NDArray[np.int32]  # producer of the burst that ends first
    last: NDArray[np.int32]
    live: NDArray[np.int32]  # the live classes, mark[LIVE] of them, in no order
    live_at: NDArray[np.int32]  # place of a class in ``live``
    # by producer
    following: NDArray[np.int32]  # next of its class
    target: NDArray[np.float64]  # work of its class at which its burst ends
    # by port
    demand: NDArray[np.float64]
    granted: NDArray[np.float64]
    # breakpoints of the occupancy; no rows when it is not traced
    trace: NDArray[np.float64]  # [n, 2] of (ns, bytes)


def new_fluid(drain: DrainModel, burst_bytes: NDArray[np.float64], traced_bursts: int = 0) -> Fluid:
    """An empty queue.

    Args:
        drain: the path.
        burst_bytes: ``[sizes]`` distinct sizes of the bursts to come, all positive.
        traced_bursts: room for the occupancy's breakpoints of this many bursts.
    """
    ports, sizes, producers = len(drain.group_share), burst_bytes.size, len(drain.group_of_sm)
    classes = ports * sizes
    # A burst begins and ends once, fills the queue at most once per end, and lets it run empty at
    # most once per begin.
    rows = 4 * traced_bursts + 4 if traced_bursts else 0
    level = np.zeros(6)
    level[CHANGE] = np.inf
    return Fluid(
        drain=drain.drain_bytes_per_s / NS_PER_S,
        capacity=float(drain.capacity_bytes),
        share=np.asarray(drain.group_share, np.float64),
        burst=np.asarray(burst_bytes, np.float64),
        rate=burst_bytes / drain.free_issue_ns(burst_bytes),
        level=level,
        mark=np.zeros(4, np.int64),
        active=np.zeros(classes, np.int64),
        work=np.zeros(classes),
        slope=np.zeros(classes),
        first=np.full(classes, NOBODY, np.int32),
        last=np.full(classes, NOBODY, np.int32),
        live=np.zeros(classes, np.int32),
        live_at=np.zeros(classes, np.int32),
        following=np.full(producers, NOBODY, np.int32),
        target=np.zeros(producers),
        demand=np.zeros(ports),
        granted=np.zeros(ports),
        trace=np.zeros((rows, 2)),
    )


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
    level[ACCEPTED] += level[INFLOW] * step
    if fluid.mark[LIMITED] == 0:
        net = level[INFLOW] - fluid.drain
        after = level[OCCUPANCY] + net * step
        if after <= 0.0:
            if level[OCCUPANCY] > 0.0:
                _trace(fluid, level[UPDATED] - level[OCCUPANCY] / net, 0.0)
            after = 0.0
        level[OCCUPANCY] = min(after, fluid.capacity)
        level[PEAK] = max(level[PEAK], level[OCCUPANCY])
    level[UPDATED] = now_ns
    _trace(fluid, now_ns, level[OCCUPANCY])


@event_kernel
def _trace(fluid: Fluid, now_ns: float, occupancy: float) -> None:
    if fluid.trace.shape[0] > 0:
        row = fluid.mark[TRACED]
        fluid.trace[row, 0] = now_ns
        fluid.trace[row, 1] = occupancy
        fluid.mark[TRACED] = row + 1


@event_kernel
def begin_burst(fluid: Fluid, producer: int, port: int, size: int) -> None:
    """Add a burst at the time up to which the state is integrated; :func:`set_rates` must follow."""
    flow = port * fluid.rate.shape[0] + size
    if fluid.active[flow] == 0:
        fluid.work[flow] = 0.0
        fluid.first[flow] = producer
        fluid.live[fluid.mark[LIVE]] = flow
        fluid.live_at[flow] = fluid.mark[LIVE]
        fluid.mark[LIVE] += 1
    else:
        fluid.following[fluid.last[flow]] = producer
    fluid.last[flow] = producer
    fluid.following[producer] = NOBODY
    fluid.target[producer] = fluid.work[flow] + fluid.burst[size]
    fluid.active[flow] += 1


@event_kernel
def take_change(fluid: Fluid) -> int:
    """Integrate up to the queue's next event; returns the flow class whose first burst ended, or QUEUE_FULL."""
    cause = fluid.mark[CAUSE]
    advance(fluid, fluid.level[CHANGE])
    # The event's own quantity is set, not integrated, so rounding can never leave it just short.
    if cause == QUEUE_FULL:
        fluid.level[OCCUPANCY] = fluid.capacity
        fluid.level[PEAK] = fluid.capacity
    else:
        fluid.work[cause] = fluid.target[fluid.first[cause]]
    return cause


@event_kernel
def pop_ended(fluid: Fluid, flow: int) -> int:
    """Remove the first burst of a class if it has ended; its producer, else NOBODY."""
    if fluid.active[flow] == 0:
        return NOBODY
    producer = fluid.first[flow]
    if fluid.target[producer] > fluid.work[flow]:
        return NOBODY
    fluid.first[flow] = fluid.following[producer]
    fluid.active[flow] -= 1
    if fluid.active[flow] == 0:
        place = fluid.live_at[flow]
        fluid.mark[LIVE] -= 1
        moved = fluid.live[fluid.mark[LIVE]]
        fluid.live[place] = moved
        fluid.live_at[moved] = place
    return producer


@event_kernel
def set_rates(fluid: Fluid) -> None:
    """Set every class's rate for the bursts now active, and find the queue's next event."""
    level, mark = fluid.level, fluid.mark
    sizes = fluid.rate.shape[0]
    fluid.demand[:] = 0.0
    total = 0.0
    for k in range(mark[LIVE]):
        flow = fluid.live[k]
        own = fluid.rate[flow % sizes]
        fluid.slope[flow] = own
        fluid.demand[flow // sizes] += fluid.active[flow] * own
        total += fluid.active[flow] * own
    limited = total > fluid.drain and level[OCCUPANCY] >= fluid.capacity
    mark[LIMITED] = 1 if limited else 0
    level[INFLOW] = fluid.drain if limited else total
    if limited:
        _grant_ports(fluid)
        for port in range(fluid.share.shape[0]):
            if fluid.granted[port] < fluid.demand[port]:
                _grant_bursts(fluid, port)
    _find_change(fluid)


@event_kernel
def _grant_ports(fluid: Fluid) -> None:
    """Divide R among the ports by share, none above its demand (max-min fair)."""
    left, weight = fluid.drain, 0.0
    for port in range(fluid.share.shape[0]):
        fluid.granted[port] = -1.0 if fluid.demand[port] > 0.0 else 0.0
        if fluid.demand[port] > 0.0:
            weight += fluid.share[port]
    settled = True
    while settled:
        settled = False
        for port in range(fluid.share.shape[0]):
            if fluid.granted[port] < 0.0 and fluid.demand[port] * weight <= left * fluid.share[port]:
                fluid.granted[port] = fluid.demand[port]
                left -= fluid.demand[port]
                weight -= fluid.share[port]
                settled = True
    for port in range(fluid.share.shape[0]):
        if fluid.granted[port] < 0.0:
            fluid.granted[port] = left * fluid.share[port] / weight


@event_kernel
def _grant_bursts(fluid: Fluid, port: int) -> None:
    """Divide a port's grant equally among its bursts, none above its own rate."""
    sizes = fluid.rate.shape[0]
    left, count = fluid.granted[port], 0
    for k in range(fluid.mark[LIVE]):
        flow = fluid.live[k]
        if flow // sizes == port:
            count += fluid.active[flow]
            fluid.slope[flow] = -1.0
    settled = True
    while settled:
        settled = False
        for k in range(fluid.mark[LIVE]):
            flow = fluid.live[k]
            own = fluid.rate[flow % sizes]
            if flow // sizes == port and fluid.slope[flow] < 0.0 and own * count <= left:
                fluid.slope[flow] = own
                left -= fluid.active[flow] * own
                count -= fluid.active[flow]
                settled = True
    for k in range(fluid.mark[LIVE]):
        flow = fluid.live[k]
        if fluid.slope[flow] < 0.0:
            fluid.slope[flow] = left / count


@event_kernel
def _find_change(fluid: Fluid) -> None:
    level, mark = fluid.level, fluid.mark
    after, cause = np.inf, QUEUE_FULL
    if mark[LIMITED] == 0 and level[INFLOW] > fluid.drain:
        after = (fluid.capacity - level[OCCUPANCY]) / (level[INFLOW] - fluid.drain)
    for k in range(mark[LIVE]):
        flow = fluid.live[k]
        until_end = (fluid.target[fluid.first[flow]] - fluid.work[flow]) / fluid.slope[flow]
        if until_end <= after:
            after, cause = max(until_end, 0.0), flow
    level[CHANGE] = level[UPDATED] + after
    mark[CAUSE] = cause
