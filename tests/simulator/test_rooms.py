"""Rooms in which outstanding bytes wait: how Q is divided, and what that does to bursts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulator.cases import constant_rate, h200_drain
from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import STORE_FLAVOURS
from xstage_tune.launches.bursts import BurstPoint
from xstage_tune.launches.streams import independent_streams
from xstage_tune.model import burst_gap
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.rooms import shared_room_bytes, sm_room_bytes
from xstage_tune.platforms.schema import CapacityPoint
from xstage_tune.simulator.bursts import simulate_bursts
from xstage_tune.simulator.drain import DrainModel, drain_model
from xstage_tune.simulator.pipeline import PipelineConfig, PipelineRun, simulate

EXACT = 1e-9
H200 = load_platform("h200-host")


def own_rooms(drain: DrainModel, part: float) -> DrainModel:
    """A path of which ``part`` of Q is in the producers' own rooms."""
    return replace(drain, own_room_bytes=part * drain.capacity_bytes / drain.producers)


def one_sm(
    remote_bytes: list[float], local_bytes: list[float], own_room_bytes: float, shared_bytes: float
) -> PipelineRun:
    """Tiles of one SM, all ready at once, on a path that drains 1 byte/ns and takes 100 bytes/ns.

    Local bytes are taken at the same rate; their time is that of staging.
    """
    drain = DrainModel(
        1e9, own_room_bytes + shared_bytes, constant_rate(100.0), (0,), own_room_bytes=own_room_bytes
    )
    tiles = len(remote_bytes)
    local = np.array(local_bytes)
    streams = independent_streams(
        np.array([0, tiles]), np.zeros(tiles), staging_ns=local / 100, remote_bytes=np.array(remote_bytes)
    )
    return simulate(streams, drain, PipelineConfig(staging_slots=tiles), local)


class TestTheDivisionOfQ:
    def test_the_shared_room_is_what_does_not_grow_with_the_producers(self) -> None:
        """Rooms of SMs, pairs and ports put together as the hardware spreads producers over them."""
        ports = len(H200.arbitration.groups) if H200.arbitration else 0
        points = tuple(
            CapacityPoint(
                flavour="st.v4",
                producers=k,
                bytes=500e3 + 20e3 * min(k, ports) + 13e3 * min(k, 66) + 15e3 * k,
                knee_reached=True,
                source="made up",
            )
            for k in (8, 16, 32, 66, 99, 132)
        )
        platform = H200.model_copy(update={"capacity": points, "capacity_law": ()})
        assert shared_room_bytes(platform, "st.v4") == pytest.approx(500e3, rel=1e-6)
        drain = drain_model(platform, producers=132)
        assert drain.shared_room_bytes == pytest.approx(500e3, rel=1e-6)

    def test_both_flavours_of_the_h200_share_a_room_of_about_the_same_size(self) -> None:
        """It lies behind the SMs, where nothing tells how a byte was stored."""
        sizes = [shared_room_bytes(H200, flavour) for flavour in ("st.v4", "tma")]
        assert sizes[0] == pytest.approx(sizes[1], rel=0.25)

    def test_knees_at_fewer_than_three_producer_counts_leave_all_of_q_shared(self) -> None:
        paper = load_platform("paper-nvlink5")
        assert shared_room_bytes(paper, "st.v4") == np.inf
        drain = drain_model(paper)
        assert (drain.own_room_bytes, drain.shared_room_bytes) == (0.0, drain.capacity_bytes)

    def test_own_rooms_larger_than_q_are_refused(self) -> None:
        with pytest.raises(UsageError, match="own rooms must be part of Q"):
            replace(h200_drain(1e6), own_room_bytes=1e6)

    def test_a_room_inside_the_sm_larger_than_the_own_one_is_refused(self) -> None:
        with pytest.raises(UsageError, match="an SM's room must be part"):
            replace(h200_drain(1e6), own_room_bytes=1e3, sm_room_bytes=2e3)

    def test_register_stores_wait_inside_the_sm_and_bulk_copies_do_not(self) -> None:
        """It is a room of the SM, so it is about the same on both paths of a GPU."""
        sizes = [sm_room_bytes(load_platform(name), "st.v4") for name in ("h200-host", "h200-peer")]
        assert sizes[0] == pytest.approx(sizes[1], rel=0.25)
        for flavour in STORE_FLAVOURS:
            drain = drain_model(H200, flavour=flavour)
            inside = sizes[0] if flavour == "st.v4" else 0.0
            assert drain.sm_room_bytes == inside < drain.own_room_bytes

    def test_one_flavour_alone_tells_nothing_of_a_room_inside_the_sm(self) -> None:
        alone = tuple(point for point in H200.capacity if point.flavour == "st.v4")
        platform = H200.model_copy(update={"capacity": alone})
        assert sm_room_bytes(platform, "st.v4") == 0.0


@given(kilobytes=st.integers(1, 128), part=st.floats(0.0, 1.0), capacity_mb=st.floats(0.5, 8))
@settings(deadline=None, max_examples=40)
def test_isolated_bursts_obey_equation_7_however_q_is_divided(
    kilobytes: int, part: float, capacity_mb: float
) -> None:
    drain = own_rooms(h200_drain(capacity_mb * 1e6, grouped=False), part)
    point = BurstPoint("isolated", "host", "st.v4", 132, kilobytes * 1024, 2_000_000, bursts=1)
    times = simulate_bursts(point, drain)
    expected = burst_gap.isolated_issue_ns(
        free_issue_ns=float(drain.free_issue_ns(np.array([kilobytes * 1024.0]))[0]),
        volume_bytes=point.volume_bytes,
        drain_bytes_per_s=drain.drain_bytes_per_s,
        capacity_bytes=drain.capacity_bytes,
    )
    assert times.end_ns.max() == pytest.approx(float(expected), rel=1e-6)


def test_saturated_periodic_bursts_drain_at_r_with_own_rooms() -> None:
    drain = own_rooms(h200_drain(grouped=False), 0.8)
    point = BurstPoint("periodic", "host", "st.v4", 132, 8192, 0, window_ns=6_000_000)
    times = simulate_bursts(point, drain)
    late = times.begin_ns > 2e6
    counted = np.bincount(times.producer[late], minlength=132)
    period_ns = (times.begin_ns[late].max() - times.begin_ns[late].min()) / (counted.max() - 1)
    assert period_ns == pytest.approx(132 * 8192 / drain.drain_bytes_per_s * 1e9, rel=0.01)


class TestPorts:
    """Two SMs: one stores 1,000 remote bytes, the other 300 local ones; own rooms hold 100 bytes."""

    @pytest.mark.parametrize(("ports", "accepted_ns"), [((0, 0), 200.0), ((0, 1), 3.0)])
    def test_local_bytes_take_turns_with_the_remote_ones_of_their_port(
        self, ports: tuple[int, ...], accepted_ns: float
    ) -> None:
        drain = DrainModel(
            1e9, 200.0, constant_rate(100.0), (0, 0), port_of_sm=ports, own_room_bytes=100.0 - 1e-6
        )
        local = np.array([0.0, 300.0])
        streams = independent_streams(
            np.arange(3), np.zeros(2), staging_ns=local / 100, remote_bytes=np.array([1000.0, 0.0])
        )
        run = simulate(streams, drain, PipelineConfig(), local)
        # A byte of the one for a byte of the other, of which 200 must have gone.
        assert run.times.accepted == pytest.approx([900.0, accepted_ns], rel=1e-4)

    def test_a_port_whose_members_send_nothing_lets_local_bytes_pass(self) -> None:
        drain = DrainModel(1e9, 200.0, constant_rate(100.0), (0, 0), port_of_sm=(0, 0), own_room_bytes=100.0)
        local = np.array([5000.0, 5000.0])
        streams = independent_streams(np.arange(3), np.zeros(2), staging_ns=local / 100)
        run = simulate(streams, drain, PipelineConfig(), local)
        assert run.times.accepted == pytest.approx([50.0, 50.0])


class TestOneSm:
    def test_a_burst_that_fits_its_rooms_takes_t0(self) -> None:
        run = one_sm([1000.0], [0.0], own_room_bytes=900.0, shared_bytes=100.0)
        assert run.times.accepted == pytest.approx([10.0])
        # All of it leaves at R, and is gone only then.
        assert run.times.drained == pytest.approx([1000.0])

    def test_what_exceeds_the_rooms_waits_for_the_path(self) -> None:
        run = one_sm([1500.0], [0.0], own_room_bytes=900.0, shared_bytes=100.0)
        assert run.times.accepted == pytest.approx([500.0])

    def test_local_bytes_wait_behind_remote_ones(self) -> None:
        """The second tile's 600 local bytes find 800 of 1,000 taken by the first tile's remote bytes."""
        run = one_sm([800.0, 0.0, 100.0], [0.0, 0.0, 600.0], own_room_bytes=1000.0, shared_bytes=1e-6)
        # 800 + 600 + 100 bytes in front of the head at 500.
        assert run.times.accepted[2] == pytest.approx(500.0, rel=1e-6)

    def test_local_bytes_at_the_head_leave_as_they_are_stored(self) -> None:
        run = one_sm([100.0], [5000.0], own_room_bytes=200.0, shared_bytes=1e-6)
        assert run.times.accepted == pytest.approx([50.0 + 1.0])

    def test_a_tile_that_ends_in_local_bytes_needs_the_remote_ones_before_gone(self) -> None:
        """The 300 remote bytes of the first tile leave first, then all but 190 of its own local ones."""
        run = one_sm([300.0, 10.0], [0.0, 5000.0], own_room_bytes=200.0, shared_bytes=1e-6)
        assert run.times.accepted[1] == pytest.approx(300.0 + 48.1, rel=1e-4)

    def test_a_tile_without_remote_bytes_waits_behind_those_before(self) -> None:
        run = one_sm([300.0, 0.0], [0.0, 5000.0], own_room_bytes=200.0, shared_bytes=1e-6)
        assert run.times.accepted == pytest.approx([100.0, 300.0 + 48.0], rel=1e-4)

    def test_each_burst_has_drained_at_its_own_time(self) -> None:
        """The first is long gone when the second begins; a tile without one is done when it is accepted."""
        drain = DrainModel(1e9, 1000.0, constant_rate(100.0), (0,), own_room_bytes=900.0)
        streams = independent_streams(
            np.array([0, 3]), np.full(3, 5000.0), remote_bytes=np.array([500.0, 0.0, 500.0])
        )
        run = simulate(streams, drain, PipelineConfig())
        assert run.times.drained == pytest.approx([5500.0, 10_000.0, 15_500.0], rel=1e-3)

    def test_coupled_to_completion_each_tile_waits_until_its_bytes_are_gone(self) -> None:
        drain = DrainModel(1e9, 1000.0, constant_rate(100.0), (0,), own_room_bytes=900.0)
        streams = independent_streams(np.array([0, 2]), np.zeros(2), remote_bytes=500.0)
        config = PipelineConfig(staging_slots=2, completion_coupled=True, completion_latency_ns=50.0)
        run = simulate(streams, drain, config)
        assert run.times.freed == pytest.approx([550.0, 1100.0], rel=0.01)
        assert (run.times.drained >= run.times.accepted).all()
