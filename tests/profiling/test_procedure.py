"""Order of the launches, cases of a request, and conclusions from times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pytest

from tests.configs.cases import attention, attention_config
from tests.profiling.gpu import ScriptedProfiles
from xstage_tune.base.errors import FindingError, UsageError
from xstage_tune.base.progress import NoProgress
from xstage_tune.experiments.emulation.sweep import TOKENS, parse_sweep
from xstage_tune.experiments.launch_order import balanced
from xstage_tune.experiments.profiling.procedure import profile
from xstage_tune.experiments.profiling.use import LaunchResult
from xstage_tune.experiments.timing.comparison import COMPARED, block
from xstage_tune.experiments.timing.prediction import predict
from xstage_tune.experiments.timing.procedure import replay_order
from xstage_tune.experiments.timing.request import ProfileRequest
from xstage_tune.experiments.timing.result import Compared, ProfileResult, conclude
from xstage_tune.families.attention_a2a.check import require_right
from xstage_tune.families.attention_a2a.timing import (
    IMPLEMENTATIONS,
    RECORDING,
    AttentionLaunch,
    Implementation,
)
from xstage_tune.families.profiled import CheckFigures, ReplayFigures
from xstage_tune.launches.device import Verification
from xstage_tune.platforms.loader import load_platform
from xstage_tune.report.profile_page import sweep_figure
from xstage_tune.report.scales import panel_scales

HOST = load_platform("h200-host")


def request(**changes: Any) -> ProfileRequest:
    values: dict[str, Any] = {
        "workload": attention(tokens=1024), "platform": HOST, "config": attention_config(), "path": "host",
        "repeats": 3,
    }  # fmt: skip
    return ProfileRequest(**{**values, **changes})


class Plan(NoProgress):
    """How many launches were planned."""

    total = 0

    def planned(self, total: int) -> None:
        self.total = total


def test_all_is_checked_then_timed_alone_and_in_turn_then_recorded() -> None:
    gpu, plan = ScriptedProfiles(), Plan()
    results = profile(gpu, request(), plan)
    assert len(results) == plan.total == 7 + 3 * (7 + 7 * 4) + 2
    asked = [(what, one) for _, one, what in gpu.asked]
    assert asked[:7] == [("check", one) for one in IMPLEMENTATIONS]
    assert asked[-2:] == [("spans", "attention"), ("spans", "fused")]
    assert len(gpu.in_turn) == 3 * (7 + 7)
    begins_alone, begins = set(), set()
    for repeat in range(3):
        alone, blocks = gpu.in_turn[14 * repeat :][:7], gpu.in_turn[14 * repeat + 7 :][:7]
        assert sorted(alone) == sorted((one,) for one in IMPLEMENTATIONS)
        assert sorted(blocks) == sorted(block(one) for one in (*COMPARED, *RECORDING.values()))
        begins_alone.add(alone[0])
        begins.add(blocks[0])
    assert (len(begins_alone), len(begins)) == (3, 3)


def test_a_recording_variant_is_compared_with_what_it_records() -> None:
    assert block("fused-recording") == ("fused", "fused-recording", "fused-recording", "fused")
    assert block("attention-recording")[::3] == block("fused")[::3] == ("attention", "attention")


def former_request(**changes: Any) -> tuple[ProfileRequest, ProfileRequest]:
    """A request, and what a former version's keys of it are read as."""
    asked = request()
    keys = asked.keys()
    del keys["replays"]
    return asked, ProfileRequest.read({**keys, **changes}, "a test")


def test_a_request_of_before_anything_ran_in_turn_has_blocks_behind_the_all_to_all() -> None:
    asked, former = former_request(bracketed=True)
    assert former == asked.changed(replays="blocks")
    gpu = ScriptedProfiles()
    profile(gpu, former, NoProgress())
    compared = COMPARED[:4]  # none that is received
    turns = [[*compared], [*compared[1:], compared[0]], [*compared[2:], *compared[:2]]]
    assert gpu.in_turn == [*[("all-to-all",)] * 3, *(block(one) for turn in turns for one in turn)]


def test_a_request_of_before_there_were_blocks_has_its_balanced_order() -> None:
    asked, former = former_request()
    assert former == asked.changed(replays="balanced")
    gpu = ScriptedProfiles()
    profile(gpu, former, NoProgress())
    assert len(gpu.asked) == 6 * 4 + 2
    order = [IMPLEMENTATIONS[index] for repeat in range(3) for index in balanced(6, repeat)]
    assert gpu.in_turn == [(one,) for one in order]


def test_a_request_of_before_one_was_received_asks_for_the_others() -> None:
    _, former = former_request(replays="in-turn")
    gpu = ScriptedProfiles()
    profile(gpu, former, NoProgress())
    assert {one for _, one, _ in gpu.asked} == {*IMPLEMENTATIONS[:6], *RECORDING.values()}
    assert len(gpu.in_turn) == 3 * (6 + 6)


def test_cases_of_a_sweep_run_one_behind_the_other() -> None:
    gpu = ScriptedProfiles()
    profile(gpu, request(sweep=parse_sweep("tokens=256,1000", TOKENS), repeats=1), NoProgress())
    labels = [label for label, _, _ in gpu.asked]
    assert labels == ["tokens=256"] * 44 + ["tokens=1000"] * 44


@pytest.mark.parametrize(
    ("fraction", "remote_ranks", "local_tokens"), [(None, 7, 125), (1.0, 8, 0), (0.5, 4, 500), (0.0, 0, 1000)]
)
def test_the_remote_fraction_decides_whose_buffers_are_remote(
    fraction: float | None, remote_ranks: int, local_tokens: int
) -> None:
    case = request(workload=attention(tokens=1000, remote_fraction=fraction)).case_at(None)
    assert (case.remote_ranks, case.local_tokens) == (remote_ranks, local_tokens)
    assert case.remote_bytes == (1000 - local_tokens) * 2 * 128 * 2
    assert case.flops == 4 * 1000**2 * 128 * 2


def test_the_closed_form_drains_what_own_tiles_leave_of_the_last_round() -> None:
    """132 tiles of either head in two rounds; 16.5 tiles a head are own rows, and all in the second round."""
    config = attention_config(output_staging="dedicated-x1", tile_order="own-last")
    found = predict(request(workload=attention(tokens=132 * 128), config=config), None)
    assert found is not None
    drain_ns = (132 - 2 * 16.5) * 32_768 / HOST.drain.bytes_per_s * 1e9
    assert found.closed.last_drain_ns == pytest.approx(drain_ns)


def test_a_request_comes_back_from_its_keys() -> None:
    asked = request(sweep=parse_sweep("tokens=256,1000", TOKENS), seed=3)
    assert ProfileRequest.read(asked.keys(), "a test") == asked
    with pytest.raises(UsageError, match="not the request of a profile run"):
        ProfileRequest.read({"workload": {}}, "a test")
    with pytest.raises(UsageError, match="not the request of a profile run: replays = 'backwards'"):
        former_request(replays="backwards")


def test_a_path_without_its_platform_is_refused() -> None:
    with pytest.raises(UsageError, match="calibrated for path 'host', not 'peer'"):
        request(path="peer")


def test_nothing_is_predicted_where_nothing_is_remote() -> None:
    assert predict(request(path="local"), None) is None
    assert predict(request(workload=attention(remote_fraction=0.0)), None) is None
    assert predict(request(workload=attention(tokens=1)), None) is None


def test_predictions_are_those_of_the_audit() -> None:
    """K = 16 tiles of 32 KiB, 7/8 remote: V = 458,752 B drain in less than the Q-loop, so T_RS is T0."""
    found = predict(request(), None)
    assert found is not None
    assert found.closed.issue_overhead_ns == 0
    assert found.closed.q_loop_ns > 458_752 / HOST.drain.bytes_per_s * 1e9
    assert found.closed.completion_coupled_ns >= found.closed.residual_ns
    assert found.simulated.residual_ns >= 0


Alone = Mapping[Implementation, Sequence[float]]
Blocks = Mapping[Implementation, Sequence[tuple[float, float, float, float]]]


def replayed(asked: ProfileRequest, alone: Alone, blocks: Blocks, *, label: str = "") -> list[LaunchResult]:
    """Replays in the order of a request, of those that are not named as of an attention of 100."""
    own = {one: iter(times_ns) for one, times_ns in alone.items()}
    fours = {one: iter(times_ns) for one, times_ns in blocks.items()}
    outcomes = []
    for in_turn in replay_order(asked):
        if len(in_turn) == 1:
            times_ns = [next(own[in_turn[0]]) if in_turn[0] in own else 100.0]
        else:
            times_ns = [*next(fours[in_turn[1]])] if in_turn[1] in fours else [100.0] * 4
        for one, ns in zip(in_turn, times_ns, strict=True):
            outcomes.append(LaunchResult(label, one, ReplayFigures(10, ns), Verification(0, 0)))
    return outcomes


def steady(
    asked: ProfileRequest, times_ns: Mapping[Implementation, float], *, label: str = ""
) -> list[LaunchResult]:
    """Replays of implementations that always take the same time, alone and in turn."""
    alone_ns = times_ns["attention"]
    return replayed(
        asked,
        {one: [ns] * asked.repeats for one, ns in times_ns.items()},
        {one: [(alone_ns, ns, ns, alone_ns)] * asked.repeats for one, ns in times_ns.items()},
        label=label,
    )


def conclude_of(asked: ProfileRequest, outcomes: list[LaunchResult]) -> ProfileResult:
    predictions = dict.fromkeys(asked.values())
    return conclude(asked, outcomes, predictions, run_id="run", device="GPU", device_name="GPU")


def test_the_paper_s_hiding_and_speedup() -> None:
    """Table 3, FA3 at 8,192 tokens: 195.2 alone, 295.6 serial, 207.0 fused: 1.428x, 88% hidden."""
    times: dict[Implementation, float] = {"attention": 195.2e3, "serial-direct": 295.6e3, "fused": 207.0e3}
    (point,) = conclude_of(request(), steady(request(), times)).points
    assert point.speedup("serial-direct") == pytest.approx(1.428, abs=5e-4)
    assert point.hiding_ratio("serial-direct") == pytest.approx(0.8825, abs=5e-4)
    assert point.residual_ns() == pytest.approx(11.8e3)


def test_residuals_are_of_one_block_each_and_times_of_what_ran_alone() -> None:
    """E_res = 2 and a serial version's 10, of an attention of 100 whose clocks change from block to block."""
    clocks = (1.0, 1.2, 1.5)

    def beside(beyond: float, cooler: float) -> list[tuple[float, float, float, float]]:
        times = (100.0, 100.0 + beyond, 100.0 + beyond, 100.0)
        fours = [[time * clock * cooler + place for place, time in enumerate(times)] for clock in clocks]
        return [(four[0], four[1], four[2], four[3]) for four in fours]

    alone: Alone = {
        "attention": [101.0, 99.0, 104.0], "fused": [103.0, 102.5, 105.0],
        "serial-direct": [108.0, 107.0, 107.5], "all-to-all": [12.0, 11.0, 13.0],
    }  # fmt: skip
    blocks: Blocks = {"fused": beside(2.0, 1.0), "serial-direct": beside(10.0, 0.9)}
    (point,) = conclude_of(request(), replayed(request(), alone, blocks)).points
    assert point.residual_ns() == pytest.approx(2.4)
    assert point.residual_of_attention() == pytest.approx(2.4 / 101)
    assert point.hiding_ratio("serial-direct") == pytest.approx(1 - 2.4 / (10 * 1.2 * 0.9))
    assert (point.time_ns("attention"), point.time_ns("fused")) == (101.0, 103.0)
    assert point.speedup("serial-direct") == pytest.approx(107.5 / 103)
    assert point.ideal_speedup() == pytest.approx(1 + 12 / 101)
    assert point.spread("fused") == pytest.approx(2.5 / 103)
    keys = point.keys()["implementations"]
    assert keys["fused"]["samples_ns"] == [103.0, 102.5, 105.0]
    assert keys["fused"]["beyond_attention_samples_ns"] == pytest.approx([2.0, 2.4, 3.0])
    assert keys["fused"]["beyond_attention_ns"] == pytest.approx(2.4)


def test_what_recording_adds_is_of_its_own_blocks() -> None:
    fours = [(102.0 * clock, 107.1 * clock, 107.1 * clock, 102.0 * clock) for clock in (1.0, 1.1, 1.3)]
    outcomes = replayed(request(), {"fused": [90.0] * 3}, {"fused-recording": fours})
    (point,) = conclude_of(request(), outcomes).points
    assert point.recording_overhead("fused") == pytest.approx(0.05)
    assert point.recording_overhead("attention") == 0.0
    found = point.keys()["recording"]["fused"]
    assert found["overhead_ns"] == pytest.approx(5.1 * 1.1)
    assert found["overhead_samples_ns"] == pytest.approx([5.1, 5.1 * 1.1, 5.1 * 1.3])
    assert found["time_ns"] == pytest.approx(107.1 * 1.1)
    assert found["overhead_ci95_ns"] is None
    assert point.time_ns("fused") == 90.0
    assert set(point.keys()["implementations"]) == set(IMPLEMENTATIONS)


@pytest.mark.parametrize(("blocks", "whole"), [(2, 2), (1.75, 1), (0.75, 0)])
def test_an_interrupted_run_says_what_its_whole_blocks_do(blocks: float, whole: int) -> None:
    fused = [(100.0, 103.0, 103.0, 100.0), (100.0, 104.0, 104.0, 100.0), (100.0, 120.0, 120.0, 100.0)]
    outcomes = replayed(request(), {}, {"fused": fused})
    # In each repeat seven alone, then blocks of four: fused is the fourth, the third, ...
    begins = (7 + 3 * 4, 7 + 7 * 4 + 7 + 2 * 4)
    stopped = begins[int(blocks - 0.1)] + round(4 * (blocks - int(blocks - 0.1)))
    (point,) = conclude_of(request(), outcomes[:stopped]).points
    assert point.beyond_ns("fused") == [3.0, 4.0][:whole]
    assert (point.residual_ns() is None) is (whole == 0)
    assert point.time_ns("serial-copy") == 100.0


def test_what_a_run_never_came_to_has_no_time() -> None:
    (point,) = conclude_of(request(), replayed(request(), {}, {})[:1]).points
    assert (point.time_ns("fused"), point.spread("fused"), point.recording_overhead("fused")) == (None,) * 3
    assert point.ideal_speedup() is None
    assert (set(point.keys()["implementations"]), point.keys()["recording"]) == ({"attention"}, {})


def test_of_former_blocks_the_attention_s_time_is_that_around_fused() -> None:
    asked = request(replays="blocks")
    fused = [(100.0, 102.0, 103.0, 101.0), (110.0, 113.0, 115.0, 112.0), (120.0, 123.0, 124.0, 121.0)]
    copied = [(90.0, 120.0, 120.0, 90.0)] * 3
    (point,) = conclude_of(asked, replayed(asked, {}, {"fused": fused, "serial-copy": copied})).points
    assert point.time_ns("attention") == median([100, 101, 110, 112, 120, 121])
    assert point.time_ns("fused") == median([102, 103, 113, 115, 123, 124])
    assert (point.time_ns("serial-copy"), point.time_ns("all-to-all")) == (120.0, 100.0)
    assert point.beyond_ns("fused") == [2.0, 3.0, 3.0]
    assert point.keys()["recording"] == {}


def test_residuals_of_a_run_without_blocks_are_of_one_repeat_each() -> None:
    asked = request(replays="balanced")
    alone: Alone = {
        "attention": [100.0, 120.0, 150.0], "fused": [102.0, 122.4, 153.0],
        "serial-direct": [110.0, 132.0, 165.0],
    }  # fmt: skip
    outcomes = replayed(asked, alone, {})
    (point,) = conclude_of(asked, outcomes).points
    assert point.beyond_ns("fused") == pytest.approx([2.0, 2.4, 3.0])
    assert point.beyond_ns("all-to-all") == []
    assert point.hiding_ratio("serial-direct") == pytest.approx(0.8)
    assert (point.time_ns("attention"), point.time_ns("fused")) == (120.0, pytest.approx(122.4))
    assert point.keys()["recording"] == {}
    (point,) = conclude_of(asked, outcomes[:2]).points
    assert point.residual_ns() is None


def test_other_replays_than_were_asked_for_are_of_another_version() -> None:
    outcomes = replayed(request(), {}, {})
    with pytest.raises(UsageError, match="replays of another version: all-to-all for attention"):
        conclude_of(request(), outcomes[1:])


def test_a_speedup_beyond_what_hiding_gives_is_told() -> None:
    times: dict[Implementation, float] = {
        "attention": 100.0, "serial-direct": 120.0, "fused": 99.0, "fused-received": 104.0,
    }  # fmt: skip
    (point,) = conclude_of(request(), steady(request(), times)).points
    found = point.keys()["against"]["serial-direct"]
    assert (found["speedup"], found["exceeds_hiding"]) == (pytest.approx(120 / 99), True)
    assert found["speedup_received"] == pytest.approx(120 / 104)
    assert not point.exceeds_hiding("serial-direct", "fused-received")


def test_there_is_nothing_to_hide_where_serial_takes_no_longer() -> None:
    times: dict[Implementation, float] = {"attention": 100.0, "serial-direct": 99.0, "fused": 101.0}
    (point,) = conclude_of(request(), steady(request(), times)).points
    assert point.hiding_ratio("serial-direct") is None
    assert point.keys()["against"]["serial-direct"]["speedup"] == pytest.approx(99 / 101)


@pytest.mark.parametrize(
    ("shares", "ends"), [((0.3, 0.1, 0.01, 0.0), 4096), ((0.01, 0.1, 0.01, 0.03), None), ((0.02,) * 4, 1024)]
)
def test_where_the_residual_ends_in_a_sweep(shares: tuple[float, ...], ends: int | None) -> None:
    asked = request(sweep=parse_sweep("tokens=1024,2048,4096,8192", TOKENS), repeats=6)
    points = [
        steady(asked, {"attention": 1000.0, "fused": 1000.0 * (1 + share)}, label=asked.case_at(value).label)
        for value, share in zip(asked.values(), shares, strict=True)
    ]
    assert conclude_of(asked, [one for own in points for one in own]).residual_ends_tokens() == ends
    # What a sweep that was stopped did not come to is not known.
    assert conclude_of(asked, [one for own in points[:-1] for one in own]).residual_ends_tokens() is None


@pytest.mark.parametrize(("blocks", "last", "hidden"), [(6, 1.0, True), (6, 21.0, False), (5, 1.0, False)])
def test_nothing_is_sure_of_few_blocks_or_with_one_beyond_the_limit(
    blocks: int, last: float, hidden: bool
) -> None:
    beyond = [*([1.0] * (blocks - 1)), last]
    asked = request(repeats=blocks)
    fused = [(1000.0, 1000 + add, 1000 + add, 1000.0) for add in beyond]
    (point,) = conclude_of(asked, replayed(asked, {"attention": [1000.0] * blocks}, {"fused": fused})).points
    assert point.residual_ns() == 1.0
    assert point.is_hidden() is hidden


def test_a_prediction_is_off_by_no_percentage_of_nothing() -> None:
    keys = Compared(measured=-2.0, closed_form=0.0, simulated=1.0).keys()
    assert (keys["closed_form_error_pct"], keys["simulated_error_pct"]) == (None, None)
    assert Compared(measured=2.0, closed_form=3.0).keys()["closed_form_error_pct"] == pytest.approx(50)


def test_an_interrupted_run_has_what_it_came_to() -> None:
    asked = request(sweep=parse_sweep("tokens=1024,2048", TOKENS))
    checked = LaunchResult("tokens=1024", "attention", CheckFigures(0.002, ""), Verification(8, 0))
    result = conclude(asked, [checked], {1024: None, 2048: None}, run_id="r", device="G", device_name="G")
    (point,) = result.points
    assert point.time_ns("fused") is None
    assert point.keys()["implementations"] == {}
    assert result.residual_ends_tokens() is None


@pytest.mark.parametrize(
    ("figures", "found", "complaint"),
    [
        (CheckFigures(None, ""), Verification(64, 8), "bytes differ; 8 of 64"),
        (CheckFigures(None, ""), Verification(0, 0), "nothing was checked"),
        (CheckFigures(0.5, ""), Verification(64, 0), "relative error 0.5 against fp32"),
        (CheckFigures(float("nan"), ""), Verification(64, 0), "relative error nan"),
        (
            CheckFigures(None, "token 3, head 0: not written"),
            Verification(64, 2),
            "token 3, head 0: not written",
        ),
    ],
)
def test_a_check_that_says_anything_wrong_is_refused(
    figures: CheckFigures, found: Verification, complaint: str
) -> None:
    asked = AttentionLaunch(request().case_at(None), "fused", "check")
    (launch,) = ScriptedProfiles().run([asked])
    with pytest.raises(FindingError, match=complaint):
        require_right(replace(launch, figures=figures, verification=found))
    require_right(replace(launch, figures=CheckFigures(0.002, ""), verification=Verification(64, 0)))


def test_a_small_residual_is_seen_beside_a_large_one_and_so_is_less_than_none() -> None:
    asked = request(sweep=parse_sweep("tokens=1024,2048,4096,8192", TOKENS))
    beyond_ns = (100_000.0, 10.0, 0.0, -10.0)
    points = [
        steady(asked, {"attention": 1e6, "fused": 1e6 + ns}, label=asked.case_at(value).label)
        for value, ns in zip(asked.values(), beyond_ns, strict=True)
    ]
    panel = sweep_figure(conclude_of(asked, [one for own in points for one in own])).panels[0]
    (fused,) = (series for series in panel.series if series.name == "fused, measured")
    assert fused.y.tolist() == pytest.approx(beyond_ns)
    _, up = panel_scales(panel)
    assert (-np.diff(up.fraction(fused.y)) > 0.05).all()
