"""Order of the launches, cases of a request, and conclusions from times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.configs.cases import attention, attention_config
from tests.profiling.gpu import ScriptedProfiles
from xstage_tune.devices.attention_profiles import (
    IMPLEMENTATIONS,
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
from xstage_tune.profiling.prediction import predict
from xstage_tune.profiling.procedure import profile, require_right
from xstage_tune.profiling.request import ProfileRequest, request_from_keys
from xstage_tune.profiling.result import Outcome, PointResult, ProfileResult, conclude

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


def test_all_is_checked_then_timed_in_balanced_order_then_recorded() -> None:
    gpu, notes = ScriptedProfiles(), Notes()
    profile(gpu, request(), notes)
    assert len(notes.launches) == notes.total == 6 * 4 + 3 * 4 + 2
    asked = [(what, one) for _, one, what in gpu.asked]
    assert asked[:6] == [("check", one) for one in IMPLEMENTATIONS]
    for repeat in range(3):
        turn = [one for _, one in asked[6 * (repeat + 1) : 6 * (repeat + 2)]]
        assert turn == [IMPLEMENTATIONS[index] for index in balanced(6, repeat)]
    alternated = [one for what, one in asked[24:-2] if what == "replay"]
    assert alternated == ["attention", "fused", "fused", "attention"] * 3
    assert asked[-2:] == [("spans", "attention"), ("spans", "fused")]
    assert gpu.open_cases == 0


def test_cases_of_a_sweep_are_prepared_one_at_a_time() -> None:
    gpu = ScriptedProfiles()
    profile(gpu, request(sweep=parse_sweep("tokens=256,1000"), repeats=1), Notes())
    labels = [label for label, _, _ in gpu.asked]
    assert labels == ["tokens=256"] * 18 + ["tokens=1000"] * 18


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


def test_a_request_of_before_there_were_blocks_has_none() -> None:
    asked = request()
    keys = asked.keys()
    del keys["alternates"]
    assert request_from_keys(keys, "a test") == replace(asked, alternates=False)
    gpu = ScriptedProfiles()
    profile(gpu, request_from_keys(keys, "a test"), Notes())
    assert len(gpu.asked) == 6 * 4 + 2


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


def concluded(
    asked: ProfileRequest, times_ns: dict[int | None, dict[Implementation, float]]
) -> ProfileResult:
    """A result with three equal samples of each time."""
    outcomes = [
        Outcome(asked.case_at(value).label, one, ReplayFigures(10, time_ns), Verification(0, 0))
        for value, times in times_ns.items()
        for one, time_ns in times.items()
        for _ in range(3)
    ]
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


def test_residuals_are_of_one_repeat_each_so_that_drifting_clocks_drop_out() -> None:
    asked = request()
    outcomes = [
        Outcome("", one, ReplayFigures(10, (100.0 + beyond) * clock), Verification(0, 0))
        for clock in (1.0, 1.2, 1.5)
        for one, beyond in (("attention", 0.0), ("fused", 2.0), ("serial-direct", 10.0))
    ]
    (point,) = conclude(asked, outcomes, {None: None}, run_id="run", device="GPU", device_name="GPU").points
    assert point.residual_ns() == pytest.approx(2.4)
    assert point.hiding_ratio("serial-direct") == pytest.approx(0.8)
    low, high = point.residual_ci95_ns() or (0.0, 0.0)
    assert (low, high) == pytest.approx((2.0, 3.0))
    assert not point.is_hidden()


def test_the_residual_is_that_of_the_blocks_whatever_the_balanced_order_did_to_clocks() -> None:
    """T_FA = 100, E_res = 2; clocks rise behind an All-to-All, and fall steadily over the blocks."""
    balanced_ns: dict[Implementation, float] = {"attention": 100.0, "fused": 97.0, "serial-direct": 110.0}
    times = [(one, time_ns) for _ in range(3) for one, time_ns in balanced_ns.items()]
    slower = iter(range(12))
    for _ in range(3):
        for one, time_ns in (("attention", 100.0), ("fused", 102.0), ("fused", 102.0), ("attention", 100.0)):
            times.append((one, time_ns + 5 * next(slower)))
    outcomes = [Outcome("", one, ReplayFigures(10, time_ns), Verification(0, 0)) for one, time_ns in times]

    def point(made: int) -> PointResult:
        found = conclude(
            request(), outcomes[:made], {None: None}, run_id="run", device="GPU", device_name="GPU"
        )
        return found.points[0]

    whole = point(len(outcomes))
    assert whole.residual_ns() == pytest.approx(2.0)
    assert whole.residual_ci95_ns() == pytest.approx((2.0, 2.0))
    assert whole.keys()["residual_samples_ns"] == pytest.approx([2.0] * 3)
    assert (whole.time_ns("attention"), whole.time_ns("fused")) == (100.0, 97.0)
    assert whole.hiding_ratio("serial-direct") == pytest.approx(0.8)
    # Stopped within the last block, and before the first: what is whole counts.
    assert point(len(outcomes) - 1).keys()["residual_samples_ns"] == pytest.approx([2.0] * 2)
    assert point(9).residual_ns() == pytest.approx(-3.0)


def test_there_is_nothing_to_hide_where_serial_takes_no_longer() -> None:
    times: dict[Implementation, float] = {"attention": 100.0, "serial-direct": 99.0, "fused": 101.0}
    (point,) = concluded(request(), {None: times}).points
    assert point.hiding_ratio("serial-direct") is None
    assert point.keys()["against"]["serial-direct"]["speedup"] == pytest.approx(99 / 101)


@pytest.mark.parametrize(
    ("shares", "ends"), [((0.3, 0.1, 0.01, 0.0), 4096), ((0.01, 0.1, 0.01, 0.03), None), ((0.02,) * 4, 1024)]
)
def test_where_the_residual_ends_in_a_sweep(shares: tuple[float, ...], ends: int | None) -> None:
    asked = request(sweep=parse_sweep("tokens=1024,2048,4096,8192"))
    times: dict[int | None, dict[Implementation, float]] = {
        value: {"attention": 1000.0, "fused": 1000.0 * (1 + share)}
        for value, share in zip(asked.values(), shares, strict=True)
    }
    assert concluded(asked, times).residual_ends_tokens() == ends


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
