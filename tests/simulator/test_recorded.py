"""The simulator beside the recorded H200 run, from the shipped profile alone.

The profile's R, Q, T0 and ports come from other points of the recording: nothing here was fitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from xstage_tune.calibration.reduce import PeriodicFigures, reduce_run
from xstage_tune.launches.bursts import BURSTS, BurstPoint
from xstage_tune.launches.recording import DEFAULT_RECORDING, Recording, recording_file
from xstage_tune.launches.replay import ReplayedDevice
from xstage_tune.model import burst_gap
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.queries import issue_ns
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.simulator.device import SimulatedDevice

RECORDING = recording_file(DEFAULT_RECORDING, "calibrate")


@pytest.fixture(scope="module")
def platform() -> PlatformProfile:
    return load_platform("h200-host")


@dataclass(frozen=True)
class Beside:
    """One recorded run, and the simulation of its K, B, realised gap and very SMs."""

    measured: PeriodicFigures
    simulated: PeriodicFigures


def beside(platform: PlatformProfile, points: list[BurstPoint]) -> Iterator[Beside]:
    simulator = SimulatedDevice(platform)
    replay = ReplayedDevice(RECORDING, "calibrate")
    for run in replay.run(points):
        measured = reduce_run(run)
        assert isinstance(measured, PeriodicFigures)
        idle_sms = tuple(sorted(set(range(platform.gpu.sm_count)) - set(measured.sm_ids.tolist())))
        point = replace(run.launch, gap_ns=round(measured.gap_ns), idle_sms=idle_sms)
        (simulated_run,) = simulator.run([point])
        simulated = reduce_run(simulated_run)
        assert isinstance(simulated, PeriodicFigures)
        yield Beside(measured, simulated)
    replay.close()


@pytest.fixture(scope="module")
def remote_points() -> list[BurstPoint]:
    recording = Recording(RECORDING, "calibrate")
    launches = [launch for launch in recording.manifest.launches if launch.kind == BURSTS.name]
    recording.close()
    points = [BURSTS.points.validate_python(launch.keys) for launch in launches]
    return [point for point in points if point.mode == "periodic" and point.path == "host"]


@pytest.fixture(scope="module")
def held_out(platform: PlatformProfile, remote_points: list[BurstPoint]) -> list[Beside]:
    """The gap sweeps: zero gaps gave R, and the largest gap of each (flavour, K, B) gave T0."""
    largest: dict[tuple[str, int, int], int] = {}
    for point in remote_points:
        key = (point.flavour, point.producers, point.burst_bytes)
        largest[key] = max(largest.get(key, 0), point.gap_ns)
    points = [
        point
        for point in remote_points
        if 0 < point.gap_ns < largest[(point.flavour, point.producers, point.burst_bytes)]
    ]
    assert len(points) == 60
    return list(beside(platform, points))


def closed_form(platform: PlatformProfile, run: PeriodicFigures) -> tuple[float, float]:
    """Period and T_iss by equations 2 and 3."""
    point = run.point
    issue = burst_gap.issue_ns(
        gap_ns=run.gap_ns,
        free_issue_ns=issue_ns(platform, point.flavour, point.producers, point.burst_bytes),
        volume_bytes=point.volume_bytes,
        drain_bytes_per_s=platform.drain.bytes_per_s,
    )
    return float(burst_gap.period_ns(issue_ns=issue, gap_ns=run.gap_ns)), float(issue)


def percent_errors(predicted: list[float], measured: list[float]) -> NDArray[np.float64]:
    errors: NDArray[np.float64] = 100 * np.abs(np.array(predicted) / np.array(measured) - 1)
    return errors


@pytest.mark.parametrize("quantile", [0.5, 0.95])
def test_periods_and_issue_times_are_as_near_as_the_closed_form_s(
    platform: PlatformProfile, held_out: list[Beside], quantile: float
) -> None:
    """Both state one law, so their errors may differ by what a finite window adds: half a point."""
    law = [closed_form(platform, pair.measured) for pair in held_out]
    for column, name in enumerate(("period_ns", "issue_ns")):
        measured = [float(getattr(pair.measured, name)) for pair in held_out]
        simulated = [float(getattr(pair.simulated, name)) for pair in held_out]
        ours = np.quantile(percent_errors(simulated, measured), quantile)
        theirs = np.quantile(percent_errors([one[column] for one in law], measured), quantile)
        assert ours <= theirs + 0.5


@pytest.mark.parametrize("producers", [16, 32, 66, 99, 132])
def test_each_sm_gets_the_share_that_it_got_on_the_gpu(
    platform: PlatformProfile, remote_points: list[BurstPoint], producers: int
) -> None:
    """On SMs of the hardware's choice, that the groups were not fitted to.

    Pooled over the launches: one alone counts some 50 bursts an SM, and two such correlate by 0.8 to 0.9.
    Beside that, a simulated producer gives its turn away during the gap between its bursts, while a GPU's
    port still has stores of it queued.
    """
    saturated = [
        point
        for point in remote_points
        if point.gap_ns == 0
        and (point.flavour, point.producers, point.burst_bytes) == ("st.v4", producers, 16384)
        and not point.idle_sms
    ]
    pairs = list(beside(platform, saturated))
    measured, simulated = (
        np.mean([figures.lane_bytes_per_s[np.argsort(figures.sm_ids)] for figures in launches], axis=0)
        for launches in ([pair.measured for pair in pairs], [pair.simulated for pair in pairs])
    )
    ratio = (simulated / simulated.mean()) / (measured / measured.mean())
    fastest_ns = 16384 / max(pair.measured.lane_bytes_per_s.max() for pair in pairs) * 1e9
    gap_part = max(pair.measured.gap_ns for pair in pairs) / fastest_ns
    assert np.median(np.abs(ratio - 1)) < 0.05 + gap_part
    # The whole pattern, at the repeatability asked of a calibration.
    assert np.corrcoef(measured, simulated)[0, 1] > 0.95
