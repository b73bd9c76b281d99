"""The paper's 84 configurations and their summary."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.configs.cases import BLACKWELL
from xstage_tune.devices.simulated_kernels import SimulatedKernels
from xstage_tune.search import suite
from xstage_tune.search.driver import NoProgress
from xstage_tune.search.suite import Ratios, SuiteOptions, paper_84_workloads, run_paper_84


def test_there_are_84_of_seven_models() -> None:
    cases = list(paper_84_workloads())
    assert len(cases) == len({(model, routing, workload) for model, routing, workload in cases}) == 84
    assert set(Counter(model for model, _, _ in cases).values()) == {12}
    assert Counter(routing for _, routing, _ in cases) == {"balanced": 42, "skewed": 42}
    assert Counter(workload.precision for _, _, workload in cases) == {"w4a8": 42, "w8a8": 42}
    assert {workload.tokens_per_rank for _, _, workload in cases} == {3488, 6976, 13952}


def test_ratios_by_hand() -> None:
    ratios = Ratios.of([0.5, 1.0, 2.0, 4.0])
    assert (ratios.median, ratios.max, ratios.min) == (1.5, 4.0, 0.5)
    assert ratios.geomean == pytest.approx(2**0.5)


def test_a_row_compares_the_same_workload_under_each_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    small = [
        case
        for case in paper_84_workloads()
        if case[:2] == ("Hy3", "skewed") and case[2].tokens_per_rank == 3488
    ]
    monkeypatch.setattr(suite, "paper_84_workloads", lambda: iter(small))
    result = run_paper_84(BLACKWELL, SimulatedKernels(BLACKWELL), SuiteOptions(trials=5), NoProgress())
    assert [row.precision for row in result.rows] == ["w4a8", "w8a8"]
    for row in result.rows:
        assert row.bound_ns <= row.tuned_ns <= min(row.wave_ns, row.interleaved_ns * 1.01)
        assert row.interleaved_over_wave > 1.2
        assert row.evaluations == 5
    keys = result.keys()
    assert set(keys["summary"]) == {"interleaved_over_wave", "tuned_over_wave", "tuned_over_heuristics"}
    assert set(keys["summary"]["interleaved_over_wave"]) == {"geomean", "median", "max", "min"}
    best = max(row["interleaved_over_wave"] for row in keys["rows"])
    assert keys["summary"]["interleaved_over_wave"]["max"] == best
