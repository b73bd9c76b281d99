"""T0: plateaus, their monotone curve, and those that stall on capacity."""

from __future__ import annotations

import pytest

from tests.calibration.conftest import TRUTH
from tests.calibration.points import KIB, periodic_figures, periodic_point
from xstage_tune.calibration.issue import (
    IssueModel,
    Plateau,
    measure_plateaus,
    plateau_runs,
    without_capacity_stall,
)

R = TRUTH.drain_bytes_per_s


def plateau(k: int, burst_kib: int, ns: float) -> Plateau:
    return Plateau("st.v4", k, burst_kib * KIB, ns, None, bursts=10, gap_ns=1e5)


def test_plateau_is_the_issue_time_without_backpressure() -> None:
    run = periodic_figures(TRUTH, periodic_point(16, 8 * KIB, 10_000))
    (measured,) = measure_plateaus([run], seed=0)
    assert measured.ns == pytest.approx(TRUTH.free_issue_ns(8 * KIB), rel=0.01)
    assert measured.ci95 is not None
    low, high = measured.ci95
    assert low <= measured.ns <= high


def test_only_the_largest_gap_of_each_size_is_a_plateau() -> None:
    points = [periodic_point(16, 8 * KIB, gap) for gap in (0, 3_000, 10_000)] + [
        periodic_point(8, 8 * KIB, 5_000)
    ]
    chosen = plateau_runs([periodic_figures(TRUTH, point) for point in points], R)
    assert [(run.point.producers, run.point.gap_ns) for run in chosen] == [(16, 10_000), (8, 5_000)]


def test_a_largest_gap_that_loads_the_path_is_no_plateau() -> None:
    loaded = periodic_figures(TRUTH, periodic_point(33, 8 * KIB, 3_000))
    assert loaded.bytes_per_s > 0.6 * R
    assert plateau_runs([loaded], R) == []


def test_curve_is_linear_between_points_and_beyond_the_last_two() -> None:
    issue = IssueModel([plateau(8, 2, 100.0), plateau(8, 4, 140.0), plateau(8, 8, 200.0)])
    assert issue.free_issue_ns("st.v4", 8, 3 * KIB) == pytest.approx(120.0)
    assert issue.free_issue_ns("st.v4", 8, 16 * KIB) == pytest.approx(320.0)


def test_curve_never_falls_with_the_burst() -> None:
    issue = IssueModel([plateau(8, 2, 100.0), plateau(8, 4, 90.0), plateau(8, 8, 200.0)])
    assert issue.free_issue_ns("st.v4", 8, 2 * KIB) == issue.free_issue_ns("st.v4", 8, 4 * KIB) == 95.0


def test_unmeasured_producers_take_the_nearest_curve_by_ratio() -> None:
    issue = IssueModel([plateau(8, 2, 100.0), plateau(32, 2, 120.0)])
    assert issue.free_issue_ns("st.v4", 15, 2 * KIB) == 100.0
    assert issue.free_issue_ns("st.v4", 17, 2 * KIB) == 120.0


def test_unmeasured_flavour_is_an_error() -> None:
    with pytest.raises(KeyError):
        IssueModel([plateau(8, 2, 100.0)]).free_issue_ns("tma", 8, 2 * KIB)


def test_plateau_that_stalls_on_capacity_is_scaled_from_a_smaller_k() -> None:
    free = [plateau(16, 8, 200.0), plateau(16, 32, 500.0), plateau(64, 8, 220.0)]
    stalled = plateau(64, 32, 9_000.0)
    kept = without_capacity_stall([*free, stalled], {("st.v4", 64): 2.0e6, ("st.v4", 16): 1.0e6}, R)
    (borrowed,) = [p for p in kept if p.borrowed_from is not None]
    assert (borrowed.producers, borrowed.burst_bytes, borrowed.borrowed_from) == (64, 32 * KIB, 16)
    assert borrowed.ns == pytest.approx(500.0 * 220.0 / 200.0)
    assert kept[:3] == free


def test_plateau_that_stalls_everywhere_is_left_out() -> None:
    kept = without_capacity_stall(
        [plateau(16, 8, 200.0), plateau(16, 64, 9_000.0)], {("st.v4", 16): 0.5e6}, R
    )
    assert [p.burst_bytes for p in kept] == [8 * KIB]


def test_unknown_capacity_leaves_plateaus_alone() -> None:
    plateaus = [plateau(64, 32, 500.0)]
    assert without_capacity_stall(plateaus, {}, R) == plateaus
