"""``trace``: a run's launches, a study's answer, the cap and wrong asks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from tests.conftest import RunCli
from tests.h200 import H200
from tests.report.conftest import Kept
from tests.report.spans import assert_loads_in_perfetto, names, read_trace, slices
from tests.store.bursts import make_burst
from xstage_tune.experiments.study import Simulations
from xstage_tune.launches.skeletons import SKELETONS
from xstage_tune.search.study_case import load_study
from xstage_tune.store.facade import Store


def test_a_run_is_traced_launch_by_launch(kept: Kept, run_cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "run.json.gz"
    asked = ("--run", kept.calibration.run_id, "--max-events", "200000", "--store", str(kept.file))
    ended = run_cli("trace", *asked, "-o", str(file))
    assert (ended.exit_code, ended.stdout) == (0, f"{file}\n")
    trace = read_trace(file)
    assert_loads_in_perfetto(trace)
    assert trace["otherData"]["run"] == kept.calibration.run_id
    with Store.open(kept.file) as store:
        launches = store.launches(kept.calibration.run_id)
    assert [event["args"]["launch"] for event in slices(trace, pid=1)] == [each.sequence for each in launches]


def test_one_launch_has_all_its_spans(kept: Kept, run_cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "run.json.gz"
    asked = ("--run", kept.calibration.run_id, "--launch", "1", "--store", str(kept.file))
    assert run_cli("trace", *asked, "-o", str(file)).exit_code == 0
    trace = read_trace(file)
    with Store.open(kept.file) as store:
        launch = store.launches(kept.calibration.run_id)[1]
        spans = launch.table().spans
    assert len(slices(trace, pid=2)) == len(spans)
    assert slices(trace, pid=1)[0]["args"]["burst_bytes"] == launch.point["burst_bytes"]
    assert set(names(trace, "thread_name").values()) == {
        "launch", *(f"CTA {lane} issue" for lane in range(launch.info.producers))
    }  # fmt: skip


def test_what_the_cap_leaves_out_of_a_launch_is_said_on_stderr(
    kept: Kept, run_cli: RunCli, tmp_path: Path
) -> None:
    file = tmp_path / "run.json.gz"
    asked = ("--run", "latest", "--launch", "0", "--max-events", "10", "--store", str(kept.file))
    ended = run_cli("trace", *asked, "-o", str(file))
    assert len(slices(read_trace(file), pid=2)) == 10
    assert ended.stderr.startswith("xstage-tune: 10 of ")
    assert "spans are kept, the earliest of each launch; --max-events raises the limit" in ended.stderr
    assert ended.stdout == f"{file}\n"


def test_a_cap_below_the_number_of_launches_keeps_one_and_says_so(
    kept: Kept, run_cli: RunCli, tmp_path: Path
) -> None:
    file = tmp_path / "run.json.gz"
    with Store.open(kept.file) as store:
        launches = store.launches(kept.calibration.run_id)
    cap = len(launches) - 1
    asked = ("--run", kept.calibration.run_id, "--max-events", str(cap), "--store", str(kept.file))
    ended = run_cli("trace", *asked, "-o", str(file))
    trace = read_trace(file)
    assert_loads_in_perfetto(trace)
    assert len(slices(trace, pid=1)) == 1
    assert len(slices(trace, pid=2)) == min(cap, launches[0].span_count())
    assert f"the earliest of 1 of {len(launches):,} launches, evenly over the run" in ended.stderr
    assert (ended.exit_code, ended.stderr.count("\n")) == (0, 1)


def test_every_rank_of_a_launch_is_a_process(run_cli: RunCli, tmp_path: Path) -> None:
    store_file, file = tmp_path / "store.db", tmp_path / "t.json.gz"
    with Store.open(store_file) as store, store.begin_run(kind="run", argv=[], device=H200) as run:
        run.add_launch(0, make_burst(1))
        run.add_launch(0, make_burst(1), rank=3)
    assert run_cli("trace", "--run", run.id, "-o", str(file), "--store", str(store_file)).exit_code == 0
    assert set(names(read_trace(file), "process_name").values()) == {"launches", "rank 0", "rank 3"}


def test_latest_run_is_the_last_one_with_spans(run_cli: RunCli, tmp_path: Path) -> None:
    store_file, file = tmp_path / "store.db", tmp_path / "t.json.gz"
    with Store.open(store_file) as store:
        with store.begin_run(kind="run", argv=[], device=H200) as traced:
            traced.add_launch(0, make_burst(1))
        with store.begin_run(kind="run", argv=[], device=H200):
            pass
    assert run_cli("trace", "--run", "latest", "-o", str(file), "--store", str(store_file)).exit_code == 0
    assert read_trace(file)["otherData"]["run"] == traced.id


def test_a_launch_that_is_not_there_is_an_error(kept: Kept, run_cli: RunCli, tmp_path: Path) -> None:
    asked = ("--run", "latest", "--launch", "9999", "--store", str(kept.file))
    ended = run_cli("trace", *asked, "-o", str(tmp_path / "t.json.gz"))
    assert ended.exit_code == 2
    assert "has no launch 9999: they are numbered 0 to" in ended.stderr


def test_a_studys_answer_is_traced_with_both_roles_and_its_queue(
    kept: Kept, run_cli: RunCli, tmp_path: Path
) -> None:
    file = tmp_path / "study.json.gz"
    assert run_cli("trace", "--study", kept.moe, "-o", str(file), "--store", str(kept.file)).exit_code == 0
    trace = read_trace(file)
    assert_loads_in_perfetto(trace)
    with Store.open(kept.file) as store:
        study = load_study(store, kept.moe)
    run = Simulations(study.workload, study.platform).case(study.answer).run
    threads = set(names(trace, "thread_name").values())
    assert {"CTA 0 mainloop", "CTA 0 issue"} <= threads
    assert {"Linear-1 mainloop", "Linear-2 mainloop"} <= {event["name"] for event in slices(trace, pid=2)}
    issues = Counter(event["name"] for event in slices(trace, pid=2) if "issue" in event["name"])
    assert issues.total() == run.streams.tiles
    assert issues["Linear-2 issue, remote stores"] == np.count_nonzero(run.streams.remote_bytes)
    assert issues["Linear-1 issue, local stores"] > 0
    assert issues["Linear-1 issue, remote stores"] == 0
    whole = slices(trace, pid=1)[0]
    assert whole["dur"] * 1e3 <= run.makespan_ns + 1
    queue = [event["args"]["bytes"] for event in trace["traceEvents"] if event["ph"] == "C"]
    assert 0 < max(queue) <= run.peak_occupancy_bytes + 1


def test_an_emulations_tiles_are_told_apart(run_cli: RunCli, own_store: Path, tmp_path: Path) -> None:
    asked = ("-w", "megamoe/deepseek-v4-flash", "--set", "tokens=64", "-p", "h200-host")
    schedules = ("--schedule", "wave", "--schedule", "alternating", "--repeats", "1")
    emulated = run_cli("emulate", *asked, *schedules, "--device", "simulator", "--format", "json")
    assert emulated.exit_code == 0
    file = tmp_path / "run.json.gz"
    assert run_cli("trace", "--run", "latest", "-o", str(file)).exit_code == 0
    trace = read_trace(file)
    assert_loads_in_perfetto(trace)
    with Store.open(own_store) as store:
        launches = store.launches(store.run().id)
    for launch, whole in zip(launches, slices(trace, pid=1), strict=True):
        begin, end = whole["ts"], whole["ts"] + whole["dur"]
        inside = [event for event in slices(trace, pid=2) if begin <= event["ts"] <= end]
        issues = Counter(event["name"] for event in inside if "issue" in event["name"])
        assert issues.keys() == {"Linear-1 issue, local stores", "Linear-2 issue, remote stores"}
        assert issues.total() == launch.point_as(SKELETONS).tiles
        assert {event["name"] for event in inside} >= {"Linear-1 mainloop", "Linear-2 mainloop"}


def test_a_launch_of_a_study_is_refused(kept: Kept, run_cli: RunCli, tmp_path: Path) -> None:
    asked = ("--study", kept.moe, "--launch", "0", "--store", str(kept.file))
    assert run_cli("trace", *asked, "-o", str(tmp_path / "t.json.gz")).exit_code == 2
