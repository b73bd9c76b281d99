"""Recorded profile runs: exact figures, and nothing damaged or different."""

from __future__ import annotations

import re
import zipfile
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from tests.configs.cases import attention, attention_config
from tests.h200 import H200
from tests.profiling.gpu import ScriptedProfiles
from xstage_tune.base.errors import UsageError
from xstage_tune.base.progress import NoProgress
from xstage_tune.devices.opener import open_replay
from xstage_tune.devices.spec import PROFILE
from xstage_tune.experiments.profiling.procedure import profile
from xstage_tune.experiments.timing.prediction import predict
from xstage_tune.experiments.timing.request import ProfileRequest
from xstage_tune.experiments.timing.result import NO_RESIDUAL, conclude
from xstage_tune.families.attention_a2a.timing import IMPLEMENTATIONS, RECORDING, AttentionLaunch, replays
from xstage_tune.families.profiled import CheckFigures
from xstage_tune.launches.recording import MEMBER, RecordingWriter, new_recording
from xstage_tune.launches.replay import ReplayedDevice
from xstage_tune.platforms.loader import load_platform

REQUEST = ProfileRequest(
    workload=attention(tokens=1024),
    platform=load_platform("h200-host"),
    config=attention_config(),
    path="host",
)
CASE = REQUEST.case_at(None)


LAUNCHES = [
    *(AttentionLaunch(CASE, one, "check") for one in IMPLEMENTATIONS),
    *replays(CASE, ["fused", "fused"]),
    AttentionLaunch(CASE, "fused", "spans"),
]
OUTCOMES = list(ScriptedProfiles().run(LAUNCHES))


def recorded(file: Path) -> AbstractContextManager[RecordingWriter]:
    return new_recording(file, "profile", H200, "an H200", REQUEST.keys())


def replayed_device(file: Path) -> ReplayedDevice:
    return ReplayedDevice(file, "profile")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    file = tmp_path / "run.xsprof"
    with recorded(file) as writer:
        for one in OUTCOMES:
            writer.keep(one)
    return file


def test_launches_come_back_exactly(recording: Path) -> None:
    device = replayed_device(recording)
    for replayed, original in zip(device.run(LAUNCHES), OUTCOMES, strict=True):
        assert replace(replayed, table=original.table) == original
        assert np.array_equal(replayed.table.spans, original.table.spans)
        assert np.array_equal(replayed.table.lanes, original.table.lanes)
    assert ProfileRequest.read(device.request, "the recording") == REQUEST
    assert device.describe() == replace(H200, kind="replay")
    assert device.identity == "an H200, replayed"
    device.close()


def test_what_was_not_recorded_is_refused(recording: Path) -> None:
    device = replayed_device(recording)
    with pytest.raises(UsageError, match=r"has 0 launches of 'attention \(replay\)', not 1"):
        list(device.run(replays(CASE, ["attention"])))
    with pytest.raises(UsageError, match=r"has 2 launches of 'fused \(replay\)', not 3"):
        list(device.run(replays(CASE, ["fused"]) * 3))


def test_another_case_is_refused(recording: Path) -> None:
    other = AttentionLaunch(replace(CASE, tokens=1025), "fused", "check")
    with pytest.raises(UsageError, match="was made of other work"):
        list(replayed_device(recording).run([other]))


def test_damage_is_refused(recording: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.xsprof"
    cut.write_bytes(recording.read_bytes()[:-100])
    with pytest.raises(UsageError, match="truncated"):
        replayed_device(cut)
    broken = tmp_path / "broken.xsprof"
    with zipfile.ZipFile(recording) as old, zipfile.ZipFile(broken, "w") as new:
        for name in old.namelist():
            new.writestr(name, b"x" if name == "tables" else old.read(name))
    with pytest.raises(UsageError, match="cannot be replayed"):
        list(replayed_device(broken).run([AttentionLaunch(CASE, "fused", "spans")]))
    with pytest.raises(UsageError, match="is a recording of profile, not of emulate"):
        ReplayedDevice(recording, "emulate")


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "run.xsprof"

    def stop() -> None:
        with recorded(file) as writer:
            writer.keep(OUTCOMES[0])
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        stop()
    assert not file.exists()


def test_the_shipped_run_of_an_h200_agrees_with_what_was_predicted() -> None:
    """Paced stores to the host: E_res is the last round's drain, T_RS the staging that another run had."""
    device = open_replay(PROFILE)
    recorded = ProfileRequest.read(device.request, "the shipped recording")
    request = recorded.changed(platform=load_platform("h200-host"))
    results = profile(device, request, NoProgress())
    assert all(one.figures.place == "" for one in results if isinstance(one.figures, CheckFigures))
    predictions = {value: predict(request, value) for value in request.values()}
    result = conclude(request, results, predictions, run_id="", device="H200", device_name="H200")
    assert [point.case.tokens for point in result.points] == [1024 << step for step in range(7)]
    errors = []
    for point in result.points:
        assert point.speedup("serial-copy") > 1  # type: ignore[operator]
        issue = point.compared()["issue_ns"]
        assert issue.measured is not None
        assert issue.simulated is not None
        errors.append(abs(issue.simulated / issue.measured - 1))
    assert median(errors) <= 0.1
    # Few rounds of tiles: nothing but the drain of what no Q-loop follows. The next kernel hides some of it,
    # at most what a launch of one round takes beside its Q-loop; no more than a tenth is unexplained.
    smallest = result.points[0]
    q_loop_ns, alone_ns = smallest.compared()["q_loop_ns"].measured, smallest.time_ns("attention")
    assert q_loop_ns is not None
    assert alone_ns is not None
    for point in result.points[:4]:
        interval, simulated = point.residual_ci95_ns(), point.compared()["residual_ns"].simulated
        assert interval is not None
        assert simulated is not None
        assert 0.9 * interval[0] <= simulated <= interval[1] + alone_ns - q_loop_ns
    # Many rounds: nothing is left.
    assert all(point.is_hidden() for point in result.points[4:])
    overheads = [point.recording_overhead(one) for point in result.points for one in RECORDING]
    assert all(overhead is not None and overhead <= NO_RESIDUAL for overhead in overheads)


@pytest.mark.parametrize("time_ns", ["-1.0", "0", "NaN"])
def test_a_time_that_is_none_is_refused(recording: Path, tmp_path: Path, time_ns: str) -> None:
    edited = tmp_path / "edited.xsprof"
    with zipfile.ZipFile(recording) as old, zipfile.ZipFile(edited, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == MEMBER:
                data = re.sub(rb'"time_ns":[\d.e+]+', b'"time_ns":' + time_ns.encode(), data, count=1)
            new.writestr(name, data)
    with pytest.raises(UsageError, match=r"cannot be replayed: launch 7: .*time_ns: "):
        list(replayed_device(edited).run(LAUNCHES))
