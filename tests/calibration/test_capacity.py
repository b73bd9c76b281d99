"""Q from isolated bursts, and the law of Q against K."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.calibration.conftest import TRUTH
from tests.calibration.points import KIB, isolated_figures, isolated_point, periodic_figures, periodic_point
from xstage_tune.calibration.capacity import (
    CapacityFit,
    IsolatedSeries,
    fit_capacity,
    guess_capacity,
    isolated_series,
)
from xstage_tune.calibration.capacity_law import fit_capacity_law
from xstage_tune.calibration.drain import DrainFit, fit_drain
from xstage_tune.calibration.issue import IssueModel, Plateau

K = 33
Q = TRUTH.capacity_bytes(K)
FACTORS = (0.2, 0.5, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.3, 1.6, 2.0, 3.0)


@pytest.fixture(scope="module")
def issue() -> IssueModel:
    sizes = (2, 32, 512)
    return IssueModel(
        Plateau("st.v4", K, kib * KIB, TRUTH.free_issue_ns(kib * KIB), None, 10, 1e5) for kib in sizes
    )


@pytest.fixture(scope="module")
def drain() -> DrainFit:
    return fit_drain([periodic_figures(TRUTH, periodic_point(k, 16 * KIB)) for k in (16, 24, 33)], seed=0)


def series(factors: tuple[float, ...]) -> IsolatedSeries:
    sizes = [max(1, round(factor * Q / K / KIB)) * KIB for factor in factors]
    (one,) = isolated_series(isolated_figures(TRUTH, isolated_point(K, size)) for size in sizes)
    return one


def test_capacity_is_recovered(issue: IssueModel, drain: DrainFit) -> None:
    fit = fit_capacity(series(FACTORS), issue, drain, seed=0)
    assert fit.knee_reached
    # The mean over producers ends before the last one where service is uneven, which adds to Q.
    assert fit.bytes == pytest.approx(Q, rel=0.03)
    assert fit.ci95 is not None
    assert fit.ci95[0] <= fit.bytes <= fit.ci95[1]


def test_one_wild_point_moves_the_fit_little(issue: IssueModel, drain: DrainFit) -> None:
    one = series(FACTORS)
    position = int(np.flatnonzero(~one.held_out & (one.volume_bytes > Q))[1])
    runs = list(one.runs)
    runs[position] = replace(runs[position], burst_ns=runs[position].burst_ns * 3)
    (wild,) = isolated_series(runs)
    assert fit_capacity(wild, issue, drain, seed=0).bytes == pytest.approx(Q, rel=0.03)


def test_held_out_points_do_not_reach_the_fit(issue: IssueModel, drain: DrainFit) -> None:
    one = series(FACTORS)
    assert 0 < one.held_out.sum() < len(one.runs) / 2
    runs = [
        replace(run, burst_ns=run.burst_ns * 10) if out else run
        for run, out in zip(one.runs, one.held_out, strict=True)
    ]
    (spoilt,) = isolated_series(runs)
    assert fit_capacity(spoilt, issue, drain, seed=0) == fit_capacity(one, issue, drain, seed=0)


def test_ends_of_the_series_are_never_held_out() -> None:
    one = series(FACTORS)
    assert not one.held_out[0]
    assert not one.held_out[-1]


def test_bursts_that_never_stall_give_a_lower_bound(issue: IssueModel, drain: DrainFit) -> None:
    fit = fit_capacity(series((0.1, 0.3, 0.5, 0.7)), issue, drain, seed=0)
    assert not fit.knee_reached
    assert fit.ci95 is None
    assert 0.6 * Q < fit.bytes < Q


def test_guess_needs_a_stalled_run_only(issue: IssueModel) -> None:
    assert guess_capacity(series((0.1, 0.5)), issue, TRUTH.drain_bytes_per_s) is None
    guess = guess_capacity(series((0.1, 1.5)), issue, TRUTH.drain_bytes_per_s)
    assert guess == pytest.approx(Q, rel=0.05)


def test_onset_is_where_the_slowest_producer_begins_to_wait(issue: IssueModel, drain: DrainFit) -> None:
    one = series(FACTORS)
    waiting = [
        replace(run, slowest_ns=10 * run.slowest_ns) if run.point.volume_bytes > 0.85 * Q else run
        for run in one.runs
    ]
    (uneven,) = isolated_series(waiting)
    fit = fit_capacity(uneven, issue, drain, seed=0)
    assert fit.onset_bytes == pytest.approx(0.8 * Q, rel=0.05)
    assert fit.bytes == fit_capacity(one, issue, drain, seed=0).bytes


def test_volumes_far_beyond_the_knee_do_not_reach_the_fit(issue: IssueModel, drain: DrainFit) -> None:
    near = fit_capacity(series(FACTORS[:-1]), issue, drain, seed=0)
    far = series((*FACTORS[:-1], 6.0))
    late = [replace(r, burst_ns=r.burst_ns * 0.8) if r.point.volume_bytes > 5 * Q else r for r in far.runs]
    (with_far,) = isolated_series(late)
    assert fit_capacity(with_far, issue, drain, seed=0).bytes == pytest.approx(near.bytes, rel=0.005)


def knees(law: dict[int, float]) -> list[CapacityFit]:
    return [CapacityFit("st.v4", k, q, None, True, onset_bytes=q, points=10) for k, q in law.items()]


COUNTS = (8, 16, 32, 66, 132)


@pytest.mark.parametrize(
    ("name", "truth"),
    [
        ("constant", lambda k: 4e6 + 0.0 * k),
        ("linear", lambda k: 3e4 * k),
        ("power", lambda k: 3.5e5 * k**0.5),
        ("saturating", lambda k: 4e6 * (1 - np.exp(-k / 40))),
    ],
)
def test_law_of_the_data_is_chosen(name: str, truth: Callable[[int], float]) -> None:
    rng = np.random.default_rng(5)
    law = fit_capacity_law(
        "st.v4", knees({k: truth(k) * (1 + 0.005 * rng.standard_normal()) for k in COUNTS})
    )
    assert law is not None
    assert law.law == name
    assert law.rms_relative_error < 0.01


def test_parameters_of_the_power_law_are_recovered() -> None:
    law = fit_capacity_law("st.v4", knees({k: 3.5e5 * k**0.5 for k in COUNTS}))
    assert law is not None
    assert law.exponent == pytest.approx(0.5)
    assert law.scale_bytes == pytest.approx(3.5e5)


def test_two_knees_choose_between_laws_of_one_parameter() -> None:
    law = fit_capacity_law("st.v4", knees({32: 2e6, 64: 3e6}))
    assert law is not None
    assert law.law in {"constant", "linear"}


def test_one_knee_is_constant_and_none_is_no_law() -> None:
    one = fit_capacity_law("st.v4", knees({132: 4e6}))
    assert one is not None
    assert (one.law, one.scale_bytes) == ("constant", pytest.approx(4e6))
    assert fit_capacity_law("tma", knees({132: 4e6})) is None


def test_lower_bounds_do_not_enter_the_law() -> None:
    bound = CapacityFit("st.v4", 8, 1e3, None, False, onset_bytes=1e3, points=10)
    with_bound = fit_capacity_law("st.v4", [bound, *knees({32: 2e6, 66: 3e6, 132: 4e6})])
    assert with_bound == fit_capacity_law("st.v4", knees({32: 2e6, 66: 3e6, 132: 4e6}))
