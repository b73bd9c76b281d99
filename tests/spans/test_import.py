"""Spans of other programs in the store: what is read, what is shown of it, and what is refused."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import RunCli
from tests.report.spans import assert_loads_in_perfetto, names, read_trace, slices
from tests.spans.files import CHROME, HOSTILE, chrome_file, nsight_file
from tests.spans.recorded import recorded
from xstage_tune.base.errors import UsageError
from xstage_tune.base.text import printable
from xstage_tune.launches.imported import IMPORTED, Timeline
from xstage_tune.spans import new_buffer, save_buffer
from xstage_tune.spans.importing import read_spans
from xstage_tune.spans.timeline import OTHER_NAMES
from xstage_tune.store.facade import Store


def shown(timeline: Timeline) -> list[tuple[str, str, int, float, float]]:
    """(lane, name, index, begin ns, length ns) of each span."""
    table, about = timeline.table, timeline.about
    return [
        (about.lanes[span["lane"]], about.names[span["kind"]], int(span["index"]), begin, length)
        for span, begin, length in zip(
            table.spans, table.begin_ns().tolist(), table.duration_ns().tolist(), strict=True
        )
    ]


def test_a_chrome_trace_gives_complete_events_and_pairs_by_thread(tmp_path: Path) -> None:
    timeline = read_spans(chrome_file(tmp_path / "trace.json"))
    assert shown(timeline) == [
        ("rank 0 / CTA 3", "gemm", 7, 250, 2_500),
        ("rank 0 / CTA 3", printable(HOSTILE), 1, 2_750, 250),
        ("process a / thread b", "outer", 0, 0, 6e9),
        ("process a / thread b", "inner", 1, 1_000, 1_000),
    ]
    assert timeline.about.left_out == 3


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(CHROME),
        json.dumps(CHROME)[:-1] + ",\n",
        "\ufeff" + json.dumps({"a": 1, "traceEvents": CHROME}),
    ],
)
def test_other_forms_of_a_chrome_trace_give_the_same(text: str, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(text)
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(text.encode()))
    want = shown(read_spans(chrome_file(tmp_path / "whole.json")))
    assert shown(read_spans(tmp_path / "trace.json")) == shown(read_spans(tmp_path / "trace.json.gz")) == want


@pytest.mark.parametrize("text", [False, True])
def test_an_nsight_export_gives_kernels_copies_and_ranges(text: bool, tmp_path: Path) -> None:
    timeline = read_spans(nsight_file(tmp_path / "report.sqlite", text=text))
    thread = "process 1234 / main 1235, NVTX"
    assert shown(timeline) == [
        ("GPU 0 / stream 7", "fused", 0, 100, 500),
        ("GPU 0 / stream 7", "copy peer to peer", 1, 700, 100),
        ("GPU 1 / stream 7", "fused", 0, 1_100, 700),
        (thread, "step", 0, 0, 2_000),
        (f"{thread} start/end", "tile" if text else "range", 0, 50, 10),
    ]
    assert (timeline.gpu, timeline.about.left_out) == ("NVIDIA H200", 1)


def test_more_names_than_a_span_can_tell_apart_share_one(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "name": f"n{number}", "pid": 1, "tid": 1, "ts": 10 * number + repeat, "dur": 1}
        for number in range(300)
        for repeat in range(1 + (number < 200))
    ]
    spans = shown(read_spans(chrome_file(tmp_path / "trace.json", events)))
    named = [name for _, name, *_ in spans]
    assert {f"n{number}" for number in range(200)} <= set(named)
    assert len(set(named)) == 255
    assert named.count(OTHER_NAMES) == 300 - 254


@pytest.mark.usefixtures("own_store")
def test_what_is_imported_is_listed_shown_reported_and_traced(run_cli: RunCli, tmp_path: Path) -> None:
    save_buffer(
        recorded(), tmp_path / "own.spans", {1: "gemm", 2: "store"}, roles=("math", "store"), kernel="mine"
    )
    files = [tmp_path / "own.spans", chrome_file(tmp_path / "t.json"), nsight_file(tmp_path / "r.sqlite")]
    ended = run_cli("import", *map(str, files), "--format", "json")
    assert (ended.exit_code, ended.stderr) == (0, "")
    told = json.loads(ended.stdout)
    assert [(one["spans"], one["dropped"], one["left_out"]) for one in told["timelines"]] == [
        (6, 1, 0), (4, 0, 3), (5, 0, 1),
    ]  # fmt: skip
    listed = json.loads(run_cli("store", "list", "--kind", "import", "--format", "json").stdout)
    assert [(one["id"], one["trials"], one["device"]) for one in listed["entries"]] == [
        (told["run"], 3, "NVIDIA H200")
    ]
    details = json.loads(run_cli("store", "show", told["run"], "--format", "json").stdout)
    assert details["parts"]["spans"] == 15
    assert run_cli("store", "check").exit_code == 0

    page = tmp_path / "page.html"
    assert run_cli("report", "--run", "latest", "-o", str(page)).exit_code == 0
    text = page.read_text()
    assert "<script" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;" in text

    file = tmp_path / "trace.json.gz"
    assert run_cli("trace", "--run", "latest", "-o", str(file)).exit_code == 0
    trace = read_trace(file)
    assert_loads_in_perfetto(trace)
    assert [event["name"] for event in slices(trace, pid=1)] == ["mine", "t.json", "r.sqlite"]
    threads = names(trace, "thread_name")
    own = [(threads[2, event["tid"]], event["name"], event["dur"]) for event in slices(trace, pid=2)]
    assert sorted(own) == [
        ("CTA 0 math", "gemm", 0.2), ("CTA 0 math", "span 255", 0.45), ("CTA 0 math", "store", 0.05),
        ("CTA 1 math", "gemm", 0.5), ("CTA 1 math", "gemm", 0.5), ("CTA 1 math", "gemm", 1.0),
    ]  # fmt: skip


def test_a_trace_of_this_tool_comes_back_as_it_was(run_cli: RunCli, own_store: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.json.gz", tmp_path / "second.json.gz"
    assert run_cli("import", str(chrome_file(tmp_path / "t.json"))).exit_code == 0
    for file in (first, second):
        assert run_cli("trace", "--run", "latest", "-o", str(file)).exit_code == 0
        assert run_cli("import", str(file)).exit_code == 0
    with Store.open(own_store) as store:
        once, again = (store.launches(run.id)[0] for run in store.runs("import")[1::-1])
        assert (once.table().duration_ns() == again.table().duration_ns()).all()
        assert once.point_as(IMPORTED).names == again.point_as(IMPORTED).names


def bomb(file: Path) -> None:
    file.write_bytes(gzip.compress(b"[" + b" " * (130 << 20)))


def other_database(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.execute("CREATE VIEW NVTX_EVENTS AS SELECT 1 AS start, 2 AS 'end', 59 AS eventType")


def text_times(file: Path) -> None:
    nsight_file(file)
    with closing(sqlite3.connect(file)) as connection, connection:
        for table in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"):
            connection.execute(f"UPDATE {table} SET start = 'soon'")


def cut_database(file: Path) -> None:
    nsight_file(file)
    file.write_bytes(file.read_bytes()[:5000])


def no_text_in_schema(file: Path) -> None:
    """SQLite's own message is no text then."""
    nsight_file(file)
    data = file.read_bytes().replace(b"tableStringIds", b"table\xff\xfeingIds")
    file.write_bytes(data.replace(b"CREATE TABLE StringIds", b"CREATE TABLX StringIds"))


def events(text: str) -> Callable[[Path], None]:
    return lambda file: file.write_text(f'{{"traceEvents":{text}}}') and None


def raw(data: bytes) -> Callable[[Path], None]:
    return lambda file: file.write_bytes(data) and None


@pytest.mark.parametrize(
    ("write", "says"),
    [
        pytest.param(raw(b""), "no spans", id="empty"),
        pytest.param(raw(b"\x7fELF"), "no spans", id="other"),
        pytest.param(raw(b"{"), "JSON", id="cut json"),
        pytest.param(raw(b"\x1f\x8b\x08"), "cut short", id="cut gzip"),
        pytest.param(raw(b"\x1f\x8bnonsense"), "damaged", id="no gzip"),
        pytest.param(raw(b"[" * 100_000), "nested", id="deep"),
        pytest.param(raw(b'{"traceEvents":{}}'), "traceEvents", id="no events"),
        pytest.param(raw(b'["\xff"]'), "UTF-8", id="no text"),
        pytest.param(events("[1,[],null]"), "no spans", id="no objects"),
        pytest.param(events('[{"ph":"X","ts":NaN,"dur":1}]'), "never end", id="nan"),
        pytest.param(events('[{"ph":"X","ts":1e999,"dur":1}]'), "never end", id="infinite"),
        pytest.param(events('[{"ph":"X","ts":1,"dur":-1}]'), "never end", id="backwards"),
        pytest.param(events('[{"ph":"X","ts":{},"dur":[]}]'), "never end", id="no numbers"),
        pytest.param(bomb, "more than 128 MiB", id="bomb"),
        pytest.param(other_database, "no spans", id="other database"),
        pytest.param(text_times, "no spans", id="text for times"),
        pytest.param(cut_database, "SQLite", id="cut database"),
        pytest.param(no_text_in_schema, "SQLite", id="no text in the schema"),
        pytest.param(raw(b"SQLite format 3\0" + b"\xff" * 4000), "SQLite", id="no database"),
        pytest.param(raw(recorded().tobytes()[:100]), "take", id="cut buffer"),
        pytest.param(raw(recorded().tobytes() + b"{"), "names", id="cut names"),
        pytest.param(raw(recorded(2, 0).tobytes()), "no spans", id="no room"),
        pytest.param(raw(new_buffer(4, 3).tobytes()), "none of its 4", id="never ran"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_no_run(
    write: Callable[[Path], None], says: str, run_cli: RunCli, own_store: Path, tmp_path: Path
) -> None:
    file = tmp_path / "hostile.json"
    write(file)
    ended = run_cli("import", str(chrome_file(tmp_path / "good.json")), str(file))
    assert (ended.exit_code, ended.stdout) == (2, "")
    first, *hints = ended.stderr.splitlines()
    assert str(file) in first
    assert says in first
    assert len(hints) <= 1
    with Store.open(own_store) as store:
        assert store.runs() == []


def test_a_report_that_was_not_exported_says_how(tmp_path: Path) -> None:
    (tmp_path / "mine.nsys-rep").write_bytes(b"QD")
    with pytest.raises(UsageError) as caught:
        read_spans(tmp_path / "mine.nsys-rep")
    assert "nsys export --type sqlite" in caught.value.hint


def test_the_folder_of_the_header_is_printed_for_a_compiler(run_cli: RunCli) -> None:
    ended = run_cli("import", "--header-dir")
    assert ended.exit_code == 0
    assert (Path(ended.stdout.strip()) / "xstage" / "span.cuh").is_file()


def test_lanes_that_were_never_opened_do_not_move_the_others(tmp_path: Path) -> None:
    save_buffer(recorded(), tmp_path / "own.spans", {})
    assert np.isclose(read_spans(tmp_path / "own.spans").length_ns, 3_500)
