"""The simulator as a burst device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simulator.cases import h200_drain
from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.base.progress import NoProgress
from xstage_tune.base.spans import SpanKind
from xstage_tune.calibration.procedure import CalibrationRequest, calibrate
from xstage_tune.launches.bursts import BurstPoint, CopyProbe
from xstage_tune.platforms.loader import load_platform
from xstage_tune.simulator.bursts import BurstJitter, simulate_bursts
from xstage_tune.simulator.device import SimulatedDevice


@pytest.fixture(scope="module")
def device() -> SimulatedDevice:
    return SimulatedDevice(load_platform("paper-nvlink5"))


def point(**changes: object) -> BurstPoint:
    values = {
        "mode": "periodic",
        "path": "peer",
        "flavour": "st.v4",
        "producers": 148,
        "burst_bytes": 32768,
        "gap_ns": 1000,
        "window_ns": 200_000,
    }
    return BurstPoint(**{**values, **changes})  # type: ignore[arg-type]


def test_a_periodic_run_reads_like_one_of_a_gpu(device: SimulatedDevice) -> None:
    (run,) = device.run([point()])
    table = run.table
    assert set(table.spans["kind"]) == {SpanKind.ISSUE}
    assert table.lanes["sm_id"].tolist() == list(range(148))
    assert table.lanes["recorded"].sum() == len(table.spans)
    assert (np.diff(table.spans["lane"].astype(int)) >= 0).all()
    last = table.spans["lane"] == 147
    assert table.spans["index"][last].tolist() == list(range(last.sum()))
    period_ns = np.diff(table.begin_ns()[last])
    # The queue is full after a few bursts; from then on equation 1, to the rounding of a tick.
    assert period_ns[-4:] == pytest.approx(148 * 32768 / 717, abs=0.1)
    assert table.begin_ns().max() < 200_000


def test_isolated_bursts_start_on_their_deadlines(device: SimulatedDevice) -> None:
    (run,) = device.run([point(mode="isolated", gap_ns=50_000, bursts=4, window_ns=0)])
    assert (run.table.lanes["issued"] == 4).all()
    begin = run.table.begin_ns().reshape(148, 4)
    assert begin == pytest.approx(np.broadcast_to(np.arange(4) * 50_000.0, (148, 4)))


def test_fewer_producers_are_spread_over_the_gpu(device: SimulatedDevice) -> None:
    (run,) = device.run([point(producers=4)])
    assert run.table.lanes["sm_id"].tolist() == [0, 37, 74, 111]


def test_producers_avoid_the_sms_that_are_to_stay_idle(device: SimulatedDevice) -> None:
    idle_sms = tuple(sm for sm in range(148) if sm % 37)
    (run,) = device.run([point(producers=4, idle_sms=idle_sms)])
    assert run.table.lanes["sm_id"].tolist() == [0, 37, 74, 111]


def test_the_local_control_does_not_depend_on_the_gap(device: SimulatedDevice) -> None:
    runs = list(device.run([point(path="local", gap_ns=gap) for gap in (0, 1000, 20_000)]))
    means = [run.table.duration_ns().mean() for run in runs]
    assert means == pytest.approx([760.0] * 3, abs=0.1)


def test_jitter_is_seeded_and_softens_the_corner() -> None:
    drain = h200_drain(grouped=False)
    corner = BurstPoint("periodic", "host", "st.v4", 132, 8192, 20_400, window_ns=4_000_000)
    first = simulate_bursts(corner, drain, BurstJitter(start_ns=1000, spin_ns=400, seed=7))
    again = simulate_bursts(corner, drain, BurstJitter(start_ns=1000, spin_ns=400, seed=7))
    other = simulate_bursts(corner, drain, BurstJitter(start_ns=1000, spin_ns=400, seed=8))
    assert np.array_equal(first.begin_ns, again.begin_ns)
    assert not np.array_equal(first.begin_ns, other.begin_ns)
    plain = simulate_bursts(corner, drain)
    spans = [times.end_ns - times.begin_ns for times in (plain, first)]
    free_ns = float(drain.free_issue_ns(np.array([8192.0]))[0])
    assert spans[0][-1000:] == pytest.approx(free_ns)
    assert spans[1][-1000:].mean() > free_ns


def test_a_point_that_begins_nothing_has_no_spans(device: SimulatedDevice) -> None:
    (run,) = device.run([point(window_ns=0)])
    assert len(run.table.spans) == 0
    assert np.isfinite(run.table.ns_per_tick()).all()


def test_the_description_tells_profiles_apart(device: SimulatedDevice) -> None:
    profile = load_platform("paper-nvlink5")
    faster = profile.model_copy(update={"drain": profile.drain.model_copy(update={"bytes_per_s": 800e9})})
    assert device.describe().kind == "simulator"
    assert device.describe().paths == ("peer",)
    assert device.describe() == SimulatedDevice(profile).describe()
    assert device.describe().uuid != SimulatedDevice(faster).describe().uuid


def test_the_copy_rate_is_at_least_the_drain(device: SimulatedDevice) -> None:
    (copied,) = device.run([CopyProbe("peer")])
    assert copied.figures.samples_bytes_per_s == (717e9,)


def test_calibrating_the_simulator_gives_back_its_platform(device: SimulatedDevice) -> None:
    """The whole way from spans to fit; what differs is ticks and finite windows."""
    result = calibrate(device, CalibrationRequest(path="peer", budget="quick"), NoProgress())
    fitted = result.platform
    assert not result.findings
    assert fitted.drain.bytes_per_s == pytest.approx(717e9, rel=1e-3)
    issue = {point.burst_bytes: point.ns for point in fitted.issue if point.producers == 148}
    assert issue[32768] == pytest.approx(760.0, rel=1e-3)
    capacity = {point.producers: point.bytes for point in fitted.capacity}
    assert capacity[148] == pytest.approx(4.25 * 2**20, rel=0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": "host"}, "path 'peer'"),
        ({"producers": 149}, "148 SMs"),
        ({"producers": 147, "idle_sms": (3, 4)}, "146 SMs are not to stay idle"),
    ],
)
def test_what_the_platform_cannot_run_is_refused(
    device: SimulatedDevice, change: dict[str, object], message: str
) -> None:
    with pytest.raises(DeviceError, match=message):
        list(device.run([point(**change)]))


def test_a_flavour_without_calibration_is_refused(device: SimulatedDevice) -> None:
    with pytest.raises(UsageError, match="tma"):
        list(device.run([point(flavour="tma")]))
