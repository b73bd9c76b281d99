"""Paths, random launches and an independent reference for the simulator's tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from xstage_tune.launches.streams import Streams, independent_streams
from xstage_tune.simulator.drain import DrainModel

Floats = NDArray[np.float64]

#: Port of each of the 132 SMs of an H200: twelve ports of 6 or 4 SMs on each of two branches.
H200_PORTS = tuple(port for port, sms in enumerate(2 * ((6,) * 9 + (4,) * 3)) for _ in range(sms))


def constant_rate(bytes_per_ns: float) -> Callable[[Floats], Floats]:
    """T0 in proportion to bytes."""

    def free_issue_ns(burst_bytes: Floats) -> Floats:
        return burst_bytes / bytes_per_ns

    return free_issue_ns


def paper_drain(producers: int = 148) -> DrainModel:
    """The paper's platform: R = 717 GB/s, Q = 4.25 MiB, T0(32 KiB) = 0.76 us."""
    return DrainModel(717e9, 4.25 * 2**20, constant_rate(32768 / 760), (0,) * producers)


def h200_issue_ns(burst_bytes: Floats) -> Floats:
    """T0 on the H200's host path: 80 ns for 2 KB, 530 ns for 32 KB."""
    return 80 + (np.asarray(burst_bytes) - 2048) * (530 - 80) / (32768 - 2048)


def h200_drain(capacity_bytes: float = 4e6, *, grouped: bool = True) -> DrainModel:
    """The H200's host path with all 132 SMs."""
    if grouped:
        branches = tuple(port // 12 for port in H200_PORTS)
        return DrainModel(52.6e9, capacity_bytes, h200_issue_ns, branches, (0.5, 0.5), H200_PORTS)
    return DrainModel(52.6e9, capacity_bytes, h200_issue_ns, (0,) * 132)


def repeated(sms: int, tiles: int, mainloop_ns: float, remote_bytes: float) -> Streams:
    """``sms`` identical SMs of identical tiles."""
    first = np.arange(sms + 1) * tiles
    return independent_streams(first, np.full(sms * tiles, mainloop_ns), remote_bytes=remote_bytes)


@st.composite
def launches(draw: st.DrawFn, most_sms: int = 6) -> tuple[Streams, DrainModel]:
    """A few SMs with mixed tiles over a path with branches and ports."""
    sms = draw(st.integers(1, most_sms))
    tiles = draw(st.lists(st.integers(1, 7), min_size=sms, max_size=sms))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    first = np.concatenate(([0], np.cumsum(tiles)))
    n = int(first[-1])
    mainloop_ns = rng.integers(1, 40, n) * 100.0
    streams = independent_streams(
        first,
        mainloop_ns,
        staging_ns=rng.integers(0, 3, n) * 70.0,
        remote_bytes=rng.integers(0, 4, n) * 8192.0,
        slot_offset_ns=mainloop_ns * rng.integers(0, 3, n) / 2,
    )
    return streams, draw(drains(sms, own_rooms=True))


@st.composite
def drains(draw: st.DrawFn, sms: int, own_rooms: bool = False) -> DrainModel:
    """A path of ``sms`` producers, usually one that limits them; with ``own_rooms`` often with some."""
    branches = draw(st.integers(1, 3))
    port_sms = draw(st.integers(1, 3))
    port_of_sm = tuple(sm // port_sms for sm in range(sms))
    ports = port_of_sm[-1] + 1
    branch_of_port = draw(st.lists(st.integers(0, branches - 1), min_size=ports, max_size=ports))
    shares = np.array(draw(st.lists(st.integers(1, 4), min_size=branches, max_size=branches)), float)
    capacity_bytes = draw(st.integers(1, 12)) * 4096.0
    own_part = draw(st.sampled_from([0.0, 0.5, 0.9, 1.0])) if own_rooms else 0.0
    return DrainModel(
        drain_bytes_per_s=draw(st.integers(4, 90)) * 1e9,
        capacity_bytes=capacity_bytes,
        own_room_bytes=own_part * capacity_bytes / sms,
        free_issue_ns=lambda size: 30.0 + size / 60.0,
        branch_of_sm=tuple(branch_of_port[port] for port in port_of_sm),
        branch_share=tuple((shares / shares.sum()).tolist()),
        port_of_sm=port_of_sm,
        port_weight=tuple(draw(st.sampled_from([0.5, 1.0, 2.0])) for _ in range(ports)),
    )


def reference_ends(begin_ns: Floats, burst_bytes: Floats, drain: DrainModel) -> tuple[Floats, float]:
    """Ends of one burst of each producer, and the peak occupancy, by plain recomputation at every event."""
    rate = burst_bytes / drain.free_issue_ns(burst_bytes)
    drained = drain.drain_bytes_per_s / 1e9
    left, end = burst_bytes.copy(), np.full(begin_ns.size, np.nan)
    now = queue = peak = 0.0
    while np.isnan(end).any():
        active = (begin_ns <= now) & np.isnan(end)
        inject = np.where(active, rate, 0.0)
        if queue >= drain.capacity_bytes and inject.sum() > drained:
            inject = _shared(np.flatnonzero(active), rate, drain)
        net = inject.sum() - drained
        later = begin_ns[begin_ns > now]
        steps = [*(left[active] / inject[active]), *(later[:1] if later.size == 0 else [later.min() - now])]
        if net > 1e-9 and queue < drain.capacity_bytes:
            steps.append((drain.capacity_bytes - queue) / net)
        step = min(steps)
        left -= inject * step
        queue = min(drain.capacity_bytes, max(0.0, queue + net * step))
        if drain.capacity_bytes - queue < 1e-7:
            queue = drain.capacity_bytes
        peak = max(peak, queue)
        now += step
        end[active & (left <= 1e-7)] = now
    return end, peak


def _shared(active: NDArray[np.int64], rate: Floats, drain: DrainModel) -> Floats:
    """Max-min fair rates by bisection of the water level, branches first and bursts within them."""
    branch = np.array(drain.branch_of_sm)[active]
    port = np.array(drain.port_of_sm)[active]
    weight = np.array([drain.port_weight[p] / np.count_nonzero(port == p) for p in port])
    share = np.array(drain.branch_share)
    demand = np.bincount(branch, rate[active], share.size)
    grant = _filled(drain.drain_bytes_per_s / 1e9, share, demand)
    rates = np.zeros(rate.size)
    for p in np.unique(branch):
        mine = branch == p
        rates[active[mine]] = _filled(grant[p], weight[mine], rate[active][mine])
    return rates


def _filled(total: float, weight: Floats, most: Floats) -> Floats:
    if most.sum() <= total:
        return most
    low, high = 0.0, float((most / weight).max())
    for _ in range(200):
        middle = (low + high) / 2
        if np.minimum(most, weight * middle).sum() < total:
            low = middle
        else:
            high = middle
    return np.minimum(most, weight * high)
