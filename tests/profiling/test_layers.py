"""``profile`` of a MoE layer: schedules in turn, their stalls and predictions, what is kept and replayed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import RunCli, without_choice
from tests.profiling import layers
from tests.profiling.gpu import use
from tests.profiling.layers import SMALL, ScriptedLayers, spans_of
from tests.report.pages import Page
from xstage_tune.base.activity import merged
from xstage_tune.experiments.schedules.request import LayerRequest
from xstage_tune.families.megamoe.span_figures import (
    first_consumers,
    layer_spans,
    part_stalls,
    tensor_activity,
)
from xstage_tune.families.megamoe.timing import AT_ONCE, LOCAL, SERIAL

KINDS = ("wave", "interleaved", "alternating", "clamped-lag")
QUICK = (*SMALL, "--repeats", "2")


def profiled(run_cli: RunCli, *arguments: str) -> dict[str, Any]:
    """The JSON of a run that succeeds."""
    result = run_cli("profile", *arguments, "--format", "json")
    assert (result.exit_code, without_choice(result.stderr)) == (0, "")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def by_kind(point: dict[str, Any], group: str, suffix: str = "") -> dict[str, Any]:
    """Of a group of a point's figures, those of each schedule's name with a suffix."""
    names = {kind: next(name for name in point["predicted"] if name.startswith(kind)) for kind in KINDS}
    return {kind: point[group][name + suffix] for kind, name in names.items()}


@pytest.fixture
def serial(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with torch."""
    monkeypatch.setattr(LayerRequest, "on_this_machine", classmethod(lambda *_: {"serial": True}))


@pytest.mark.usefixtures("serial")
def test_json_has_every_schedule_beside_serial_and_predictions(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = use(monkeypatch, ScriptedLayers())
    found = profiled(run_cli, *SMALL, "--repeats", "8")
    (point,) = found["points"]
    times = {kind: one["time_ns"] for kind, one in by_kind(point, "implementations").items()}
    assert times == pytest.approx({kind: 1e3 * us for kind, us in layers.TIMES_US.items()}, rel=1e-4)
    rate = by_kind(point, "implementations")["interleaved"]["tflop_per_s"]
    assert rate == pytest.approx(6 * 1536 * 1024 * 512 / 100e-6 / 1e12, rel=1e-3)
    ratio = by_kind(point, "implementations")["interleaved"]["first_over_it"]
    assert ratio["low"] <= 1.2 <= ratio["high"]
    assert point["interleaved_over_wave"]["measured"] == pytest.approx(1.2, rel=1e-4)
    assert point["implementations"][SERIAL]["time_ns"] == pytest.approx(160e3, rel=1e-4)
    assert point["exposed_ns"] == pytest.approx(2000, abs=7)
    assert point["recording_overhead_ns"] == pytest.approx(1200, abs=7)
    for prediction in by_kind(point, "predicted").values():
        assert prediction["simulated"]["latency_ns"] > 0
        assert prediction["closed_form"]["latency_ns"] > 0
        assert 0 < prediction["simulated"]["active"] <= 1
    # Of four parts of Linear-2 two are followed by Linear-2, which covers too little, and two by Linear-1.
    stall = by_kind(point, "stalls")["wave"]
    assert (stall["issue_ns"], stall["l1_ns"], stall["l2_ns"]) == (7000, 9000, 5000)
    assert stall["measured_mean_ns"] == stall["expected_mean_ns"] == pytest.approx(2 * 1900 / 3)
    assert point["stalls"][LOCAL]["issue_ns"] == layers.LOCAL_NS
    # Every place of every repeat's order, and each implementation first equally often.
    first = [turns[0] for turns in gpu.in_turn]
    assert len(gpu.in_turn) == 8
    assert len(set(first)) == len(first)
    assert {len(turns) for turns in gpu.in_turn} == {len(KINDS) + 4}


def test_nothing_is_timed_before_all_is_right(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = use(monkeypatch, ScriptedLayers(wrong="alternating"))
    result = run_cli("profile", *QUICK)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the output of alternating is wrong" in result.stderr
    assert "slot 3 of rank 1 differs; 256 of 4,096 bytes" in result.stderr
    assert {what for _, _, what in gpu.asked} == {"check"}


def test_tables_page_and_trace_show_it_and_it_replays(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, ScriptedLayers())
    file, page, trace = tmp_path / "run.xsprof", tmp_path / "run.html", tmp_path / "run.json.gz"
    shown = run_cli("profile", *QUICK, "--record", str(file))
    assert shown.exit_code == 0
    for part in (
        "Stalls of Linear-2", "equation 15", "Tensor active", "T_RS", "no serial baseline", "simulated",
        "rate bound", LOCAL,
    ):  # fmt: skip
        assert part in shown.stdout
    assert run_cli("report", "--run", "latest", "-o", str(page)).exit_code == 0
    text = Page(page.read_text(encoding="utf-8")).text
    for part in ("Tensor Cores over time", "Timelines", "Span distributions", "1.200x the time"):
        assert part in text
    assert run_cli("trace", "--run", "latest", "-o", str(trace)).exit_code == 0
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    named = {event["name"] for event in events if event["ph"] == "X"}
    assert {"Linear-1 mainloop", "Linear-2 mainloop", "Linear-2 issue, remote stores"} <= named
    threads = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"CTA 3 consumer 1", "CTA 0 storer 0"} <= threads
    live, replayed = profiled(run_cli, *QUICK), profiled(run_cli, "--device", f"replay:{file}")
    assert replayed.pop("device") == live.pop("device") + ", replayed"
    assert (live.pop("platform_recorded"), replayed.pop("platform_recorded")) == (False, True)
    for result in (live, replayed):
        del result["run_id"]
    for one, other in zip(live["points"], replayed["points"], strict=True):
        assert one["stalls"] == other["stalls"]
        assert one["predicted"].keys() == other["predicted"].keys()


@pytest.mark.parametrize(("sweep", "values"), [("tokens=64,192", 2), ("lead=2,8", 2)])
def test_a_sweep_is_a_line_a_value_and_a_figure(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sweep: str, values: int
) -> None:
    use(monkeypatch, ScriptedLayers())
    shown = run_cli("profile", *QUICK, "--sweep", sweep)
    assert shown.exit_code == 0
    assert ("interleaved over wave" in shown.stdout) == sweep.startswith("tokens")
    page = tmp_path / "run.html"
    assert run_cli("report", "--run", "latest", "-o", str(page)).exit_code == 0
    assert page.read_text().count("Stalls of Linear-2") == values


def test_stalls_are_those_of_the_slot_that_a_part_held() -> None:
    table = spans_of(f"wave{AT_ONCE}", ctas=1)
    stalls = part_stalls(table, slots=1)
    assert stalls.stall_ns.tolist() == stalls.expected_ns.tolist()
    covers = {layers.L2_NS + layers.OPERAND_NS, layers.L1_NS + layers.OPERAND_NS}
    assert set(stalls.cover_ns.tolist()) == covers
    assert part_stalls(table, slots=2).cover_ns.min() > 2 * layers.L2_NS


def test_an_sm_is_active_while_either_consumer_is() -> None:
    begin, end = merged(np.array([1, 0, 0]), np.array([0.0, 5.0, 0.0]), np.array([4.0, 8.0, 6.0]))
    assert sorted(zip(begin.tolist(), end.tolist(), strict=True)) == [(0.0, 4.0), (0.0, 8.0)]
    table = spans_of("wave")
    figures = layer_spans(table, 1)
    assert tensor_activity(table, 10).value.mean() == pytest.approx(figures.active)
    # The second consumer is 50 ns behind, and both wait for operands for longer.
    assert figures.active < 1


def test_the_first_consumer_is_told_as_a_skeleton_s_cta() -> None:
    told = first_consumers(spans_of("wave", ctas=2))
    assert told.first.tolist() == [0, 8, 16]
    assert told.linear2.tolist() == [False, False, True, True] * 4
    assert set(told.table.spans["role"].tolist()) == {0, 1}
    assert told.table.spans["lane"].max() == 1
