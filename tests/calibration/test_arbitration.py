"""The arbiter's ports, found from saturated runs with several numbers of producers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.calibration.conftest import PORTS, TRUTH
from tests.calibration.fluid import Fluid
from tests.calibration.points import KIB, periodic_figures, periodic_point
from xstage_tune.calibration.arbitration import ArbitrationFit, fit_arbitration
from xstage_tune.calibration.reduce import PeriodicFigures

#: Ports of whole TPCs.
TPC_PORTS = (tuple(range(8)), tuple(range(8, 20)), tuple(range(20, 32)))
COUNTS = (4, 8, 12, 16, 20, 24, 28, 30, 31, 32)


def saturated(truth: Fluid, counts: tuple[int, ...], repeats: int = 3) -> list[PeriodicFigures]:
    runs = [periodic_figures(truth, periodic_point(k, 16 * KIB, window_ns=1_500_000)) for k in counts]
    full = periodic_point(truth.sm_count, 16 * KIB, window_ns=1_500_000)
    return runs + [periodic_figures(truth, replace(full, repeat=r)) for r in range(1, repeats + 1)]


def members(fit: ArbitrationFit) -> list[tuple[int, ...]]:
    return [group.sm_ids for group in fit.groups]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ports_of_unequal_and_equal_service_are_found_exactly(seed: int) -> None:
    fit = fit_arbitration(saturated(replace(TRUTH, seed=seed), COUNTS))
    assert members(fit) == list(PORTS)
    assert [group.share for group in fit.groups] == pytest.approx([0.25] * 4, abs=0.005)
    assert fit.unit_sms == 1
    assert fit.systematic
    assert fit.repeat_correlation > 0.99


def test_round_robin_over_pairs_of_sms_is_recognised() -> None:
    truth = Fluid(sm_count=32, ports=TPC_PORTS, unit_sms=2, capacity_bytes=TRUTH.capacity_bytes)
    fit = fit_arbitration(saturated(truth, COUNTS[:-1]))
    assert fit.unit_sms == 2
    assert members(fit) == list(TPC_PORTS)


def test_shares_with_fewer_producers_are_predicted() -> None:
    fit = fit_arbitration(saturated(TRUTH, COUNTS))
    assert [prediction.producers for prediction in fit.predictions] == [*COUNTS, 33]
    # With very few producers an SM can take less than its port would give it; the law knows no such limit.
    assert all(prediction.median_error < 0.01 for prediction in fit.predictions if prediction.producers >= 12)


def test_without_runs_of_fewer_producers_ports_of_equal_service_are_one_group() -> None:
    fit = fit_arbitration(saturated(TRUTH, ()))
    assert members(fit) == [tuple(range(6)), tuple(range(6, 33))]
    assert [group.share for group in fit.groups] == pytest.approx([0.25, 0.75], abs=0.005)


def test_even_service_is_one_group() -> None:
    fit = fit_arbitration(saturated(Fluid(capacity_bytes=TRUTH.capacity_bytes), (8, 16)))
    assert members(fit) == [tuple(range(33))]
    assert not fit.systematic
    assert fit.groups[0].share == pytest.approx(1.0)


def test_service_that_changes_between_repeats_is_not_systematic() -> None:
    runs = saturated(TRUTH, (16,))
    rng = np.random.default_rng(0)
    mixed = [replace(run, lane_bytes_per_s=rng.permutation(run.lane_bytes_per_s)) for run in runs]
    fit = fit_arbitration(mixed)
    assert not fit.systematic
    assert fit.repeat_correlation < 0.9
    assert members(fit) == [tuple(range(33))]


def test_a_single_saturated_run_says_nothing_of_repeats() -> None:
    fit = fit_arbitration(saturated(TRUTH, (), repeats=1))
    assert fit.repeats == 1
    assert not fit.systematic
    assert fit.repeat_correlation == 0.0


def test_one_producer_is_one_group() -> None:
    run = periodic_figures(TRUTH, periodic_point(1, 16 * KIB))
    assert members(fit_arbitration([run])) == [tuple(run.sm_ids.tolist())]
