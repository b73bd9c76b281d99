"""The queue against the closed forms of section 3, and against plain recomputation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulator.cases import (
    H200_PORTS,
    constant_rate,
    drains,
    h200_drain,
    paper_drain,
    reference_ends,
)
from xstage_tune.base.errors import UsageError
from xstage_tune.launches.bursts import BurstPoint
from xstage_tune.launches.streams import independent_streams
from xstage_tune.model import burst_gap
from xstage_tune.simulator.bursts import simulate_bursts
from xstage_tune.simulator.drain import DrainModel
from xstage_tune.simulator.pipeline import PipelineConfig, simulate

EXACT = 1e-9


def periodic(producers: int, burst_bytes: int, gap_ns: int, window_ns: int) -> BurstPoint:
    return BurstPoint("periodic", "peer", "st.v4", producers, burst_bytes, gap_ns, window_ns=window_ns)


@given(
    producers=st.integers(1, 148),
    kilobytes=st.integers(1, 48),
    gap_ns=st.integers(0, 20_000),
    drain_gb=st.integers(20, 900),
    capacity_mb=st.integers(1, 20),
)
@settings(deadline=None, max_examples=60)
def test_aligned_periodic_bursts_obey_the_burst_gap_law(
    producers: int, kilobytes: int, gap_ns: int, drain_gb: int, capacity_mb: int
) -> None:
    burst_bytes, rate = kilobytes * 1024, drain_gb * 1e9
    drain = DrainModel(rate, capacity_mb * 1e6, constant_rate(43.0), (0,) * producers)
    law = {
        "gap_ns": gap_ns,
        "free_issue_ns": burst_bytes / 43.0,
        "volume_bytes": producers * burst_bytes,
        "drain_bytes_per_s": rate,
    }
    period_ns = float(burst_gap.steady_period_ns(**law))
    # Filling Q takes fewer periods than it holds shortfalls per period; beyond 400 the point is too near G*.
    shortfall = law["volume_bytes"] - rate * 1e-9 * (law["free_issue_ns"] + gap_ns)
    filling = capacity_mb * 1e6 / shortfall if shortfall > 0 else 0.0
    # Equation 3 speaks of a queue that never runs empty while drain-limited (capacity bound, equation 10).
    fits = float(burst_gap.peak_outstanding_bytes(**{k: v for k, v in law.items() if k != "gap_ns"}))
    if filling > 400 or fits > capacity_mb * 1e6:
        return
    times = simulate_bursts(
        periodic(producers, burst_bytes, gap_ns, int((filling + 8) * period_ns) + 1), drain
    )
    begin = times.begin_ns[times.producer == producers - 1]
    end = times.end_ns[times.producer == producers - 1]
    assert begin[-1] - begin[-2] == pytest.approx(period_ns, rel=EXACT)
    assert end[-2] - begin[-2] == pytest.approx(float(burst_gap.issue_ns(**law)), rel=EXACT)


@given(kilobytes=st.integers(1, 256), grouped=st.booleans(), capacity_mb=st.floats(0.2, 8))
@settings(deadline=None, max_examples=60)
def test_isolated_bursts_obey_equation_7_for_any_branches(
    kilobytes: int, grouped: bool, capacity_mb: float
) -> None:
    drain = h200_drain(capacity_mb * 1e6, grouped=grouped)
    point = BurstPoint("isolated", "host", "st.v4", 132, kilobytes * 1024, 2_000_000, bursts=3)
    times = simulate_bursts(point, drain)
    last = times.end_ns.reshape(132, 3).max(axis=0) - np.arange(3) * 2_000_000
    free = float(drain.free_issue_ns(np.array([kilobytes * 1024.0]))[0])
    expected = burst_gap.isolated_issue_ns(
        free_issue_ns=free,
        volume_bytes=point.volume_bytes,
        drain_bytes_per_s=drain.drain_bytes_per_s,
        capacity_bytes=drain.capacity_bytes,
    )
    # The begins are near 4 ms, so their rounding is what a difference of times can show.
    assert last == pytest.approx(np.full(3, float(expected)), rel=EXACT)


def test_paper_burst_of_48_kib_stalls_as_equation_7_says() -> None:
    streams = independent_streams(np.arange(149), np.zeros(148), remote_bytes=48 * 1024.0)
    run = simulate(streams, paper_drain(), PipelineConfig())
    assert run.makespan_ns == pytest.approx((148 * 48 * 1024 - 4.25 * 2**20) / 717, rel=EXACT)
    assert run.peak_occupancy_bytes == 4.25 * 2**20
    assert run.drained_ns == pytest.approx(148 * 48 * 1024 / 717, rel=EXACT)


def test_saturated_ports_divide_the_drain_as_measured_on_the_h200() -> None:
    times = simulate_bursts(periodic(132, 8192, 0, 4_000_000), h200_drain())
    bursts = np.bincount(times.producer[times.begin_ns > 1e6], minlength=132)
    sms = np.bincount(H200_PORTS)[list(H200_PORTS)]
    # Each port has 1/24 of R: 4 SMs get 132/96 of the mean, 6 SMs 132/144.
    assert bursts / bursts.mean() == pytest.approx(132 / 24 / sms, rel=0.02)


def test_a_branch_that_falls_idle_leaves_its_share_to_the_other() -> None:
    drain = DrainModel(10e9, 1.0, constant_rate(100.0), (0, 1), (0.2, 0.8))
    streams = independent_streams(np.arange(3), np.zeros(2), remote_bytes=8_000.0)
    accepted = simulate(streams, drain, PipelineConfig()).times.accepted
    # 2 and 8 bytes/ns until 1,000 ns, then 10 for what is left of the first.
    assert accepted == pytest.approx([1600.0, 1000.0], rel=1e-3)


def test_a_lone_producer_of_a_port_gets_the_port_share() -> None:
    """Two ports on one branch: one with both SMs bursting, one with a single SM, which is twice as fast."""
    drain = DrainModel(10e9, 1.0, constant_rate(100.0), (0, 0, 0), (1.0,), (0, 0, 1))
    streams = independent_streams(np.arange(4), np.zeros(3), remote_bytes=10_000.0)
    accepted = simulate(streams, drain, PipelineConfig()).times.accepted
    # 5, 2.5 and 2.5 bytes/ns until 2,000 ns, then 5 each.
    assert accepted == pytest.approx([3000.0, 3000.0, 2000.0], rel=1e-3)


@given(data=st.data())
@settings(deadline=None, max_examples=150)
def test_mixed_bursts_agree_with_plain_recomputation(data: st.DataObject) -> None:
    sms = data.draw(st.integers(1, 9))
    drain = data.draw(drains(sms))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    begin, size = rng.integers(0, 4000, sms) * 1.0, rng.integers(1, 5, sms) * 4096.0
    streams = independent_streams(np.arange(sms + 1), begin, remote_bytes=size)
    run = simulate(streams, drain, PipelineConfig())
    end, peak = reference_ends(begin, size, drain)
    assert run.times.accepted == pytest.approx(end, rel=1e-8)
    assert run.peak_occupancy_bytes == pytest.approx(peak, rel=1e-8)


def test_a_path_faster_than_its_producers_never_queues() -> None:
    drain = DrainModel(np.inf, np.inf, constant_rate(43.0), (0,) * 8)
    times = simulate_bursts(periodic(8, 4096, 100, 50_000), drain)
    assert times.end_ns - times.begin_ns == pytest.approx(4096 / 43.0, rel=EXACT)


@pytest.mark.parametrize(
    "wrong",
    [
        {"drain_bytes_per_s": 0.0},
        {"capacity_bytes": -1.0},
        {"capacity_bytes": float("nan")},
        {"branch_share": (0.5, -0.5)},
        {"branch_of_sm": (0, 1)},
        {"branch_of_sm": ()},
        {"port_of_sm": (0, 2)},
        {"port_of_sm": (0,)},
        {"port_weight": (1.0,)},
        {"port_weight": (1.0, 0.0)},
    ],
)
def test_a_drain_model_refuses_impossible_figures(wrong: dict[str, object]) -> None:
    good = {
        "drain_bytes_per_s": 1e9,
        "capacity_bytes": 1e6,
        "free_issue_ns": constant_rate(1.0),
        "branch_of_sm": (0, 0),
    }
    with pytest.raises(UsageError, match="drain model"):
        DrainModel(**{**good, **wrong})  # type: ignore[arg-type]
