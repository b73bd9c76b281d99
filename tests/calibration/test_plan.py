"""Plans: deterministic, within their cost, and scaled to the path."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.calibration.conftest import Calibrated
from xstage_tune.base.errors import UsageError
from xstage_tune.calibration.fit import Basis, fit_basis
from xstage_tune.calibration.plan import Planner
from xstage_tune.calibration.reduce import RunFigures, reduce_run
from xstage_tune.calibration.request import CalibrationRequest
from xstage_tune.launches.bursts import BurstPoint

KIB = 1 << 10


@pytest.fixture(scope="module")
def figures(calibrated: Calibrated) -> list[RunFigures]:
    return [reduce_run(run) for run in calibrated.watched.runs]


@pytest.fixture(scope="module")
def basis(calibrated: Calibrated, figures: list[RunFigures]) -> Basis:
    return fit_basis(figures, calibrated.request)


def planner(seed: int = 0, sm_count: int = 33, budget: str = "quick") -> Planner:
    assert budget in ("quick", "full")
    return Planner(
        CalibrationRequest(path="host", flavours=("st.v4", "tma"), budget=budget, seed=seed), sm_count
    )


def seconds(points: tuple[BurstPoint, ...]) -> float:
    return sum(point.window_ns + point.gap_ns * point.bursts for point in points) * 1e-9


def test_same_figures_give_the_same_plan(basis: Basis) -> None:
    assert planner().survey(52.6e9) == planner().survey(52.6e9)
    assert planner().focus(basis) == planner().focus(basis)


def test_figures_that_differ_in_their_last_bits_give_the_same_plan() -> None:
    assert planner().survey(52.6e9) == planner().survey(52.6e9 * (1 + 1e-14))


def test_seed_changes_the_order_and_nothing_else() -> None:
    first, second = planner(0).survey(52.6e9), planner(1).survey(52.6e9)
    assert first != second
    assert set(first) == set(second)


def test_no_point_is_measured_twice(calibrated: Calibrated) -> None:
    points = [run.launch for run in calibrated.watched.runs]
    assert max(Counter(points).values()) == 1


@pytest.mark.parametrize("sm_count", [1, 4, 16, 132, 148])
def test_producers_fit_the_device(sm_count: int) -> None:
    points = planner(sm_count=sm_count, budget="full").survey(52.6e9)
    assert {1, sm_count} & {point.producers for point in points}
    assert all(1 <= point.producers <= sm_count for point in points)


@pytest.mark.parametrize("rate", [12e9, 52.6e9, 350e9, 720e9])
@pytest.mark.parametrize("budget", ["quick", "full"])
def test_windows_stay_short_on_slow_and_fast_paths(rate: float, budget: str) -> None:
    points = planner(sm_count=132, budget=budget).survey(rate)
    # The slowest of these paths takes four times as long as a PCIe Gen5 link.
    assert seconds(points) < (3.0 if rate > 20e9 else 12.0)


@pytest.mark.parametrize("rate", [52.6e9, 350e9])
def test_saturated_windows_carry_many_bursts_of_each_producer(rate: float) -> None:
    for point in planner(sm_count=132, budget="full").survey(rate):
        if point.mode == "periodic" and point.gap_ns == 0:
            # Windows are rounded to three digits.
            assert point.window_ns * 1e-9 * rate >= 23.8 * point.volume_bytes


def test_plateau_gaps_let_the_path_empty() -> None:
    for point in planner(sm_count=132, budget="full").survey(52.6e9):
        if point.mode == "periodic" and point.gap_ns > 0:
            assert point.gap_ns * 1e-9 * 52.6e9 > 2 * point.volume_bytes


def test_isolated_bursts_find_the_path_empty(basis: Basis) -> None:
    for point in [*planner().survey(52.6e9), *planner().focus(basis)]:
        if point.mode == "isolated":
            assert point.gap_ns * 1e-9 * 52.6e9 > 1.5 * point.volume_bytes


def test_sizes_are_whole_kibibytes(basis: Basis) -> None:
    points = [*planner().probe(), *planner().survey(52.6e9), *planner().focus(basis)]
    assert all(point.burst_bytes % KIB == 0 for point in points)


def test_isolated_bursts_are_dense_around_the_knee(basis: Basis) -> None:
    capacity = basis.capacity_guess["st.v4", 33]
    near = [
        point
        for point in planner(budget="full").focus(basis)
        if point.mode == "isolated"
        and (point.flavour, point.producers) == ("st.v4", 33)
        and 0.8 * capacity < point.volume_bytes < 1.25 * capacity
    ]
    assert len(near) >= 6


def test_gap_sweeps_lie_around_the_recovery_gap_and_below_the_plateau(basis: Basis) -> None:
    survey, focus = planner(budget="full").survey(52.6e9), planner(budget="full").focus(basis)
    swept = [p for p in focus if p.mode == "periodic" and p.gap_ns > 0 and p.path == "host"]
    assert swept
    for point in swept:
        drain_ns = point.volume_bytes / 52.6
        plateau = max(
            (p.gap_ns for p in survey if p.mode == "periodic" and p.producers == point.producers), default=0
        )
        assert point.gap_ns < plateau
        assert 0.1 * drain_ns < point.gap_ns < 2.1 * drain_ns


def test_gap_sweeps_are_too_small_to_stall_on_capacity(basis: Basis) -> None:
    swept = [p for p in planner(budget="full").focus(basis) if p.mode == "periodic" and p.gap_ns > 0]
    assert all(p.volume_bytes <= 0.6 * basis.capacity_guess["st.v4", 33] for p in swept)


def test_local_path_alone_is_no_calibration() -> None:
    with pytest.raises(UsageError, match="control"):
        CalibrationRequest(path="local")


def test_a_request_names_a_flavour() -> None:
    with pytest.raises(UsageError, match="flavour"):
        CalibrationRequest(path="host", flavours=())
