"""Order of the launches, cases of a request, and conclusions from times."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

import pytest

from tests.configs.cases import attention, attention_config
from tests.profiling.gpu import ScriptedProfiles
from xstage_tune.devices.attention_profiles import (
    IMPLEMENTATIONS,
    RECORDING,
    CheckFigures,
    Implementation,
    ProfileLaunch,
    ReplayFigures,
)
from xstage_tune.devices.base import Verification
from xstage_tune.emulation.sweep import parse_sweep
from xstage_tune.errors import FindingError, UsageError
from xstage_tune.launch_order import balanced
from xstage_tune.platforms.loader import load_platform
from xstage_tune.profiling.comparison import COMPARED, block
from xstage_tune.profiling.prediction import predict
from xstage_tune.profiling.procedure import profile, require_right
from xstage_tune.profiling.request import ProfileRequest, request_from_keys
from xstage_tune.profiling.result import Outcome, ProfileResult, conclude

HOST = load_platform("h200-host")


def request(**changes: Any) -> ProfileRequest:
    values: dict[str, Any] = {
        "workload": attention(tokens=1024), "platform": HOST, "config": attention_config(), "path": "host",
        "repeats": 3,
    }  # fmt: skip
    return ProfileRequest(**{**values, **changes})


class Notes:
    """An observer that only counts."""

    def __init__(self) -> None:
        self.total = 0
        self.launches: list[ProfileLaunch] = []

    def planned(self, total_launches: int) -> None:
        self.total = total_launches

    def done(self, launch: ProfileLaunch) -> None:
        self.launches.append(launch)


def test_all_is_checked_then_timed_between_attentions_then_recorded() -> None:
    gpu, notes = ScriptedProfiles(), Notes()
    profile(gpu, request(), notes)
    assert len(notes.launches) == notes.total == 6 + 3 * (1 + 6 * 4) + 2
    asked = [(what, one) for _, one, what in gpu.asked]
    assert asked[:6] == [("check", one) for one in IMPLEMENTATIONS]
    assert asked[6:9] == [("replay", "all-to-all")] * 3
    begins = list(range(9, len(asked) - 2, 4))
    blocks = [tuple(one for _, one in asked[begin : begin + 4]) for begin in begins]
    assert all(names == block(names[1]) for names in blocks)
    turns = [[names[1] for names in blocks[begin : begin + 6]] for begin in (0, 6, 12)]
    assert all(sorted(turn) == sorted([*COMPARED, *RECORDING.values()]) for turn in turns)
    assert len({turn[0] for turn in turns}) == 3
    assert gpu.settled_before == begins
    assert asked[-2:] == [("spans", "attention"), ("spans", "fused")]
    assert gpu.open_cases == 0


def test_a_recording_variant_is_timed_between_what_it_records() -> None:
    assert block("fused-recording") == ("fused", "fused-recording", "fused-recording", "fused")
    assert block("attention-recording")[0] == block("attention-recording")[3] == "attention"


def former_request(**changes: Any) -> tuple[ProfileRequest, ProfileRequest]:
    """A request, and what a former version's keys of it are read as."""
    asked = request()
    keys = asked.keys()
    del keys["replays"]
    return asked, request_from_keys({**keys, **changes}, "a test")


def test_a_request_of_before_recording_was_timed_has_the_other_blocks() -> None:
    asked, former = former_request(bracketed=True)
    assert former == replace(asked, replays="blocks")
    gpu = ScriptedProfiles()
    profile(gpu, former, Notes())
    replays = [one for _, one, what in gpu.asked if what == "replay"]
    turns = [[*COMPARED], [*COMPARED[1:], COMPARED[0]], [*COMPARED[2:], *COMPARED[:2]]]
    assert replays[3:] == [replay for turn in turns for one in turn for replay in block(one)]


def test_a_request_of_before_there_were_blocks_has_its_balanced_order() -> None:
    asked, former = former_request()
    assert former == replace(asked, replays="balanced")
    gpu = ScriptedProfiles()
    profile(gpu, former, Notes())
    assert len(gpu.asked) == 6 * 4 + 2
    for repeat in range(3):
        turn = [one for _, one, _ in gpu.asked[6 * (repeat + 1) : 6 * (repeat + 2)]]
        assert turn == [IMPLEMENTATIONS[index] for index in balanced(6, repeat)]
    assert gpu.settled_before == []


def test_cases_of_a_sweep_are_prepared_one_at_a_time() -> None:
    gpu = ScriptedProfiles()
    profile(gpu, request(sweep=parse_sweep("tokens=256,1000"), repeats=1), Notes())
    labels = [label for label, _, _ in gpu.asked]
    assert labels == ["tokens=256"] * 33 + ["tokens=1000"] * 33


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
    asked = request(sweep=parse_sweep("tokens=256,1000"), seed=3)
    assert request_from_keys(asked.keys(), "a test") == asked
    with pytest.raises(UsageError, match="not the request of a profile run"):
        request_from_keys({"workload": {}}, "a test")
    with pytest.raises(UsageError, match="not the request of a profile run: replays 'backwards'"):
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


def replayed(*times_ns: tuple[Implementation, float], label: str = "") -> list[Outcome]:
    """Replays in turn."""
    return [Outcome(label, one, ReplayFigures(10, ns), Verification(0, 0)) for one, ns in times_ns]


def block_of(implementation: Implementation, *times_ns: float, label: str = "") -> list[Outcome]:
    """An implementation between attentions."""
    return replayed(*zip(block(implementation), times_ns, strict=True), label=label)


def concluded(
    asked: ProfileRequest, times_ns: dict[int | None, dict[Implementation, float]]
) -> ProfileResult:
    """A result of as many equal blocks as are asked for of each time beside that of the attention."""
    outcomes = [
        outcome
        for value, times in times_ns.items()
        for _ in range(asked.repeats)
        for one, ns in times.items()
        if one != "attention"
        for outcome in block_of(
            one, times["attention"], ns, ns, times["attention"], label=asked.case_at(value).label
        )
    ]
    return conclude_of(asked, outcomes)


def conclude_of(asked: ProfileRequest, outcomes: list[Outcome]) -> ProfileResult:
    predictions = dict.fromkeys(asked.values())
    return conclude(asked, outcomes, predictions, run_id="run", device="GPU", device_name="GPU")


def test_the_paper_s_hiding_and_speedup() -> None:
    """Table 3, FA3 at 8,192 tokens: 195.2 alone, 295.6 serial, 207.0 fused: 1.428x, 88% hidden."""
    times: dict[Implementation, float] = {"attention": 195.2e3, "serial-direct": 295.6e3, "fused": 207.0e3}
    (point,) = concluded(request(), {None: times}).points
    assert point.speedup("serial-direct") == pytest.approx(1.428, abs=5e-4)
    assert point.hiding_ratio("serial-direct") == pytest.approx(0.8825, abs=5e-4)
    assert point.residual_ns() == pytest.approx(11.8e3)
    assert point.speedup("serial-copy") is None
    assert point.ideal_speedup() is None


def test_residuals_are_of_one_block_each_and_times_of_the_replays_themselves() -> None:
    """T_FA = 100, E_res = 2 and a serial version's 10, at clocks that drift within blocks and over them."""
    outcomes = replayed(("all-to-all", 12.0))
    for clock in (1.0, 1.2, 1.5):
        for one, beyond, cooler in (("fused", 2.0, 1.0), ("serial-direct", 10.0, 0.9)):
            times = (100.0, 100.0 + beyond, 100.0 + beyond, 100.0)
            outcomes += block_of(
                one, *(time * clock * cooler + 5.0 * place for place, time in enumerate(times))
            )
    (point,) = conclude_of(request(), outcomes).points
    assert point.residual_ns() == pytest.approx(2.4)
    assert point.hiding_ratio("serial-direct") == pytest.approx(1 - 2.4 / (10 * 1.2 * 0.9))
    # The attentions around fused; the others ran on a cooler GPU.
    assert point.time_ns("attention") == pytest.approx(median([100, 115, 120, 135, 150, 165]))
    assert point.time_ns("fused") == pytest.approx(median([107, 112, 127.4, 132.4, 158, 163]))
    direct = [110 * 0.9 * clock + at for clock in (1, 1.2, 1.5) for at in (5, 10)]
    assert point.time_ns("serial-direct") == pytest.approx(median(direct))
    assert point.speedup("serial-direct") == pytest.approx(median(direct) / 129.9)
    assert point.spread("fused") == pytest.approx((163 - 107) / 129.9)
    assert point.time_ns("all-to-all") == 12.0
    keys = point.keys()["implementations"]
    assert keys["fused"]["beyond_attention_ns"] == pytest.approx(2.4)
    assert keys["attention"]["samples_ns"][2] == pytest.approx(90.0)


def test_what_recording_adds_is_of_its_own_blocks_and_in_no_other_time() -> None:
    outcomes = []
    for clock in (1.0, 1.1, 1.3):
        outcomes += block_of("fused", 100.0 * clock, 102.0 * clock, 102.0 * clock, 100.0 * clock)
        outcomes += block_of("fused-recording", *(one * clock * 0.9 for one in (102.0, 107.1, 107.1, 102.0)))
    (point,) = conclude_of(request(), [*outcomes, *replayed(("attention", 130.0))]).points
    assert point.recording_overhead("fused") == pytest.approx(0.05)
    assert point.recording_overhead("attention") is None
    found = point.keys()["recording"]
    assert found["fused"]["overhead_ns"] == pytest.approx(5.1 * 0.9 * 1.1)
    assert found["fused"]["overhead_samples_ns"] == pytest.approx([4.59, 4.59 * 1.1, 4.59 * 1.3])
    assert found["fused"]["time_ns"] == pytest.approx(107.1 * 0.9 * 1.1)
    assert found["fused"]["overhead_ci95_ns"] is None
    assert set(found) == {"fused"}
    # Those around and within fused's own blocks.
    assert point.time_ns("attention") == pytest.approx(110.0)
    assert point.time_ns("fused") == pytest.approx(112.2)
    assert point.beyond_ns("fused") == pytest.approx([2.0, 2.2, 2.6])
    assert set(point.keys()["implementations"]) == {"attention", "fused"}


def test_an_interrupted_run_says_what_its_whole_blocks_do() -> None:
    whole = block_of("fused", 100.0, 103.0, 103.0, 100.0)
    (point,) = conclude_of(request(), [*whole, *block_of("fused", 100.0, 120.0, 120.0, 100.0)[:3]]).points
    assert point.beyond_ns("fused") == [3.0]
    (point,) = conclude_of(request(), whole[:3]).points
    assert point.residual_ns() is None
    assert (point.time_ns("attention"), point.time_ns("fused")) == (100.0, 103.0)
    assert (point.time_ns("serial-copy"), point.spread("serial-copy")) == (None, None)


def test_residuals_of_a_run_without_blocks_are_of_one_repeat_each() -> None:
    outcomes = [
        outcome
        for clock in (1.0, 1.2, 1.5)
        for outcome in replayed(
            ("attention", 100.0 * clock), ("all-to-all", 9.0), ("serial-direct", 110.0 * clock),
            ("fused", 102.0 * clock),
        )
    ]  # fmt: skip
    asked = request(replays="balanced")
    (point,) = conclude_of(asked, [*outcomes, *replayed(("attention", 90.0))]).points
    assert point.beyond_ns("fused") == pytest.approx([2.0, 2.4, 3.0])
    assert point.beyond_ns("all-to-all") == []
    assert point.hiding_ratio("serial-direct") == pytest.approx(0.8)
    assert (point.time_ns("attention"), point.time_ns("fused")) == (120.0, pytest.approx(122.4))
    assert point.keys()["recording"] == {}
    (point,) = conclude_of(asked, replayed(("fused", 102.0))).points
    assert (point.residual_ns(), point.time_ns("fused")) == (None, 102.0)


def test_replays_in_no_blocks_are_of_another_version() -> None:
    with pytest.raises(UsageError, match="replays of another version: attention, fused, attention, fused"):
        conclude_of(request(), replayed(*[("attention", 100.0), ("fused", 102.0)] * 2))


def test_there_is_nothing_to_hide_where_serial_takes_no_longer() -> None:
    times: dict[Implementation, float] = {"attention": 100.0, "serial-direct": 99.0, "fused": 101.0}
    (point,) = concluded(request(), {None: times}).points
    assert point.hiding_ratio("serial-direct") is None
    assert point.keys()["against"]["serial-direct"]["speedup"] == pytest.approx(99 / 101)


@pytest.mark.parametrize(
    ("shares", "ends"), [((0.3, 0.1, 0.01, 0.0), 4096), ((0.01, 0.1, 0.01, 0.03), None), ((0.02,) * 4, 1024)]
)
def test_where_the_residual_ends_in_a_sweep(shares: tuple[float, ...], ends: int | None) -> None:
    asked = request(sweep=parse_sweep("tokens=1024,2048,4096,8192"), repeats=6)
    times: dict[int | None, dict[Implementation, float]] = {
        value: {"attention": 1000.0, "fused": 1000.0 * (1 + share)}
        for value, share in zip(asked.values(), shares, strict=True)
    }
    assert concluded(asked, times).residual_ends_tokens() == ends
    # What a sweep that was stopped did not come to is not known.
    del times[8192]
    assert concluded(asked, times).residual_ends_tokens() is None


@pytest.mark.parametrize(("blocks", "last", "hidden"), [(6, 1.0, True), (6, 21.0, False), (5, 1.0, False)])
def test_nothing_is_sure_of_few_blocks_or_with_one_beyond_the_limit(
    blocks: int, last: float, hidden: bool
) -> None:
    beyond = [*([1.0] * (blocks - 1)), last]
    outcomes = [one for add in beyond for one in block_of("fused", 1000.0, 1000 + add, 1000 + add, 1000.0)]
    (point,) = conclude_of(request(repeats=blocks), outcomes).points
    assert point.residual_ns() == 1.0
    assert point.is_hidden() is hidden


def test_an_interrupted_run_has_what_it_came_to() -> None:
    asked = request(sweep=parse_sweep("tokens=1024,2048"))
    checked = Outcome("tokens=1024", "attention", CheckFigures(0.002, ""), Verification(8, 0))
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
    launch = ScriptedProfiles().prepare(request().case_at(None)).check("fused")
    with pytest.raises(FindingError, match=complaint):
        require_right(replace(launch, figures=figures, verification=found))
    require_right(replace(launch, figures=CheckFigures(0.002, ""), verification=Verification(64, 0)))
