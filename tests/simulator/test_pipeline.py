"""Two roles joined by staging slots: stalls, dependencies, bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.simulator.cases import constant_rate, launches, paper_drain, repeated
from xstage_tune.base.errors import UsageError
from xstage_tune.launches.streams import Streams, independent_streams
from xstage_tune.model import attention, burst_gap, moe
from xstage_tune.simulator.drain import DrainModel
from xstage_tune.simulator.pipeline import PipelineConfig, PipelineRun, simulate

EXACT = 1e-9
TILE = 48 * 1024.0


def one_sm(drain_gb: float = 1000.0, capacity_bytes: float = 1e9) -> DrainModel:
    return DrainModel(drain_gb * 1e9, capacity_bytes, constant_rate(10.0), (0,))


@given(mainloop_ns=st.integers(500, 9_000), staging_ns=st.integers(0, 3_000))
@settings(deadline=None, max_examples=40)
def test_a_steady_wave_stalls_as_equation_15_says(mainloop_ns: int, staging_ns: int) -> None:
    """Aligned tiles, two slots, drain-limited: T_RS = V/R and dt = T_RS - T_L2 (equations 11 and 15)."""
    streams = replace(repeated(148, 60, mainloop_ns, TILE), staging_ns=np.full(148 * 60, float(staging_ns)))
    run = simulate(streams, paper_drain(), PipelineConfig(staging_slots=2))
    drain_ns = 148 * TILE / 717
    assert run.issue_ns.reshape(148, 60)[:, -2] == pytest.approx(drain_ns, rel=EXACT)
    expected = moe.critical_path_stall_ns(span_ns=drain_ns, cover_ns=mainloop_ns)
    assert run.stall_ns.reshape(148, 60)[:, -2] == pytest.approx(float(expected), rel=EXACT)


@pytest.mark.parametrize("mainloop_ns", [12_000, 20_000])
def test_a_mainloop_that_covers_the_drain_leaves_the_floor(mainloop_ns: int) -> None:
    run = simulate(repeated(148, 20, mainloop_ns, 24 * 1024.0), paper_drain(), PipelineConfig())
    assert run.issue_ns == pytest.approx(24 * 1024 * 760 / 32768, rel=EXACT)
    assert (run.stall_ns == 0).all()
    assert run.makespan_ns == pytest.approx(20 * mainloop_ns + 570, rel=EXACT)


@given(gap_ns=st.integers(500, 9_000), cover_ns=st.integers(0, 500))
@settings(deadline=None, max_examples=40)
def test_one_output_slot_stalls_attention_as_equation_19_says(gap_ns: int, cover_ns: int) -> None:
    """One slot: a burst blocks the next Q-loop but for its cover window (equations 18 and 19).

    Equation 18 counts backpressure only; the stall also holds T0, the floor of issue.

    It holds once the queue is full. An unlimited burst k ends with V - R*T0 + k*growth in it, and the one
    after the first that would exceed Q is steady: burst 57 must be, whose end the stall of tile 58 waits for.
    """
    drained_ns = 148 * 32768 / 717
    growth_bytes = 717 * (drained_ns - (gap_ns - cover_ns) - 760)
    missing_bytes = 4.25 * 2**20 - 717 * (drained_ns - 760)
    assume(growth_bytes <= 0 or missing_bytes <= 56 * growth_bytes)
    streams = replace(repeated(148, 60, gap_ns, 32768.0), slot_offset_ns=np.full(148 * 60, float(cover_ns)))
    run = simulate(streams, paper_drain(), PipelineConfig(staging_slots=1))
    # The next Q-loop runs for the cover while the burst issues, so what the path sees as gap is the rest.
    issue_ns = burst_gap.issue_ns(
        gap_ns=gap_ns - cover_ns,
        free_issue_ns=760.0,
        volume_bytes=148 * 32768,
        drain_bytes_per_s=717e9,
    )
    expected = attention.critical_path_overhead_ns(overhead_ns=issue_ns, cover_ns=cover_ns)
    assert run.stall_ns.reshape(148, 60)[:, -2] == pytest.approx(float(expected), rel=1e-8)


@given(gap_ns=st.integers(100, 12_000), latency_ns=st.integers(0, 3_000))
@settings(deadline=None, max_examples=40)
def test_coupled_to_completion_the_period_is_gap_plus_drain(gap_ns: int, latency_ns: int) -> None:
    """The counterfactual of section 3.5, with equation 17's latency."""
    config = PipelineConfig(staging_slots=1, completion_coupled=True, completion_latency_ns=latency_ns)
    run = simulate(repeated(148, 10, gap_ns, 32768.0), paper_drain(), config)
    period = np.diff(run.times.issue.reshape(148, 10), axis=1)
    assert period == pytest.approx(gap_ns + 148 * 32768 / 717 + latency_ns, rel=EXACT)


@given(
    launch=launches(),
    slots=st.integers(1, 3),
    coupled=st.booleans(),
    jitter_ns=st.sampled_from([0.0, 900.0]),
    local_bytes=st.sampled_from([0.0, 5000.0]),
    load_cover_ns=st.sampled_from([0.0, 300.0, np.inf]),
)
@settings(deadline=None, max_examples=150)
def test_every_run_conserves_volume_and_keeps_its_bounds(
    launch: tuple[Streams, DrainModel],
    slots: int,
    coupled: bool,
    jitter_ns: float,
    local_bytes: float,
    load_cover_ns: float,
) -> None:
    streams, drain = launch
    config = PipelineConfig(
        staging_slots=slots,
        completion_coupled=coupled,
        load_cover_ns=load_cover_ns,
        start_jitter_ns=jitter_ns,
        trace_occupancy=True,
    )
    run = simulate(streams, drain, config, local_bytes)
    volume = streams.remote_bytes.sum()
    assert run.accepted_bytes == pytest.approx(volume, rel=1e-9)
    assert 0 <= run.peak_occupancy_bytes <= drain.capacity_bytes * (1 + EXACT)
    if run.occupancy.size:
        assert run.occupancy[:, 1].min() >= 0
        assert run.occupancy[:, 1].max() == pytest.approx(run.peak_occupancy_bytes, rel=EXACT)
        slope = np.diff(run.occupancy[:, 1]) + drain.drain_bytes_per_s / 1e9 * np.diff(run.occupancy[:, 0])
        assert slope.min(initial=0.0) >= -1e-6
    compute = np.add.reduceat(streams.mainloop_ns, streams.first[:-1]).max()
    assert run.makespan_ns >= compute * (1 - EXACT)
    assert run.drained_ns >= volume / drain.drain_bytes_per_s * 1e9 * (1 - EXACT)
    floor = streams.staging_ns + np.where(
        streams.remote_bytes > 0, drain.free_issue_ns(streams.remote_bytes), 0.0
    )
    assert (run.issue_ns >= floor * (1 - 1e-8)).all()
    assert (run.times.drained >= run.times.accepted).all()
    assert (run.starved_ns >= 0).all()
    spent_ns = run.times.end - run.times.begin - run.stall_ns - run.starved_ns
    assert spent_ns == pytest.approx(streams.mainloop_ns, abs=1e-6)


@given(launch=launches())
@settings(deadline=None, max_examples=60)
def test_at_most_s_tiles_hold_a_slot(launch: tuple[Streams, DrainModel]) -> None:
    streams, drain = launch
    for slots in (1, 2):
        times = simulate(streams, drain, PipelineConfig(staging_slots=slots)).times
        taken = times.begin + streams.slot_offset_ns + times.stall
        for begin, end in zip(streams.first[:-1], streams.first[1:], strict=True):
            freed = times.freed[begin:end]
            assert (taken[begin:end][slots:] >= freed[:-slots] - 1e-6).all()
            assert (times.issue[begin:end][1:] >= freed[:-1] - 1e-6).all()


@given(launch=launches())
@settings(deadline=None, max_examples=60)
def test_without_contention_depth_never_hurts_and_coupling_never_helps(
    launch: tuple[Streams, DrainModel],
) -> None:
    """On one SM, or on a path that limits nobody, each event is a maximum of sums of earlier ones."""
    streams, drain = launch
    alone = independent_streams(
        np.array([0, streams.first[1]]),
        streams.mainloop_ns[: streams.first[1]],
        remote_bytes=streams.remote_bytes[: streams.first[1]],
    )
    unlimited = replace(drain, capacity_bytes=np.inf)
    single = replace(drain, branch_of_sm=(0,), branch_share=(1.0,), port_of_sm=(), port_weight=())
    for case, path in ((alone, single), (streams, unlimited)):
        runs = [
            simulate(case, path, PipelineConfig(staging_slots=slots)).makespan_ns for slots in (1, 2, 3, 4)
        ]
        assert (np.diff(runs) <= np.array(runs[1:]) * EXACT).all()
        coupled = simulate(case, path, PipelineConfig(staging_slots=2, completion_coupled=True)).makespan_ns
        assert coupled >= runs[1] * (1 - EXACT)


@given(tiles=st.integers(1, 20), mainloop_ns=st.integers(100, 9000), kilobytes=st.integers(1, 64))
@settings(deadline=None, max_examples=60)
def test_on_aligned_sms_depth_never_hurts_and_coupling_never_helps(
    tiles: int, mainloop_ns: int, kilobytes: int
) -> None:
    """Identical SMs stay aligned, so that they act as one."""
    streams = repeated(148, tiles, mainloop_ns, kilobytes * 1024.0)
    drain = paper_drain()
    runs = [simulate(streams, drain, PipelineConfig(staging_slots=slots)).makespan_ns for slots in (1, 2, 3)]
    assert (np.diff(runs) <= np.array(runs[1:]) * EXACT).all()
    coupled = simulate(streams, drain, PipelineConfig(completion_coupled=True)).makespan_ns
    assert coupled >= runs[1] * (1 - EXACT)


def contending(mainloop_ns: list[float], remote_bytes: list[float]) -> Streams:
    """Two SMs with half of the tiles each."""
    half = len(mainloop_ns) // 2
    first = np.array([0, half, len(mainloop_ns)])
    return independent_streams(first, np.array(mainloop_ns), remote_bytes=np.array(remote_bytes))


def test_between_contending_sms_depth_can_hurt_and_coupling_can_help() -> None:
    """Anomalies of sharing: an SM that gets ahead fills the queue before another's critical burst."""
    drain = DrainModel(1e9, 1000.0, constant_rate(100.0), (0, 0))
    streams = contending([500, 2500, 0, 3500, 500, 3000], [3000, 3000, 0, 3000, 0, 2000])
    one, two = (simulate(streams, drain, PipelineConfig(staging_slots=slots)) for slots in (1, 2))
    assert (one.makespan_ns, two.makespan_ns) == pytest.approx((10_500, 12_500))
    streams = contending([2500, 500, 3000, 1000, 1000, 1000], [2000, 1000, 0, 2000, 3000, 0])
    free, coupled = (simulate(streams, drain, PipelineConfig(completion_coupled=on)) for on in (False, True))
    assert (free.makespan_ns, coupled.makespan_ns) == pytest.approx((9500, 9000))


@given(launch=launches(), slots=st.integers(1, 3))
@settings(deadline=None, max_examples=60)
def test_end_staging_equals_one_more_accumulator(launch: tuple[Streams, DrainModel], slots: int) -> None:
    """S slots taken at the mainloop's end act as S + 1 taken at its begin, one being the accumulator."""
    streams, drain = launch
    at_end = replace(streams, slot_offset_ns=streams.mainloop_ns)
    at_begin = replace(streams, slot_offset_ns=np.zeros(streams.tiles))
    ended = simulate(at_end, drain, PipelineConfig(staging_slots=slots))
    begun = simulate(at_begin, drain, PipelineConfig(staging_slots=slots + 1))
    assert ended.makespan_ns == pytest.approx(begun.makespan_ns, rel=EXACT)


def chained(waits_on: list[int], signals: list[int], counters: int, *, at_end: bool = False) -> Streams:
    """One tile of 1 us on each SM."""
    n = len(waits_on)
    return replace(
        independent_streams(np.arange(n + 1), np.full(n, 1000.0), staging_ns=50.0),
        waits_on=np.array(waits_on, np.int32),
        signals=np.array(signals, np.int32),
        signals_at_end=np.full(n, at_end),
        counters=counters,
    )


def drain_for(streams: Streams) -> DrainModel:
    return replace(one_sm(), branch_of_sm=(0,) * streams.sms, port_of_sm=(), port_weight=())


@pytest.mark.parametrize(("at_end", "stored_ns"), [(False, 50.0), (True, 0.0)])
def test_a_tile_waits_for_all_signals_of_its_counter_and_their_latency(
    at_end: bool, stored_ns: float
) -> None:
    streams = chained([-1, -1, 0], [0, 0, -1], 1, at_end=at_end)
    run = simulate(streams, drain_for(streams), PipelineConfig(signal_ns=800.0))
    assert run.dependency_wait_ns.tolist() == [0.0, 0.0, 1800.0 + stored_ns]
    assert run.makespan_ns == 2850.0 + stored_ns


def test_a_counter_complete_but_not_yet_seen_still_delays() -> None:
    streams = replace(chained([-1, -1], [0, -1], 1), mainloop_ns=np.array([1000.0, 1200.0]))
    late = replace(
        streams,
        first=np.array([0, 1, 3]),
        mainloop_ns=np.array([1000.0, 1200.0, 10.0]),
        staging_ns=np.full(3, 50.0),
        remote_bytes=np.zeros(3),
        slot_offset_ns=np.zeros(3),
        paced_ns=np.zeros(3),
        waits_on=np.array([-1, -1, 0], np.int32),
        signals=np.array([0, -1, -1], np.int32),
        signals_at_end=np.zeros(3, bool),
    )
    run = simulate(late, drain_for(late), PipelineConfig(signal_ns=800.0))
    assert run.times.begin[2] == 1850.0


class TestRaisingCounters:
    """One SM whose tiles raise counters when stored; each is stored in 50 ns after a mainloop of 1 us."""

    RAISE_NS = 1500.0

    def run(self, signals: list[int], waits_on: list[int], slots: int, drain: DrainModel) -> PipelineRun:
        n = len(signals)
        streams = replace(
            independent_streams(np.array([0, n, n + 1]), np.full(n + 1, 1000.0), staging_ns=50.0),
            waits_on=np.array(waits_on, np.int32),
            signals=np.array([*signals, -1], np.int32),
            counters=max(signals) + 1,
        )
        drain = replace(drain, branch_of_sm=(0, 0), port_of_sm=(), port_weight=())
        config = PipelineConfig(staging_slots=slots, raise_ns=self.RAISE_NS, signal_ns=100.0)
        return simulate(streams, drain, config)

    def test_a_counter_is_seen_after_its_raise_and_the_signal(self) -> None:
        run = self.run([0], [-1, 0], 2, one_sm())
        assert run.times.raised[0] == 1050.0 + self.RAISE_NS
        assert run.times.begin[1] == 1050.0 + self.RAISE_NS + 100.0

    def test_the_next_tile_that_raises_one_is_stored_after_that(self) -> None:
        run = self.run([0, 1], [-1, -1, 1], 2, one_sm())
        assert run.times.issue[:2].tolist() == [1000.0, 1050.0 + self.RAISE_NS]
        assert run.times.freed[0] == run.times.accepted[0] == 1050.0

    def test_meanwhile_tiles_behind_it_are_stored_but_keep_their_slots(self) -> None:
        run = self.run([0, -1, -1], [-1, -1, -1, 0], 2, one_sm())
        assert run.times.accepted[:2].tolist() == [1050.0, 2050.0]
        assert run.times.freed[1] == 1050.0 + self.RAISE_NS
        # The third tile had the first one's slot.
        assert run.stall_ns[:3].tolist() == [0.0, 0.0, 0.0]
        assert run.makespan_ns == 1050.0 + self.RAISE_NS + 100.0 + 1050.0

    def test_with_one_slot_the_mainloop_waits_for_the_raise(self) -> None:
        run = self.run([0, -1, -1], [-1, -1, -1, 0], 1, one_sm())
        assert run.times.begin[1] == 1000.0
        assert run.stall_ns[:3].tolist() == [0.0, 50.0, self.RAISE_NS - 1050.0 + 50.0]


@pytest.mark.parametrize(
    ("own_room_bytes", "sm_room_bytes", "waits_ns"),
    [
        (0.0, 0.0, 0.0),  # unknown, so nothing is assumed
        (100.0, 0.0, 150.0),
        (100.0, 25.0, 100.0 + 0.75 * 50.0),
        (100.0, 100.0, 100.0),  # all of the own room is inside the SM
    ],
)
def test_a_counter_is_raised_behind_the_bytes_that_have_left_their_sms(
    own_room_bytes: float, sm_room_bytes: float, waits_ns: float
) -> None:
    """Half of another SM's 300 bytes are left at 150 ns: 100 in the shared room, 50 in the SM's own."""
    streams = replace(
        independent_streams(np.arange(3), np.array([0.0, 0.0]), remote_bytes=np.array([300.0, 0.0])),
        signals=np.array([-1, 0], np.int32),
        counters=1,
    )
    late = replace(streams, mainloop_ns=np.array([0.0, 150.0]))
    drain = DrainModel(
        1e9,
        300.0,
        constant_rate(1e6),
        (0, 0),
        own_room_bytes=own_room_bytes,
        sm_room_bytes=sm_room_bytes,
    )
    run = simulate(late, drain, PipelineConfig(raise_ns=10.0))
    assert run.times.raised[1] == pytest.approx(150.0 + waits_ns + 10.0, rel=1e-3)


def test_who_polls_a_counter_sees_it_half_an_accesss_wait_after_it_is_complete() -> None:
    """It is raised at 50 ns: 100 bytes are in the shared room, and what is inside the SM does not count."""
    streams = replace(
        independent_streams(np.arange(4), np.zeros(3), remote_bytes=np.array([300.0, 0.0, 0.0])),
        signals=np.array([-1, 0, -1], np.int32),
        signals_at_end=np.array([False, True, False]),
        waits_on=np.array([-1, -1, 0], np.int32),
        counters=1,
    )
    drain = DrainModel(1e9, 400.0, constant_rate(1e6), (0, 0, 0), own_room_bytes=100.0, sm_room_bytes=100.0)
    late = replace(streams, mainloop_ns=np.array([0.0, 50.0, 0.0]))
    run = simulate(late, drain, PipelineConfig(signal_ns=7.0))
    assert run.times.begin[2] == pytest.approx(50.0 + 100.0 / 2 + 7.0)


def test_a_deadlocked_order_names_the_tile_that_waits() -> None:
    streams = replace(chained([1, 0], [0, 1], 2))
    with pytest.raises(UsageError, match=r"deadlocks: 2 of 2 tiles .* SM 0 waits at tile 0 for counter 1"):
        simulate(streams, drain_for(streams), PipelineConfig())


def test_sms_without_tiles_and_launches_without_any_are_fine() -> None:
    streams = independent_streams(np.array([0, 0, 1, 1]), np.array([10.0]))
    assert simulate(streams, drain_for(streams), PipelineConfig()).makespan_ns == 10.0
    nothing = independent_streams(np.array([0, 0]), np.empty(0))
    run = simulate(nothing, one_sm(), PipelineConfig(trace_occupancy=True))
    assert run.makespan_ns == run.drained_ns == 0.0


def test_jitter_is_seeded() -> None:
    streams = repeated(148, 6, 4000.0, TILE)
    config = PipelineConfig(start_jitter_ns=1000.0, mainloop_jitter_ns=200.0, seed=3)
    first, again = (simulate(streams, paper_drain(), config) for _ in range(2))
    other = simulate(streams, paper_drain(), replace(config, seed=4))
    assert np.array_equal(first.times.freed, again.times.freed)
    assert first.makespan_ns != other.makespan_ns


@pytest.mark.parametrize(
    "wrong",
    [
        {"mainloop_ns": np.array([np.nan])},
        {"remote_bytes": np.array([-1.0])},
        {"staging_ns": np.zeros(2)},
        {"slot_offset_ns": np.array([11.0])},
        {"paced_ns": np.array([-1.0])},
        {"waits_on": np.array([0], np.int32)},
        {"signals": np.array([-2], np.int32)},
    ],
)
def test_streams_refuse_impossible_columns(wrong: dict[str, object]) -> None:
    streams = independent_streams(np.array([0, 1]), np.array([10.0]))
    with pytest.raises(UsageError, match="tile streams"):
        replace(streams, **wrong)  # type: ignore[arg-type]


def test_configs_refuse_impossible_figures() -> None:
    with pytest.raises(UsageError, match="staging slots"):
        PipelineConfig(staging_slots=0)
    with pytest.raises(UsageError, match="latencies"):
        PipelineConfig(signal_ns=float("nan"))
    with pytest.raises(UsageError, match="148 producers"):
        simulate(repeated(2, 1, 10.0, 10.0), paper_drain(), PipelineConfig())
