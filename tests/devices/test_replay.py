"""Recordings: what was measured comes back bit for bit, and nothing damaged or different does."""

from __future__ import annotations

import zipfile
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import RunCli
from tests.disk import room_for
from tests.h200 import H200
from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.base.spans import LANE_DTYPE, SPAN_DTYPE, SpanTable
from xstage_tune.devices.open_bursts import open_device
from xstage_tune.launches.archive import ArchiveWriter, new_archive, recording_file
from xstage_tune.launches.burst_recording import (
    CALIBRATION,
    Manifest,
    RecordedRequest,
    new_manifest,
    record_run,
)
from xstage_tune.launches.burst_replay import ReplayedBursts
from xstage_tune.launches.device import (
    BurstPoint,
    BurstRun,
    CopyRate,
    GpuState,
    LaunchInfo,
    Verification,
)

REQUEST = RecordedRequest("host", ("st.v4",), "quick", 3)
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
    return BurstRun(point, SpanTable(spans, lanes), Verification(8192, 0), launch)


RUNS = [
    run(POINT),
    run(replace(POINT, repeat=1), 1),
    run(replace(POINT, producers=3, idle_sms=(0, 131)), 2),
    run(BurstPoint("isolated", "host", "tma", 1, 1024, 50_000, bursts=3), 3),
]


def new_recording(file: Path, *, force: bool = False) -> AbstractContextManager[ArchiveWriter[Manifest]]:
    return new_archive(file, CALIBRATION, new_manifest(H200, REQUEST), force=force)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    file = tmp_path / "run.xsrec"
    with new_recording(file) as writer:
        writer.manifest.copy_rates.append(RATE)
        for one in RUNS:
            record_run(writer, one)
    return file


def test_runs_come_back_as_they_were_measured(recording: Path) -> None:
    device = ReplayedBursts(recording)
    points = [one.point for one in reversed(RUNS)]
    for replayed, original in zip(device.run_bursts(points), reversed(RUNS), strict=True):
        assert replayed.point == original.point
        assert replayed.launch == original.launch
        assert replayed.verification == original.verification
        assert np.array_equal(replayed.table.spans, original.table.spans)
        assert np.array_equal(replayed.table.lanes, original.table.lanes)
    device.close()


def test_device_request_and_copy_rate_are_those_recorded(recording: Path) -> None:
    device = ReplayedBursts(recording)
    assert device.describe() == replace(H200, kind="replay")
    assert device.request == REQUEST
    assert device.copy_rate("host") == RATE


def test_what_was_not_recorded_is_refused_with_the_settings_that_replay(recording: Path) -> None:
    device = ReplayedBursts(recording)
    with pytest.raises(UsageError, match=r"no run of .*repeat=9.* budget quick, seed 3"):
        list(device.run_bursts([replace(POINT, repeat=9)]))
    with pytest.raises(UsageError, match="no copy rate on path 'peer'"):
        device.copy_rate("peer")


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9, 0.999])
def test_truncated_recording_is_refused(recording: Path, kept: float) -> None:
    data = recording.read_bytes()
    recording.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(UsageError, match=rf"{recording.name} cannot be replayed: it is truncated"):
        ReplayedBursts(recording)


def test_damaged_spans_are_refused_when_they_are_read(recording: Path) -> None:
    data = bytearray(recording.read_bytes())
    data[zipfile.ZipFile(recording).getinfo("tables").header_offset + 60] ^= 0xFF
    recording.write_bytes(data)
    device = ReplayedBursts(recording)
    with pytest.raises(UsageError, match="cannot be replayed: tables: "):
        list(device.run_bursts([POINT]))


def test_manifest_of_another_version_is_refused(recording: Path) -> None:
    with zipfile.ZipFile(recording) as old:
        text = old.read("recording.json").replace(b'"version":2', b'"version":3')
    with zipfile.ZipFile(recording, "w") as new:
        new.writestr("recording.json", text)
    with pytest.raises(UsageError, match=r"recording\.json: version: "):
        ReplayedBursts(recording)


def test_broken_off_recording_leaves_nothing(tmp_path: Path) -> None:
    def break_off() -> None:
        with new_recording(tmp_path / "run.xsrec") as writer:
            record_run(writer, RUNS[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("room_bytes", [100, 900], ids=["tables", "manifest"])
def test_a_full_disk_is_one_error_that_names_the_recording(tmp_path: Path, room_bytes: int) -> None:
    """Whether the tables have no room, or only the manifest behind them."""
    file = tmp_path / "run.xsrec"

    def record() -> None:
        with new_recording(file) as writer:
            record_run(writer, RUNS[0])

    with room_for(room_bytes), pytest.raises(UsageError, match=rf"^cannot write {file}: File too large$"):
        record()
    assert list(tmp_path.iterdir()) == []


def test_existing_recording_is_replaced_only_by_force(recording: Path) -> None:
    before = recording.read_bytes()
    with pytest.raises(UsageError, match="exists"), new_recording(recording):
        pass
    assert recording.read_bytes() == before
    with new_recording(recording, force=True):
        pass
    with pytest.raises(UsageError, match="no run of"):
        list(ReplayedBursts(recording).run_bursts([POINT]))


def test_missing_recordings_are_named() -> None:
    with pytest.raises(UsageError, match=r"no recording at .*nowhere\.xsrec"):
        ReplayedBursts(recording_file("./nowhere.xsrec", ".xsrec"))
    with pytest.raises(UsageError, match="no recording named 'b200-peer' is shipped"):
        recording_file("b200-peer", ".xsrec")


@pytest.mark.parametrize("spec", ["gpu", "cuda:", "cuda:x", "cuda:-1", "replay:", "", "CUDA"])
def test_malformed_device_is_refused(spec: str) -> None:
    with pytest.raises(UsageError, match="--device"):
        open_device(spec, print)


def test_replay_by_file_needs_no_gpu(recording: Path) -> None:
    notes: list[str] = []
    device = open_device(f"replay:{recording}", notes.append)
    assert isinstance(device, ReplayedBursts)
    assert notes == []


def test_auto_without_a_gpu_says_why_it_replays(monkeypatch: pytest.MonkeyPatch, recording: Path) -> None:
    def no_gpu(_: str) -> None:
        raise DeviceError("no NVIDIA driver")

    monkeypatch.setattr("xstage_tune.devices.open_bursts.open_gpu", no_gpu)
    monkeypatch.setattr("xstage_tune.devices.open_bursts.recording_file", lambda *_: recording)
    notes: list[str] = []
    assert isinstance(open_device("auto", notes.append), ReplayedBursts)
    assert len(notes) == 1
    assert "no NVIDIA driver" in notes[0]
    with pytest.raises(DeviceError, match="no NVIDIA driver"):
        open_device("cuda", notes.append)


@pytest.mark.parametrize(
    ("command", "other", "suffix"),
    [
        ("calibrate", "emulate", ".xsemu"),
        ("emulate", "profile", ".xsprof"),
        ("profile", "calibrate", ".xsrec"),
    ],
)
def test_a_recording_of_another_command_says_which(
    run_cli: RunCli, own_store: Path, command: str, other: str, suffix: str
) -> None:
    file = recording_file("", suffix)
    result = run_cli(command, "--device", f"replay:{file}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{file} is a recording of {other}, not of {command}\n" in result.stderr
    assert f"try: xstage-tune {other} --device replay:{file}" in result.stderr
    assert not own_store.exists()
