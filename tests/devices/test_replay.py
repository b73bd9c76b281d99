"""Recordings: what was measured comes back bit for bit, and nothing damaged or different does."""

from __future__ import annotations

import zipfile
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.configs.cases import megamoe_config, moe
from tests.conftest import RunCli
from tests.disk import room_for
from tests.h200 import H200
from xstage_tune.base.errors import UsageError
from xstage_tune.base.spans import LANE_DTYPE, SPAN_DTYPE, SpanTable
from xstage_tune.calibration.request import CalibrationRequest
from xstage_tune.families.kernel_launch import KernelLaunch
from xstage_tune.launches.bursts import BurstPoint, BurstRun, CopyProbe, CopyRate
from xstage_tune.launches.device import GpuState, Launch, LaunchInfo, Outcome, Verification
from xstage_tune.launches.recording import RecordingWriter, new_recording, recording_file
from xstage_tune.launches.replay import ReplayedDevice

REQUEST = CalibrationRequest(path="host", budget="quick", seed=3)
RATE = CopyRate("host", 1 << 28, (55.1e9, 55.2e9))
POINT = BurstPoint("periodic", "host", "st.v4", 2, 4096, 100, window_ns=1000)


def run(point: BurstPoint, seed: int = 0) -> BurstRun:
    rng = np.random.default_rng(seed)
    lanes = np.zeros(point.producers, LANE_DTYPE)
    lanes["lane"] = np.arange(point.producers)
    lanes["recorded"] = 3
    lanes["tick_begin"] = rng.integers(1 << 50, size=point.producers)
    lanes["tick_end"] = lanes["tick_begin"] + 10_000
    lanes["timer_end_ns"] = 5_000
    spans = np.zeros(3 * point.producers, SPAN_DTYPE)
    spans["lane"] = np.repeat(np.arange(point.producers), 3)
    spans["begin_ticks"] = np.tile([0, 1000, 2500], point.producers)
    spans["duration_ticks"] = rng.integers(100, 900, size=len(spans))
    state = GpuState(1980, None, 118.25, 41, ("gpu_idle",))
    launch = LaunchInfo("k", "ab" * 32, 33, 0, 231424, 32, 1234, "2026-01-01T00:00:00+00:00", state, None)
    return Outcome(point, None, launch, Verification(8192, 0), SpanTable(spans, lanes))


RUNS = [
    run(POINT),
    run(replace(POINT, repeat=1), 1),
    run(replace(POINT, producers=3, idle_sms=(0, 131)), 2),
    run(BurstPoint("isolated", "host", "tma", 1, 1024, 50_000, bursts=3), 3),
]


COPIED = Outcome(CopyProbe("host"), RATE, RUNS[0].info)


def recorded(file: Path, *, force: bool = False) -> AbstractContextManager[RecordingWriter]:
    return new_recording(file, "calibrate", H200, "an H200", REQUEST.keys(), force=force)


def replayed_device(file: Path) -> ReplayedDevice:
    return ReplayedDevice(file, "calibrate")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    file = tmp_path / "run.xsrec"
    with recorded(file) as writer:
        for one in (COPIED, *RUNS):
            writer.keep(one)
    return file


def test_runs_come_back_as_they_were_measured(recording: Path) -> None:
    device = replayed_device(recording)
    points = [one.launch for one in reversed(RUNS)]
    for replayed, original in zip(device.run(points), reversed(RUNS), strict=True):
        assert replayed.launch == original.launch
        assert replayed.info == original.info
        assert replayed.verification == original.verification
        assert np.array_equal(replayed.table.spans, original.table.spans)
        assert np.array_equal(replayed.table.lanes, original.table.lanes)
    device.close()


def test_device_request_and_copy_rate_are_those_recorded(recording: Path) -> None:
    device = replayed_device(recording)
    assert device.describe() == replace(H200, kind="replay")
    assert device.identity == "an H200, replayed"
    assert CalibrationRequest.read(device.request, "it") == REQUEST
    (copied,) = device.run([CopyProbe("host")])
    assert copied.figures == RATE


@pytest.mark.parametrize("launch", [replace(POINT, repeat=9), CopyProbe("peer")])
def test_what_was_not_recorded_is_refused(recording: Path, launch: Launch) -> None:
    device = replayed_device(recording)
    with pytest.raises(UsageError, match=r"run\.xsrec has 0 launches of ") as refusal:
        list(device.run([launch]))
    assert "record anew with: xstage-tune calibrate" in refusal.value.hint


def test_the_same_point_is_answered_by_the_same_run(recording: Path) -> None:
    """Its keys tell repetitions apart."""
    first, again, other = replayed_device(recording).run([POINT, POINT, replace(POINT, repeat=1)])
    assert np.array_equal(first.table.spans, again.table.spans)
    assert not np.array_equal(first.table.spans, other.table.spans)


def test_a_kind_that_was_not_recorded_is_refused(recording: Path) -> None:
    device = replayed_device(recording)
    assert set(device.kinds) == {"bursts", "copy-rate"}
    kernel = KernelLaunch(moe(), megamoe_config(), "host")
    with pytest.raises(UsageError, match=r"has 0 launches of "):
        list(device.run([kernel]))


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9, 0.999])
def test_truncated_recording_is_refused(recording: Path, kept: float) -> None:
    data = recording.read_bytes()
    recording.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(UsageError, match=rf"{recording.name} cannot be replayed: it is truncated"):
        replayed_device(recording)


def test_damaged_spans_are_refused_when_they_are_read(recording: Path) -> None:
    data = bytearray(recording.read_bytes())
    data[zipfile.ZipFile(recording).getinfo("tables").header_offset + 60] ^= 0xFF
    recording.write_bytes(data)
    device = replayed_device(recording)
    with pytest.raises(UsageError, match="cannot be replayed: tables: "):
        list(device.run([POINT]))


def test_manifest_of_another_version_is_refused(recording: Path) -> None:
    with zipfile.ZipFile(recording) as old:
        text = old.read("recording.json").replace(b'"version":3', b'"version":4')
    with zipfile.ZipFile(recording, "w") as new:
        new.writestr("recording.json", text)
    with pytest.raises(UsageError, match=r"recording\.json: version: "):
        replayed_device(recording)


def test_broken_off_recording_leaves_nothing(tmp_path: Path) -> None:
    def break_off() -> None:
        with recorded(tmp_path / "run.xsrec") as writer:
            writer.keep(RUNS[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("room_bytes", [100, 900], ids=["tables", "manifest"])
def test_a_full_disk_is_one_error_that_names_the_recording(tmp_path: Path, room_bytes: int) -> None:
    """Whether the tables have no room, or only the manifest behind them."""
    file = tmp_path / "run.xsrec"

    def record() -> None:
        with recorded(file) as writer:
            writer.keep(RUNS[0])

    with room_for(room_bytes), pytest.raises(UsageError, match=rf"^cannot write {file}: File too large$"):
        record()
    assert list(tmp_path.iterdir()) == []


def test_existing_recording_is_replaced_only_by_force(recording: Path) -> None:
    before = recording.read_bytes()
    with pytest.raises(UsageError, match="exists"), recorded(recording):
        pass
    assert recording.read_bytes() == before
    with recorded(recording, force=True):
        pass
    with pytest.raises(UsageError, match="has 0 launches of"):
        list(replayed_device(recording).run([POINT]))


def test_missing_recordings_are_named() -> None:
    with pytest.raises(UsageError, match=r"no recording at .*nowhere\.xsrec"):
        replayed_device(recording_file("./nowhere.xsrec", "calibrate"))
    with pytest.raises(UsageError, match="no recording named 'b200-peer' is shipped"):
        recording_file("b200-peer", "calibrate")


@pytest.mark.parametrize(
    ("command", "other"), [("calibrate", "emulate"), ("emulate", "profile"), ("profile", "calibrate")]
)
def test_a_recording_of_another_command_says_which(
    run_cli: RunCli, own_store: Path, command: str, other: str
) -> None:
    file = recording_file("", other)
    result = run_cli(command, "--device", f"replay:{file}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{file} is a recording of {other}, not of {command}\n" in result.stderr
    assert f"try: xstage-tune {other} --device replay:{file}" in result.stderr
    assert not own_store.exists()
