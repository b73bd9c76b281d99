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
from xstage_tune.devices.open_profiles import open_replay
from xstage_tune.experiments.timing.prediction import predict
from xstage_tune.experiments.timing.procedure import profile
from xstage_tune.experiments.timing.request import ProfileRequest, request_from_keys
from xstage_tune.experiments.timing.result import NO_RESIDUAL, Outcome, conclude
from xstage_tune.families.attention_a2a.recording import PROFILE, RecordedLaunch, record_launch
from xstage_tune.families.attention_a2a.replay import ReplayedProfiles
from xstage_tune.families.attention_a2a.timing import IMPLEMENTATIONS, RECORDING, CheckFigures, ProfileLaunch
from xstage_tune.launches.archive import ArchiveWriter, new_archive
from xstage_tune.launches.launch_recording import LaunchManifest, new_manifest
from xstage_tune.launches.skeleton_replay import ReplayedSkeletons
from xstage_tune.platforms.loader import load_platform

REQUEST = ProfileRequest(attention(tokens=1024), load_platform("h200-host"), attention_config(), "host")
CASE = REQUEST.case_at(None)


def launches() -> list[ProfileLaunch]:
    prepared = ScriptedProfiles().prepare(CASE)
    checks = [prepared.check(one) for one in IMPLEMENTATIONS]
    return [*checks, *prepared.replay(["fused", "fused"]), prepared.record("fused")]


LAUNCHES = launches()


def new_recording(file: Path) -> AbstractContextManager[ArchiveWriter[LaunchManifest[RecordedLaunch]]]:
    return new_archive(file, PROFILE, new_manifest(H200, "an H200", REQUEST.keys()))


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    file = tmp_path / "run.xsprof"
    with new_recording(file) as writer:
        for one in LAUNCHES:
            record_launch(writer, one)
    return file


def test_launches_come_back_exactly(recording: Path) -> None:
    device = ReplayedProfiles(recording)
    prepared = device.prepare(CASE)
    checks = [prepared.check(one) for one in IMPLEMENTATIONS]
    again = [*checks, *prepared.replay(["fused", "fused"]), prepared.record("fused")]
    for replayed, original in zip(again, LAUNCHES, strict=True):
        assert replace(replayed, table=original.table) == original
        assert np.array_equal(replayed.table.spans, original.table.spans)
        assert np.array_equal(replayed.table.lanes, original.table.lanes)
    assert request_from_keys(device.request, "the recording") == REQUEST
    assert device.describe() == replace(H200, kind="replay")
    assert device.identity == "an H200, replayed"
    device.close()


def test_what_was_not_recorded_is_refused(recording: Path) -> None:
    prepared = ReplayedProfiles(recording).prepare(CASE)
    with pytest.raises(UsageError, match=r"has 0 launches of attention \(replay\), not 1"):
        prepared.replay(["attention"])
    for _ in range(2):
        prepared.replay(["fused"])
    with pytest.raises(UsageError, match=r"has 2 launches of fused \(replay\), not 3"):
        prepared.replay(["fused"])


def test_another_case_is_refused(recording: Path) -> None:
    prepared = ReplayedProfiles(recording).prepare(replace(CASE, tokens=1025))
    with pytest.raises(UsageError, match="is of another case"):
        prepared.check("fused")


def test_damage_is_refused(recording: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.xsprof"
    cut.write_bytes(recording.read_bytes()[:-100])
    with pytest.raises(UsageError, match="truncated"):
        ReplayedProfiles(cut)
    broken = tmp_path / "broken.xsprof"
    with zipfile.ZipFile(recording) as old, zipfile.ZipFile(broken, "w") as new:
        for name in old.namelist():
            new.writestr(name, b"x" if name == "tables" else old.read(name))
    with pytest.raises(UsageError, match="cannot be replayed"):
        ReplayedProfiles(broken).prepare(CASE).record("fused")
    with pytest.raises(UsageError, match="is a recording of profile, not of emulate"):
        ReplayedSkeletons(recording)


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "run.xsprof"

    def stop() -> None:
        with new_recording(file) as writer:
            record_launch(writer, LAUNCHES[0])
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        stop()
    assert not file.exists()


def test_the_shipped_run_of_an_h200_agrees_with_what_was_predicted() -> None:
    """Paced stores to the host: E_res is the last round's drain, T_RS the staging that another run had."""
    device = open_replay("")
    recorded = request_from_keys(device.request, "the shipped recording")
    request = replace(recorded, platform=load_platform("h200-host"))
    watching = Watching()
    profile(device, request, watching)
    assert all(one.figures.place == "" for one in watching.launches if isinstance(one.figures, CheckFigures))
    outcomes = [
        Outcome(one.case.label, one.implementation, one.figures, one.verification)
        for one in watching.launches
    ]
    predictions = {value: predict(request, value) for value in request.values()}
    result = conclude(request, outcomes, predictions, run_id="", device="H200", device_name="H200")
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


class Watching:
    """Keeps every launch."""

    def __init__(self) -> None:
        self.launches: list[ProfileLaunch] = []

    def planned(self, total_launches: int) -> None:
        self.total = total_launches

    def done(self, launch: ProfileLaunch) -> None:
        self.launches.append(launch)


@pytest.mark.parametrize("time_ns", ["-1.0", "0", "NaN"])
def test_a_time_that_is_none_is_refused(recording: Path, tmp_path: Path, time_ns: str) -> None:
    edited = tmp_path / "edited.xsprof"
    with zipfile.ZipFile(recording) as old, zipfile.ZipFile(edited, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == PROFILE.member:
                data = re.sub(rb'"time_ns":[\d.e+]+', b'"time_ns":' + time_ns.encode(), data, count=1)
            new.writestr(name, data)
    with pytest.raises(UsageError, match=r"cannot be replayed: profile\.json: launches"):
        ReplayedProfiles(edited)
