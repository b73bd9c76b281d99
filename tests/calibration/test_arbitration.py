"""The arbiter's ports and branches, found from saturated runs with chosen SMs idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.calibration.conftest import PORTS, TRUTH
from tests.calibration.fluid import Fluid
from tests.calibration.points import KIB, periodic_figures, periodic_point
from xstage_tune.calibration.arbitration import ArbitrationFit, fit_arbitration
from xstage_tune.calibration.ports import Observation, Partition, find_partition
from xstage_tune.calibration.reduce import PeriodicFigures

SIZES = ((22, 8), (12, 4), (5, 6))  # (active SMs, runs)


def saturated(truth: Fluid, sizes: Sequence[tuple[int, int]], repeats: int = 3) -> list[PeriodicFigures]:
    """Repeats with all SMs, and runs on random sets of SMs."""
    rng = np.random.default_rng(truth.seed)
    full = periodic_point(truth.sm_count, 16 * KIB, window_ns=1_500_000)
    points = [replace(full, repeat=repeat) for repeat in range(repeats)]
    for active, runs in sizes:
        for _ in range(runs):
            idle = tuple(sorted(rng.permutation(truth.sm_count)[active:].tolist()))
            points.append(replace(full, producers=active, idle_sms=idle))
    return [periodic_figures(truth, point) for point in points]


def members(fit: ArbitrationFit) -> tuple[tuple[int, ...], ...]:
    return tuple(group.sm_ids for group in fit.groups)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ports_of_unequal_and_equal_service_are_found_exactly(seed: int) -> None:
    fit = fit_arbitration(saturated(replace(TRUTH, seed=seed), SIZES))
    assert members(fit) == PORTS
    assert [group.share for group in fit.groups] == pytest.approx([0.25] * 4, abs=0.005)
    assert fit.systematic
    assert fit.repeat_correlation > 0.99
    assert fit.fitted_error < 0.01


@pytest.mark.parametrize("branches", [(0, 0, 1, 1), (0, 1, 0, 1), (0, 0, 0, 0)])
def test_branches_are_found_where_there_are_any(branches: tuple[int, ...]) -> None:
    fit = fit_arbitration(saturated(replace(TRUTH, branch_of_port=branches), SIZES))
    found = [group.branch for group in fit.groups]
    assert [[a == b for a in found] for b in found] == [[a == b for a in branches] for b in branches]


def test_shares_of_the_hardwares_placements_are_predicted() -> None:
    counts = (8, 16, 24, 30)
    placed = [periodic_figures(TRUTH, periodic_point(k, 16 * KIB, window_ns=1_500_000)) for k in counts]
    fit = fit_arbitration([*saturated(TRUTH, SIZES), *placed])
    assert tuple(prediction.producers for prediction in fit.predictions) == counts
    # An SM that has half a branch to itself pauses between bursts, and leaves some of it unused.
    few, *more = fit.predictions
    assert few.max_error < 0.1
    assert all(prediction.max_error < 0.01 for prediction in more)


def test_an_h200_with_noisy_shares_is_resolved() -> None:
    noise = 0.05  # of a share; repeats on the hardware differ by 0.04
    # 24 ports of 4 or 6 SMs on two branches, the SM ids scattered; the runs of the full budget.
    rng = np.random.default_rng(11)
    sizes = rng.permutation([4] * 6 + [6] * 18)
    port = rng.permutation(np.repeat(np.arange(24), sizes))
    weight = 1 / 24 / sizes[port]
    truth = Partition(port, np.arange(24) % 2, weight)

    def noisy(position: np.ndarray) -> Observation:
        share = truth.predict(position) * np.exp(noise * rng.standard_normal(len(position)))
        return Observation(position, share / share.sum())

    subsets = [
        np.sort(rng.permutation(132)[:active])
        for active, runs in ((88, 16), (48, 8), (11, 12))
        for _ in range(runs)
    ]
    measured = weight * np.exp(noise / 2 * rng.standard_normal(132))
    found = find_partition(measured / measured.sum(), [noisy(subset) for subset in subsets], noise)
    assert np.array_equal(found.port[:, None] == found.port, port[:, None] == port)
    branch, true_branch = found.branch[found.port], truth.branch[port]
    assert np.array_equal(branch[:, None] == branch, true_branch[:, None] == true_branch)


def test_without_idle_sms_ports_of_equal_service_are_one_group() -> None:
    fit = fit_arbitration(saturated(TRUTH, ()))
    assert members(fit) == (tuple(range(6)), tuple(range(6, 33)))
    assert [group.share for group in fit.groups] == pytest.approx([0.25, 0.75], abs=0.005)


def test_even_service_is_one_group() -> None:
    fit = fit_arbitration(saturated(Fluid(capacity_bytes=TRUTH.capacity_bytes), SIZES))
    assert members(fit) == (tuple(range(33)),)
    assert not fit.systematic
    assert fit.groups[0].share == pytest.approx(1.0)


def test_service_that_changes_between_repeats_is_not_systematic() -> None:
    rng = np.random.default_rng(0)
    mixed = [
        replace(run, lane_bytes_per_s=rng.permutation(run.lane_bytes_per_s))
        for run in saturated(TRUTH, SIZES)
    ]
    fit = fit_arbitration(mixed)
    assert not fit.systematic
    assert fit.repeat_correlation < 0.9
    assert members(fit) == (tuple(range(33)),)


def test_a_single_saturated_run_says_nothing_of_repeats() -> None:
    fit = fit_arbitration(saturated(TRUTH, (), repeats=1))
    assert fit.repeats == 1
    assert not fit.systematic
    assert fit.repeat_correlation == 0.0


def test_one_producer_is_one_group() -> None:
    run = periodic_figures(TRUTH, periodic_point(1, 16 * KIB))
    assert members(fit_arbitration([run])) == (tuple(run.sm_ids.tolist()),)
