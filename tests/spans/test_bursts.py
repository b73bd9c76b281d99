"""Bursts of imported timelines: what is taken from the spans, audited, and emulated again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.own_kernel.replay_spans import CASES, replayed
from tests.conftest import RunCli
from tests.spans.files import chrome_file
from tests.spans.recorded import recorded
from xstage_tune.base.errors import UsageError
from xstage_tune.experiments.burst_replay import ReplayRequest, skeleton_of
from xstage_tune.platforms.loader import load_platform
from xstage_tune.spans import save_buffer
from xstage_tune.spans.bursts import StoreBursts, bursts_of
from xstage_tune.spans.importing import read_spans


def event(tid: int, name: str, begin_us: float, length_us: float, **args: int) -> dict[str, object]:
    return {"ph": "X", "pid": 1, "tid": tid, "name": name, "ts": begin_us, "dur": length_us, "args": args}


#: Two lanes that store after 10 us of work; the second one's first bursts overlap.
EVENTS = [
    event(1, "work", 0, 10), event(1, "store", 10, 2), event(1, "store", 22, 3), event(1, "store", 30, 1),
    event(2, "work", 1, 9), event(2, "store", 10, 5), event(2, "store", 12, 1), event(2, "store", 20, 4),
]  # fmt: skip


def bursts(file: Path, *names: str) -> StoreBursts:
    timeline = read_spans(file)
    return bursts_of(timeline.about, timeline.table, names)


def test_gaps_are_from_the_end_of_all_bursts_before_on_the_same_sm(tmp_path: Path) -> None:
    found = bursts(chrome_file(tmp_path / "t.json", EVENTS), "store")
    assert found.first.tolist() == [0, 3, 6]
    assert found.gap_ns.tolist() == [10e3, 10e3, 5e3, 10e3, 0, 5e3]
    assert found.length_ns.tolist() == [2e3, 3e3, 1e3, 5e3, 1e3, 4e3]
    assert (found.makespan_ns, found.median_gap_ns) == (31e3, 5e3)


def test_lanes_of_one_sm_are_taken_together_where_spans_tell_theirs(tmp_path: Path) -> None:
    told = [{**one, "args": {"sm": 40}} for one in EVENTS]
    found = bursts(chrome_file(tmp_path / "t.json", told), "store")
    assert (found.sms.tolist(), found.first.tolist()) == ([40], [0, 6])
    save_buffer(recorded(), tmp_path / "own.spans", {1: "store"})
    assert bursts(tmp_path / "own.spans", "store").sms.tolist() == [7]


def test_a_name_that_no_span_has_is_refused_with_those_there_are(tmp_path: Path) -> None:
    file = chrome_file(tmp_path / "t.json", EVENTS)
    for names in (("nothing",), ()):
        with pytest.raises(UsageError) as caught:
            bursts(file, *names)
        assert "'store', 'work'" in caught.value.hint


def replay_of(gap_ns: float, sms: int = 1) -> None:
    platform = load_platform("h200-host")
    request = ReplayRequest(
        run="r", names=(), burst_bytes=1024, platform=platform, path=platform.path, flavour="st.v4"
    )
    some = np.full(sms, gap_ns)
    skeleton_of(StoreBursts("f", np.arange(sms), np.arange(sms + 1), some, some, gap_ns), request)


def test_what_no_skeleton_runs_is_refused() -> None:
    replay_of(1e6)
    with pytest.raises(UsageError, match="longer than a spin"):
        replay_of(1e9)
    with pytest.raises(UsageError, match="SMs of 'h200-host'"):
        replay_of(1e3, 133)


@pytest.mark.usefixtures("own_store")
def test_an_imported_run_is_audited_and_emulated_by_commands(run_cli: RunCli, tmp_path: Path) -> None:
    assert run_cli("import", str(chrome_file(tmp_path / "t.json", EVENTS))).exit_code == 0
    asked = (
        "--from",
        "latest",
        "--burst",
        "store",
        "--burst-bytes",
        "4KiB",
        "-p",
        "h200-host",
        "--format",
        "json",
    )
    audited = json.loads(run_cli("audit", *asked).stdout)
    by_numbers = (
        "--burst-bytes",
        "4KiB",
        "--producers",
        "2",
        "--gap-us",
        "5",
        "-p",
        "h200-host",
        "--format",
        "json",
    )
    assert audited == json.loads(run_cli("audit", *by_numbers).stdout)
    emulated = json.loads(run_cli("emulate", *asked, "--device", "simulator", "--repeats", "2").stdout)
    (timeline,) = emulated["timelines"]
    assert (timeline["bursts"], timeline["producers"], timeline["recorded_makespan_ns"]) == (6, 2, 31e3)
    assert 25e3 < timeline["makespan_ns"] < 31e3
    for command, wrong, says in (
        ("emulate", ("-w", "fa-a2a/paper"), "--workload"),
        ("emulate", ("--record", "x.xsemu"), "--record"),
        ("audit", ("-w", "fa-a2a/paper"), "--workload"),
    ):
        ended = run_cli(command, *asked, *wrong)
        assert (ended.exit_code, ended.stdout) == (2, "")
        assert says in ended.stderr
    assert run_cli("emulate", "-w", "fa-a2a/paper", "--burst-bytes", "4KiB").exit_code == 2
    assert run_cli("audit", "--burst", "store", "--burst-bytes", "4KiB", "--gap-us", "1").exit_code == 2


def test_a_simulated_launch_takes_the_same_time_once_imported(tmp_path: Path) -> None:
    first_ns, again_ns = replayed(*CASES[0], tmp_path, told=True)
    assert again_ns == pytest.approx(first_ns, rel=0.01)
