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
from xstage_tune.devices.open_skeletons import open_cuda_skeletons, open_replay, parse_spec
from xstage_tune.doctor import machine
from xstage_tune.experiments.emulation.cases import cases_of, skeleton_of
from xstage_tune.experiments.emulation.request import EmulationRequest, request_from_keys
from xstage_tune.launches import burst_recording
from xstage_tune.launches.archive import ArchiveWriter, new_archive
from xstage_tune.launches.launch_recording import LaunchManifest, new_manifest
from xstage_tune.launches.skeleton_figures import figures_of
from xstage_tune.launches.skeleton_recording import EMULATION, RecordedLaunch, record_launch, sampled
from xstage_tune.launches.skeleton_replay import ReplayedSkeletons
from xstage_tune.launches.skeletons import Skeleton

REQUEST = EmulationRequest(
    moe(tokens_per_rank=256), HOST, megamoe_config(block_m=64), ("alternating", "clamped-lag"), "host"
)
SKELETONS = [skeleton_of(case, REQUEST) for case in cases_of(REQUEST)]
ORDER = [SKELETONS[0], SKELETONS[1], SKELETONS[1], SKELETONS[0]]
RUNS = list(ScriptedGpu().run_skeletons(ORDER))


def new_recording(file: Path) -> AbstractContextManager[ArchiveWriter[LaunchManifest[RecordedLaunch]]]:
    return new_archive(file, EMULATION, new_manifest(H200, "emulation on H200", REQUEST.keys()))


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    file = tmp_path / "run.xsemu"
    with new_recording(file) as writer:
        for run in RUNS:
            record_launch(writer, run, figures_of(run))
    return file


def test_launches_come_back_with_exact_figures_and_totals(recording: Path) -> None:
    device = ReplayedSkeletons(recording)
    for replayed, original in zip(device.run_skeletons(ORDER), RUNS, strict=True):
        assert replayed.makespan_ns == original.makespan_ns
        assert figures_of(replayed) == figures_of(original)
        assert np.array_equal(replayed.totals, original.totals)
        assert replayed.verification == original.verification
        assert replayed.launch == original.launch
    assert device.request == REQUEST.keys()
    assert device.describe() == replace(H200, kind="replay")
    assert device.identity == "emulation on H200, replayed"


def test_spans_are_of_the_first_launch_of_each_skeleton(recording: Path) -> None:
    replayed = list(ReplayedSkeletons(recording).run_skeletons(ORDER))
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
        ([other_tiles()], "is of other tiles"),
    ],
)
def test_what_was_not_recorded_is_refused(recording: Path, asked: list[Skeleton], complaint: str) -> None:
    with pytest.raises(UsageError) as refusal:
        list(ReplayedSkeletons(recording).run_skeletons(asked))
    assert complaint in refusal.value.message
    assert "emulate --device cuda --record FILE" in refusal.value.hint


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.999])
def test_a_truncated_recording_is_refused(recording: Path, kept: float) -> None:
    data = recording.read_bytes()
    recording.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(UsageError, match=r"run\.xsemu cannot be replayed: it is truncated") as refusal:
        ReplayedSkeletons(recording)
    assert "xstage-tune emulate --record FILE" in refusal.value.hint


@pytest.mark.parametrize("member", ["tables", "00001.totals"])
def test_damaged_data_are_refused_when_they_are_read(recording: Path, member: str) -> None:
    data = bytearray(recording.read_bytes())
    data[zipfile.ZipFile(recording).getinfo(member).header_offset + 80] ^= 0xFF
    recording.write_bytes(data)
    with pytest.raises(UsageError, match="cannot be replayed"):
        list(ReplayedSkeletons(recording).run_skeletons(ORDER))


def test_a_recorded_calibration_is_no_emulation(tmp_path: Path) -> None:
    file = tmp_path / "bursts.xsemu"
    request = burst_recording.RecordedRequest("host", ("st.v4",), "quick", 0)
    with new_archive(file, burst_recording.CALIBRATION, burst_recording.new_manifest(H200, request)):
        pass
    with pytest.raises(UsageError, match=r"bursts\.xsemu is a recording of calibrate, not of emulate"):
        ReplayedSkeletons(file)


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "recordings" / "run.xsemu"

    def record() -> None:
        with new_recording(file) as writer:
            record_launch(writer, RUNS[0], figures_of(RUNS[0]))

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
    monkeypatch.setattr(machine, "data_dir", lambda _: tmp_path / "profiles")
    checks = {check.name: check for check in machine.check_recordings()}
    assert checks["emulation.whole"].status == "ok"
    assert "4 launches, emulation on H200" in checks["emulation.whole"].seen
    assert checks["emulation.torn"].status == "fail"


def test_specs() -> None:
    assert parse_spec("cuda").which == ""
    assert parse_spec("cuda:3").which == "3"
    assert parse_spec("replay").which == ""
    assert parse_spec("replay:./a.xsemu").which == "./a.xsemu"
    assert parse_spec("auto").kind == "auto"


@pytest.mark.parametrize("spec", ["gpu", "", "CUDA", "simulator:1", "auto:2", "cuda:", "replay:"])
def test_a_malformed_spec_is_refused(spec: str) -> None:
    with pytest.raises(UsageError, match="--device"):
        parse_spec(spec)


def test_a_gpu_that_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match="'cuda:x' names no GPU"):
        open_cuda_skeletons("x")


def test_a_recording_that_is_not_shipped_is_named() -> None:
    with pytest.raises(UsageError, match=r"no recording named 'b200-peer' is shipped \(there is: h200"):
        open_replay("b200-peer")


def test_the_shipped_emulation_tells_what_the_schedules_did_on_an_h200() -> None:
    """Figures of every tile, a sample of the first launches' spans; bytes were checked when it ran."""
    device = open_replay("")
    request = request_from_keys(device.request, "the shipped recording")
    skeletons = [skeleton_of(case, request) for case in cases_of(request)]
    makespan_ns: dict[str, float] = {}
    for skeleton in skeletons:
        runs = list(device.run_skeletons([skeleton] * request.repeats))
        makespan_ns[skeleton.label] = median(run.makespan_ns for run in runs)
        for run in runs:
            assert run.verification.checked_bytes > 0
            assert run.verification.mismatched_bytes == 0
            assert run.totals["tiles"].tolist() == np.diff(skeleton.streams.first).tolist()
        assert len(runs[0].table.spans) > 0
    assert set(makespan_ns) == {"wave of 2", "interleaved D=13", "alternating"}
    assert makespan_ns["interleaved D=13"] < 0.95 * min(makespan_ns["wave of 2"], makespan_ns["alternating"])


def test_all_shipped_recordings_together_are_at_most_eight_megabytes() -> None:
    files = (data_dir("profiles") / "recordings").iterdir()
    assert sum(file.stat().st_size for file in files) <= 8_000_000
