"""Recorded emulations: exact figures, a sample of spans, and nothing damaged or different."""

from __future__ import annotations

import zipfile
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from tests.configs.cases import megamoe_config, moe
from tests.disk import room_for
from tests.emulation.gpu import HOST, ScriptedGpu
from tests.h200 import H200
from xstage_tune.base.assets import data_dir
from xstage_tune.base.errors import UsageError
from xstage_tune.devices.opener import open_replay
from xstage_tune.devices.spec import EMULATE
from xstage_tune.doctor import machine
from xstage_tune.experiments.emulation.cases import cases_of, skeleton_of
from xstage_tune.experiments.emulation.request import EmulationRequest
from xstage_tune.launches import recording as recording_files
from xstage_tune.launches.recording import RecordingWriter, new_recording
from xstage_tune.launches.replay import ReplayedDevice
from xstage_tune.launches.skeletons import TOTALS, Skeleton, sampled

REQUEST = EmulationRequest(
    workload=moe(tokens_per_rank=256),
    platform=HOST,
    config=megamoe_config(block_m=64),
    schedules=("alternating", "clamped-lag"),
    path="host",
)
SKELETONS = [skeleton_of(case, REQUEST) for case in cases_of(REQUEST)]
ORDER = [SKELETONS[0], SKELETONS[1], SKELETONS[1], SKELETONS[0]]
RUNS = list(ScriptedGpu().run(ORDER))


def recorded(file: Path) -> AbstractContextManager[RecordingWriter]:
    return new_recording(file, "emulate", H200, "emulation on H200", REQUEST.keys())


def replayed_device(file: Path) -> ReplayedDevice:
    return ReplayedDevice(file, "emulate")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    file = tmp_path / "run.xsemu"
    with recorded(file) as writer:
        for run in RUNS:
            writer.keep(run)
    return file


def test_launches_come_back_with_exact_figures_and_totals(recording: Path) -> None:
    device = replayed_device(recording)
    for replayed, original in zip(device.run(ORDER), RUNS, strict=True):
        assert replayed.figures == original.figures
        assert np.array_equal(replayed.arrays[TOTALS], original.arrays[TOTALS])
        assert replayed.verification == original.verification
        assert replayed.info == original.info
    assert device.request == REQUEST.keys()
    assert device.describe() == replace(H200, kind="replay")
    assert device.identity == "emulation on H200, replayed"


def test_spans_are_of_the_first_launch_of_each_skeleton(recording: Path) -> None:
    replayed = list(replayed_device(recording).run(ORDER))
    assert [run.kept_fraction for run in replayed] == [1.0, 1.0, 0.0, 0.0]
    assert np.array_equal(replayed[0].table.spans, RUNS[0].table.spans)
    assert not len(replayed[2].table.spans)
    assert len(replayed[2].table.lanes) == 132


def test_a_sample_keeps_whole_lanes_within_its_size() -> None:
    table = RUNS[0].table
    few = sampled(table, 300)
    assert 0 < len(few.spans) <= 600
    lanes = np.unique(few.spans["lane"])
    assert len(lanes) > 1
    for lane in lanes:
        assert np.array_equal(few.spans[few.spans["lane"] == lane], table.spans[table.spans["lane"] == lane])
    assert few.lanes["recorded"].sum() == len(few.spans)
    assert (few.lanes["timer_end_ns"] == table.lanes["timer_end_ns"]).all()


def other_tiles() -> Skeleton:
    streams = SKELETONS[0].streams
    return replace(SKELETONS[0], streams=replace(streams, mainloop_ns=streams.mainloop_ns * 2))


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ([SKELETONS[0]] * 3, "has 2 launches of 'alternating', not 3"),
        ([replace(SKELETONS[0], label="wave of 2")], "has 0 launches of 'wave of 2', not 1"),
        ([other_tiles()], "was made of other work"),
    ],
)
def test_what_was_not_recorded_is_refused(recording: Path, asked: list[Skeleton], complaint: str) -> None:
    with pytest.raises(UsageError) as refusal:
        list(replayed_device(recording).run(asked))
    assert complaint in refusal.value.message
    assert "emulate --device cuda --record FILE" in refusal.value.hint


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.999])
def test_a_truncated_recording_is_refused(recording: Path, kept: float) -> None:
    data = recording.read_bytes()
    recording.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(UsageError, match=r"run\.xsemu cannot be replayed: it is truncated") as refusal:
        replayed_device(recording)
    assert "xstage-tune emulate --record FILE" in refusal.value.hint


@pytest.mark.parametrize("member", ["tables", "00001.totals"])
def test_damaged_data_are_refused_when_they_are_read(recording: Path, member: str) -> None:
    data = bytearray(recording.read_bytes())
    data[zipfile.ZipFile(recording).getinfo(member).header_offset + 80] ^= 0xFF
    recording.write_bytes(data)
    with pytest.raises(UsageError, match="cannot be replayed"):
        list(replayed_device(recording).run(ORDER))


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "recordings" / "run.xsemu"

    def record() -> None:
        with recorded(file) as writer:
            writer.keep(RUNS[0])

    with room_for(1000), pytest.raises(UsageError, match=r"cannot write .*run\.xsemu"):
        record()
    assert list(file.parent.iterdir()) == []


def test_doctor_reads_shipped_emulations(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = tmp_path / "profiles" / "recordings"
    shipped.mkdir(parents=True)
    whole, torn = shipped / "whole.xsemu", shipped / "torn.xsemu"
    whole.write_bytes(recording.read_bytes())
    torn.write_bytes(recording.read_bytes()[:-100])
    monkeypatch.setattr(recording_files, "data_dir", lambda _: tmp_path / "profiles")
    checks = {check.name: check for check in machine.check_recordings()}
    assert checks["emulation.whole"].status == "ok"
    assert "4 launches, emulation on H200" in checks["emulation.whole"].seen
    assert checks["emulation.torn"].status == "fail"


def test_a_recording_that_is_not_shipped_is_named() -> None:
    with pytest.raises(UsageError, match=r"no recording named 'b200-peer' is shipped \(there is: h200"):
        open_replay(EMULATE, "b200-peer")


def test_the_shipped_emulation_tells_what_the_schedules_did_on_an_h200() -> None:
    """Figures of every tile, a sample of the first launches' spans; bytes were checked when it ran."""
    device = open_replay(EMULATE)
    request = EmulationRequest.read(device.request, "the shipped recording")
    skeletons = [skeleton_of(case, request) for case in cases_of(request)]
    makespan_ns: dict[str, float] = {}
    for skeleton in skeletons:
        runs = list(device.run([skeleton] * request.repeats))
        makespan_ns[skeleton.label] = median(run.figures.makespan_ns for run in runs)
        for run in runs:
            assert run.verification.checked_bytes > 0
            assert run.verification.mismatched_bytes == 0
            assert run.arrays[TOTALS]["tiles"].tolist() == np.diff(skeleton.streams.first).tolist()
        assert len(runs[0].table.spans) > 0
    assert set(makespan_ns) == {"wave of 2", "interleaved D=13", "alternating"}
    assert makespan_ns["interleaved D=13"] < 0.95 * min(makespan_ns["wave of 2"], makespan_ns["alternating"])


def test_all_shipped_recordings_together_are_at_most_eight_megabytes() -> None:
    files = (data_dir("profiles") / "recordings").iterdir()
    assert sum(file.stat().st_size for file in files) <= 8_000_000


def test_a_shipped_space_is_at_most_a_quarter_of_a_megabyte() -> None:
    spaces = list((data_dir("profiles") / "spaces").iterdir())
    assert len(spaces) >= 3
    assert max(file.stat().st_size for file in spaces) <= 250_000
