"""Mainloops whose operands wait behind stores: in their SM's own room, then with all that is outstanding."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simulator.cases import constant_rate
from xstage_tune.families.binding import default_config
from xstage_tune.families.workload_files import load_workload
from xstage_tune.launches.streams import independent_streams
from xstage_tune.platforms.loader import load_platform
from xstage_tune.simulator.drain import DrainModel
from xstage_tune.simulator.fused_kernels import SimulatedKernels
from xstage_tune.simulator.pipeline import PipelineConfig, PipelineRun, simulate

MAINLOOP_NS = 1000.0
#: A burst of 600 bytes in 10 ns over a path of 1 byte/ns, of which the shared room takes 100 at once: the own
#: room is empty 500 ns after the burst's begin, and 490 after its last byte was issued. Loads return another
#: 100 ns later, when the shared room has drained.
BURST_BYTES, SHARED_BYTES = 600.0, 100.0


def two_tiles(
    load_cover_ns: float, own_room_bytes: float = 900.0, slot_offset_ns: float = 0.0
) -> PipelineRun:
    drain = DrainModel(
        1e9, own_room_bytes + SHARED_BYTES, constant_rate(60.0), (0,), own_room_bytes=own_room_bytes
    )
    streams = independent_streams(
        np.array([0, 2]), np.full(2, MAINLOOP_NS), remote_bytes=BURST_BYTES, slot_offset_ns=slot_offset_ns
    )
    return simulate(streams, drain, PipelineConfig(staging_slots=2, load_cover_ns=load_cover_ns))


def test_a_mainloop_stops_from_where_its_operands_end_until_loads_return() -> None:
    run = two_tiles(load_cover_ns=200.0)
    # The first tile's burst is issued at 1,010; loads leave at 1,500 and return at 1,600: it stops at 1,210.
    assert run.starved_ns == pytest.approx([0.0, 390.0], abs=2.0)
    assert run.times.end == pytest.approx([1000.0, 2390.0], abs=2.0)


@pytest.mark.parametrize("load_cover_ns", [600.0, np.inf])
def test_operands_loaded_ahead_cover_a_short_backlog(load_cover_ns: float) -> None:
    run = two_tiles(load_cover_ns)
    assert (run.starved_ns == 0).all()
    assert run.times.end == pytest.approx([1000.0, 2000.0])


def test_a_mainloop_that_would_end_while_its_operands_wait_ends_later() -> None:
    """Due before loads return, it ends as long after that as it had left when it stopped."""
    drain = DrainModel(1e9, 1000.0, constant_rate(60.0), (0,), own_room_bytes=900.0)
    streams = independent_streams(np.array([0, 2]), np.array([1000.0, 400.0]), remote_bytes=BURST_BYTES)
    run = simulate(streams, drain, PipelineConfig(staging_slots=2, load_cover_ns=100.0))
    # It stops at 1,110 with 290 to go, and goes on at 1,600.
    assert run.times.end[1] == pytest.approx(1890.0, abs=2.0)
    assert run.starved_ns[1] == pytest.approx(490.0, abs=2.0)


def test_a_mainloop_that_waits_for_its_slot_does_not_starve_as_well() -> None:
    run = two_tiles(load_cover_ns=0.0, slot_offset_ns=MAINLOOP_NS)
    assert run.starved_ns[1] == pytest.approx(590.0, abs=2.0)
    assert run.times.end[1] == pytest.approx(2590.0, abs=2.0)


def test_all_sms_wait_until_the_last_one_s_burst_has_drained() -> None:
    """Whichever is served first: its loads queue behind what the others have outstanding."""
    drain = DrainModel(
        1e9, 2 * 900.0 + SHARED_BYTES, constant_rate(60.0), (0, 1), (0.8, 0.2), own_room_bytes=900.0
    )
    streams = independent_streams(np.array([0, 2, 4]), np.full(4, 4000.0), remote_bytes=BURST_BYTES)
    run = simulate(streams, drain, PipelineConfig(staging_slots=2, load_cover_ns=0.0))
    drained = 4000.0 + 2 * BURST_BYTES
    assert run.times.end[[1, 3]] == pytest.approx(drained + 4000.0 - 10.0, abs=5.0)


def test_without_own_rooms_nothing_waits_in_front_of_a_load() -> None:
    run = two_tiles(load_cover_ns=0.0, own_room_bytes=0.0)
    assert (run.starved_ns == 0).all()


def test_a_fused_kernel_on_the_h200_s_host_path_is_held_up_by_its_own_stores() -> None:
    """As measured there; on a platform that tells nothing of its rooms nothing is assumed."""
    workload = load_workload("fa-a2a/paper", ["tokens=16384", "heads=24"])
    starved = {}
    for name in ("h200-host", "paper-nvlink5"):
        platform = load_platform(name)
        launch = SimulatedKernels(platform).launch(workload, default_config(workload, platform))
        starved[name] = float(launch.run().starved_ns.sum())
    assert starved["h200-host"] > 0
    assert starved["paper-nvlink5"] == 0


def test_a_launch_is_over_when_its_last_byte_has_drained() -> None:
    run = two_tiles(load_cover_ns=np.inf)
    assert run.end_ns == run.drained_ns == pytest.approx(2000.0 + BURST_BYTES, rel=0.01)
    assert run.makespan_ns < run.end_ns
