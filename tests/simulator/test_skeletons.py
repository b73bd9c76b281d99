"""Skeletons on the simulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from xstage_tune.base.errors import UsageError
from xstage_tune.launches.skeletons import TOTALS, Skeleton
from xstage_tune.launches.streams import independent_streams
from xstage_tune.platforms.latencies import FALLBACK, latencies_of
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.queries import issue_ns
from xstage_tune.simulator.device import SimulatedDevice
from xstage_tune.simulator.skeletons import SimulatedSkeletons, handover_ns, local_stores_ns

HOST = load_platform("h200-host")
TILES = 4


def skeleton(remote_bytes: float = 8192.0, **changes: object) -> Skeleton:
    streams = independent_streams(
        np.arange(133) * TILES, np.full(132 * TILES, 9000.0), remote_bytes=remote_bytes
    )
    local = np.full(streams.tiles, 32768.0 - remote_bytes)
    return replace(Skeleton("case", streams, local, 2, "st.v4", "host"), **changes)  # type: ignore[arg-type]


def test_repeats_of_any_two_skeletons_start_alike() -> None:
    device, other = SimulatedSkeletons(HOST, seed=5), SimulatedSkeletons(HOST, seed=5)
    first = [run.figures.makespan_ns for run in device.run([skeleton()] * 2)]
    mixed = list(other.run([skeleton(), skeleton(label="other"), skeleton()]))
    assert [mixed[0].figures.makespan_ns, mixed[2].figures.makespan_ns] == first
    assert first[0] != first[1]
    assert mixed[1].figures.makespan_ns == first[0]


def test_totals_are_those_of_each_sm() -> None:
    (run,) = SimulatedSkeletons(HOST).run([skeleton()])
    totals = run.arrays[TOTALS]
    assert (totals["tiles"] == TILES).all()
    assert (totals["remote_tiles"] == TILES).all()
    assert totals["mainloop_ns"] == pytest.approx(
        (9000.0 + handover_ns(skeleton().streams, latencies_of(HOST))[0]) * TILES
    )
    assert totals["finish_ns"].max() == run.figures.makespan_ns
    assert (totals["completion_ns"] == 0).all()
    assert run.kept_fraction == 1.0


def test_waiting_for_visibility_is_counted_apart() -> None:
    (run,) = SimulatedSkeletons(HOST).run([skeleton(completion_coupled=True)])
    assert (run.arrays[TOTALS]["completion_ns"] > 0).all()


def test_what_a_signal_takes_is_counted_apart() -> None:
    raising = skeleton(remote_bytes=0.0)
    signals = np.arange(raising.streams.tiles, dtype=np.int32)
    streams = replace(raising.streams, signals=signals, counters=signals.size)
    (run,) = SimulatedSkeletons(HOST).run([replace(raising, streams=streams)])
    assert run.arrays[TOTALS]["signal_ns"] == pytest.approx(TILES * FALLBACK.counter.ns)
    assert run.figures.makespan_ns == run.arrays[TOTALS]["finish_ns"].max()


def test_local_stores_take_what_the_whole_tile_exceeds_its_remote_part_by() -> None:
    local, remote = np.array([24576.0, 32768.0, 0.0]), np.array([8192.0, 0.0, 8192.0])
    whole, part = (float(issue_ns(HOST, "st.v4", 132, size)) for size in (32768, 8192))
    assert local_stores_ns(HOST, "st.v4", local, remote) == pytest.approx([whole - part, whole, 0.0])


def test_another_path_than_the_platform_s_is_refused() -> None:
    with pytest.raises(UsageError, match="calibrated for path 'host', not 'peer'"):
        list(SimulatedSkeletons(HOST).run([skeleton(path="peer")]))


def test_the_device_is_the_platform_s_gpu_marked_as_simulated() -> None:
    described = SimulatedDevice(HOST).describe()
    assert (described.kind, described.sm_count, described.paths) == ("simulator", 132, ("host",))
