"""The audit of bursts by their numbers: the equations of an audit of a workload with such bursts."""

from __future__ import annotations

import json

import pytest

from tests.conftest import RunCli
from xstage_tune.estimates.bursts import saturating_producers
from xstage_tune.platforms import queries
from xstage_tune.platforms.loader import load_platform

PEER = ("audit", "--platform", "h200-peer")
MINE = (*PEER, "--burst-bytes", "32KiB", "--producers", "132", "--stores", "st.v4")


def test_bursts_of_a_workload_are_judged_as_the_workload_is(run_cli: RunCli) -> None:
    whole = run_cli("audit", "-w", "fa-a2a/paper", "-p", "paper-nvlink5", "--format", "json")
    of_workload = json.loads(whole.stdout)
    numbers = (
        "--burst-bytes", str(int(of_workload["burst_bytes"])), "--producers", str(of_workload["producers"]),
        "--gap-us", str(of_workload["gap_ns"] / 1e3),
    )  # fmt: skip
    given = json.loads(run_cli("audit", "-p", "paper-nvlink5", *numbers, "--format", "json").stdout)
    same = ("rate_bound", "capacity_bound", "recovery_gap_ns", "volume_bytes", "free_issue_ns", "verdict")
    assert {key: given[key] for key in same} == {key: of_workload[key] for key in same}


def test_what_is_exposed_is_what_issue_takes_beyond_t0(run_cli: RunCli) -> None:
    found = json.loads(run_cli(*MINE, "--gap-us", "4", "--format", "json").stdout)
    predicted = found["predicted"]["piggyback"]
    assert predicted["span_ns"] == pytest.approx(found["drain_ns"] - 4000)
    assert predicted["issue_overhead_ns"] == pytest.approx(predicted["span_ns"] - found["free_issue_ns"])
    assert [action["kind"] for action in found["actions"]] == [
        "longer_gap",
        "smaller_bursts",
        "fewer_producers",
    ]


@pytest.mark.parametrize("flavour", ["st.v4", "tma"])
def test_one_producer_less_does_not_saturate(flavour: str) -> None:
    platform = load_platform("h200-peer")
    fewest = saturating_producers(platform, flavour, 2048)  # type: ignore[arg-type]
    assert fewest is not None

    def asked(count: float) -> float:
        return count * 2048 / (float(queries.issue_ns(platform, flavour, count, 2048)) / 1e9)  # type: ignore[arg-type]

    assert asked(fewest.value - 1) < platform.drain.bytes_per_s <= asked(fewest.value)


def test_the_limits_that_are_advised_pass_the_test(run_cli: RunCli) -> None:
    """Each by itself; the gap of a burst that fits Q alone."""
    few = (*PEER, "--burst-bytes", "16KiB", "--producers", "16")
    gap = json.loads(run_cli(*few, "--gap-us", "0.1", "--format", "json").stdout)["actions"][0]
    assert gap["kind"] == "longer_gap"
    for options in (
        (*few, "--gap-us", str(gap["limit"] / 1e3)),
        (*MINE[:3], "--burst-bytes", "32KiB", "--producers", "20", "--gap-us", "4"),
    ):
        assert run_cli(*options, "--strict").exit_code == 0
    assert run_cli(*MINE, "--gap-us", "4", "--strict").exit_code == 1


def test_a_sweep_shows_where_the_verdict_changes(run_cli: RunCli) -> None:
    options = (*PEER, "--burst-bytes", "16KiB", "--gap-us", "0.1", "--sweep", "producers=1..24")
    points = json.loads(run_cli(*options, "--format", "json").stdout)["points"]
    verdicts = [point["verdict"] for point in points]
    assert [point["producers"] for point in points] == list(range(1, 25))
    change = verdicts.index("reshape")
    assert verdicts == ["piggyback"] * change + ["reshape"] * (24 - change)
    assert "saturating" in run_cli(*options).stdout


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--burst-bytes", "32KiB"), "--gap-us"),
        (("--burst-bytes", "1.5B", "--gap-us", "1"), "--burst-bytes"),
        (("--burst-bytes", "1KiB", "--gap-us", "1", "--producers", "133"), "--producers 133"),
        (("--burst-bytes", "1KiB", "--gap-us", "1", "--sweep", "gap-us=1,x"), "'x'"),
        (("--burst-bytes", "1KiB", "--gap-us", "1", "-w", "fa-a2a/paper"), "--workload"),
        (("--burst-bytes", "1KiB", "--gap-us", "1", "--set", "tokens=4"), "--set"),
    ],
)
def test_numbers_that_make_no_bursts_are_one_clear_line(
    run_cli: RunCli, options: tuple[str, ...], named: str
) -> None:
    result = run_cli(*PEER, *options)
    assert (result.exit_code, result.stderr.count("error:")) == (2, 1)
    assert named in result.stderr
