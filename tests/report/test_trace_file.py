"""Trace files: structure that viewers need, names, the cap, and faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.disk import room_for
from tests.report.spans import assert_loads_in_perfetto, names, read_trace, slices, span_table
from xstage_tune.base.errors import UsageError
from xstage_tune.base.spans import SpanKind, SpanTable
from xstage_tune.report.trace_file import Counter, TracedLaunch, TraceSummary, write_trace

MAINLOOP = SpanKind.MAINLOOP
ISSUE = SpanKind.ISSUE
STALL = SpanKind.STAGING_STALL


def launch(table: SpanTable, name: str = "one", **ranks: SpanTable) -> TracedLaunch:
    tables = {0: table} | {int(rank.removeprefix("rank")): each for rank, each in ranks.items()}
    return TracedLaunch(name, {"launch": 0}, sum(len(each.spans) for each in tables.values()), lambda: tables)


def long_launch(name: str, spans: int) -> TracedLaunch:
    """One CTA that issues a burst every 100 ns."""
    return launch(span_table([(0, ISSUE, 0, 100 * number, 50) for number in range(spans)]), name)


def two_roles() -> SpanTable:
    """A mainloop that waits inside, and the issue of its tile, on each of two CTAs."""
    return span_table(
        [
            (lane, kind, role, begin + lane, length)
            for lane in (0, 1)
            for kind, role, begin, length in (
                (MAINLOOP, 0, 1_000, 500),
                (STALL, 0, 1_400, 100),
                (ISSUE, 1, 1_500, 2_000),
            )
        ],
        lanes=2,
    )


def write(path: Path, *launches: TracedLaunch, most_spans: int = 1000, force: bool = False) -> TraceSummary:
    return write_trace(path, launches, most_spans=most_spans, about={"run": "r"}, force=force)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "spans.json.gz"


def test_each_role_of_a_cta_is_a_thread_of_its_rank_and_times_are_microseconds(file: Path) -> None:
    assert write(file, launch(two_roles())) == TraceSummary(1, 0, spans=6, spans_left_out=0)
    trace = read_trace(file)
    assert_loads_in_perfetto(trace)
    assert list(names(trace, "process_name").values()) == ["launches", "rank 0"]
    threads = names(trace, "thread_name")
    of_rank = {threads[event["pid"], event["tid"]]: [] for event in slices(trace, pid=2)}
    for event in slices(trace, pid=2):
        of_rank[threads[event["pid"], event["tid"]]].append((event["name"], event["ts"], event["dur"]))
    assert of_rank == {
        "CTA 0 mainloop": [("mainloop", 1.0, 0.5), ("staging stall", 1.4, 0.1)],
        "CTA 0 issue": [("issue", 1.5, 2.0)],
        "CTA 1 mainloop": [("mainloop", 1.001, 0.5), ("staging stall", 1.401, 0.1)],
        "CTA 1 issue": [("issue", 1.501, 2.0)],
    }
    assert {event["args"]["sm"] for event in slices(trace, pid=2)} == {10, 11}


def test_launches_follow_one_another_each_under_its_own_slice(file: Path) -> None:
    write(file, launch(two_roles(), "first"), launch(two_roles(), "second"))
    trace = read_trace(file)
    assert_loads_in_perfetto(trace)
    first, second = slices(trace, pid=1)
    assert (first["name"], second["name"]) == ("first", "second")
    assert first["ts"] + first["dur"] < second["ts"]
    inside = [event for event in slices(trace, pid=2) if event["ts"] >= second["ts"]]
    assert len(inside) == 6
    assert max(event["ts"] + event["dur"] for event in inside) == pytest.approx(second["ts"] + second["dur"])


def test_ranks_are_processes(file: Path) -> None:
    write(file, launch(two_roles(), rank1=two_roles()))
    trace = read_trace(file)
    assert set(names(trace, "process_name").values()) == {"launches", "rank 0", "rank 1"}
    assert len(slices(trace, pid=2)) == len(slices(trace, pid=3)) == 6


def slices_of_launches(file: Path) -> dict[str, list[float]]:
    """Begins of the spans under each launch's slice, in us after the launch."""
    trace = read_trace(file)
    assert_loads_in_perfetto(trace)
    spans = slices(trace, pid=2)
    return {
        whole["name"]: [
            pytest.approx(event["ts"] - whole["ts"])
            for event in spans
            if whole["ts"] <= event["ts"] <= whole["ts"] + whole["dur"]
        ]
        for whole in slices(trace, pid=1)
    }


def test_cap_keeps_the_earliest_spans_of_every_launch_and_counts_the_rest(file: Path) -> None:
    launches = [long_launch(name, 1_000) for name in ("a", "b", "c")]
    assert write(file, *launches, most_spans=1_800) == TraceSummary(3, 0, spans=1_800, spans_left_out=1_200)
    begins_us = [number / 10 for number in range(600)]
    assert slices_of_launches(file) == {"a": begins_us, "b": begins_us, "c": begins_us}


def test_launches_that_would_show_nothing_are_left_out_evenly(file: Path) -> None:
    launches = [long_launch(str(number), 600) for number in range(9)]
    assert write(file, *launches, most_spans=1_500) == TraceSummary(3, 6, spans=1_500, spans_left_out=3_900)
    assert {name: len(begins) for name, begins in slices_of_launches(file).items()} == {
        "0": 500, "4": 500, "8": 500
    }  # fmt: skip


@pytest.mark.parametrize("most_spans", [1, 8])
def test_a_cap_below_the_number_of_launches_keeps_the_begin_of_one(file: Path, most_spans: int) -> None:
    launches = [long_launch(str(number), 600) for number in range(9)]
    assert write(file, *launches, most_spans=most_spans) == TraceSummary(
        1, 8, spans=most_spans, spans_left_out=9 * 600 - most_spans
    )
    assert slices_of_launches(file) == {"0": [number / 10 for number in range(most_spans)]}


def test_small_launches_are_kept_whole_beside_a_long_one(file: Path) -> None:
    launches = [long_launch("long", 5_000), *(long_launch(f"short {number}", 20) for number in range(50))]
    summary = write(file, *launches, most_spans=2_000)
    assert summary == TraceSummary(51, 0, spans=2_000, spans_left_out=4_000)


def test_a_small_launch_leaves_its_part_of_the_cap_to_others(file: Path) -> None:
    small = launch(span_table([(0, ISSUE, 0, 0, 10)]))
    assert write(file, small, launch(two_roles()), most_spans=7).spans_left_out == 0
    assert write(file, launch(two_roles()), small, most_spans=7, force=True).spans_left_out == 0


def test_spans_of_a_lane_whose_clock_stood_are_counted_as_left_out(file: Path) -> None:
    table = span_table([(0, ISSUE, 0, 100, 10), (1, ISSUE, 0, 100, 10)], lanes=2, stopped=[1])
    assert write(file, launch(table)) == TraceSummary(1, 0, spans=1, spans_left_out=1)
    assert_loads_in_perfetto(read_trace(file))


def test_counters_belong_to_the_launch(file: Path) -> None:
    queue = Counter("queue", "bytes", np.array([0.0, 250.0]), np.array([0.0, 4096.0]))
    traced = TracedLaunch("one", {}, 6, lambda: {0: two_roles()}, (queue,))
    write(file, launch(two_roles()), traced)
    trace = read_trace(file)
    start_us = slices(trace, pid=1)[1]["ts"]
    samples = [event for event in trace["traceEvents"] if event["ph"] == "C"]
    assert [(sample["ts"], sample["args"]) for sample in samples] == [
        (pytest.approx(start_us), {"bytes": 0}),
        (pytest.approx(start_us + 0.25), {"bytes": 4096}),
    ]


def test_a_launch_without_spans_and_no_launch_at_all_still_load(file: Path) -> None:
    write(file, launch(span_table([])))
    assert_loads_in_perfetto(read_trace(file))
    write(file, force=True)
    assert_loads_in_perfetto(read_trace(file))


def test_same_spans_give_the_same_bytes(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json.gz"
    write(file, launch(two_roles()))
    write(other, launch(two_roles()))
    assert file.read_bytes() == other.read_bytes()


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**6), st.floats(0, 1)), max_size=20),
    st.integers(1, 10**9),
)
def test_nested_spans_still_nest_after_rounding(
    file: Path, tiles: list[tuple[int, int, float]], tick_end: int
) -> None:
    """Ticks are no whole nanoseconds here, and a wait ends where its mainloop ends."""
    rows, at = [], 0
    for length, pause, part in tiles:
        waited = int(length * part)
        rows += [(0, MAINLOOP, 0, at, length), (0, STALL, 0, at + length - waited, waited)]
        at += length + pause
    table = span_table(rows)
    table.lanes["tick_end"] = tick_end
    write(file, launch(table), force=True)
    assert_loads_in_perfetto(read_trace(file))


def test_an_existing_file_is_kept_unless_forced(file: Path) -> None:
    file.write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        write(file, launch(two_roles()))
    assert file.read_text() == "mine"
    write(file, launch(two_roles()), force=True)
    assert_loads_in_perfetto(read_trace(file))


def test_a_failure_in_the_middle_leaves_no_file(file: Path) -> None:
    def broken() -> dict[int, SpanTable]:
        raise UsageError("damaged")

    with pytest.raises(UsageError, match="damaged"):
        write(file, launch(two_roles()), TracedLaunch("bad", {}, 1, broken))
    assert list(file.parent.iterdir()) == []


def test_a_full_disk_is_an_error_that_leaves_no_file(file: Path) -> None:
    with room_for(100), pytest.raises(UsageError, match=rf"^cannot write {file}: File too large$"):
        write(file, launch(two_roles()))
    assert list(file.parent.iterdir()) == []


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        write(tmp_path / "file" / "t.json.gz", launch(two_roles()))
