"""What a search evaluates, where it stops, and what it answers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.configs.cases import BLACKWELL, attention, moe
from tests.h200 import H200
from tests.once import made_once
from tests.search.cases import (
    CountingSimulator,
    TableDevice,
    as_megamoe,
    drained,
    request,
    small_space,
)
from xstage_tune.base.progress import NoProgress
from xstage_tune.families.binding import bind, default_config
from xstage_tune.families.config import KernelConfig
from xstage_tune.launches.device import Device, DeviceDescription
from xstage_tune.search import driver, sampling
from xstage_tune.search.driver import run_search
from xstage_tune.search.journal import NoJournal
from xstage_tune.search.ranking import Ranking, rank_configs
from xstage_tune.search.request import SearchRequest
from xstage_tune.search.result import SearchResult
from xstage_tune.search.sampling import Proposer, SamplerName
from xstage_tune.search.space import Space, build_space
from xstage_tune.simulator.device import SimulatedDevice
from xstage_tune.simulator.fused_kernels import SimulatedKernels

SPACE = small_space()
DEFAULT = default_config(drained(), BLACKWELL)
HEURISTICS = bind(drained(), BLACKWELL).heuristics()


def search(device: Device, space: Space = SPACE, **changes: object) -> SearchResult:
    return run_search(request(**changes), space, device, NoJournal(), NoProgress())


@pytest.fixture(scope="module")
def simulated_ns(tmp_path_factory: pytest.TempPathFactory) -> dict[KernelConfig, float]:
    """Every config of the space, simulated."""
    with made_once(tmp_path_factory, "simulated-space") as folder:
        file = folder / "latencies.npy"
        if not file.exists():
            device = SimulatedKernels(BLACKWELL)
            np.save(file, [device.run_kernel(drained(), one, 1).latency_ns[0] for one in SPACE.configs])
    return dict(zip(SPACE.configs, np.load(file).tolist(), strict=True))


@pytest.mark.parametrize(("sampler", "seed"), [("tpe", 0), ("random", 1)])
def test_cutting_by_bounds_never_removes_the_optimum(
    simulated_ns: dict[KernelConfig, float], sampler: str, seed: int
) -> None:
    """Without a tolerance the search ends only when all else is cut: it must have the exhaustive optimum."""
    device = TableDevice(simulated_ns.__getitem__)
    result = search(device, sampler=sampler, seed=seed, tolerance=0.0, trials=len(SPACE.configs))
    evaluated = {config: simulated_ns[config] for config in device.asked}
    assert min(evaluated.values()) == min(simulated_ns.values())
    assert result.bound_ns <= min(simulated_ns.values())
    cuts = {cut.reason: cut.configs for cut in result.cuts}
    assert cuts["bounded"] > 0
    assert "ranked last" not in cuts
    assert len(evaluated) + cuts["bounded"] == len(SPACE.configs)
    skipped_ns = [ns for config, ns in simulated_ns.items() if config not in evaluated]
    assert min(skipped_ns) >= min(evaluated.values())


def test_a_guided_search_needs_few_evaluations(simulated_ns: dict[KernelConfig, float]) -> None:
    device = TableDevice(simulated_ns.__getitem__)
    search(device, tolerance=0.0, trials=15)
    assert min(simulated_ns[config] for config in device.asked) <= 1.01 * min(simulated_ns.values())


def test_exhaustive_evaluates_everything_once(simulated_ns: dict[KernelConfig, float]) -> None:
    device = TableDevice(simulated_ns.__getitem__)
    result = search(device, sampler="exhaustive")
    assert sorted(c.label for c in device.asked) == sorted(c.label for c in SPACE.configs)
    assert result.best.objective_ns == min(simulated_ns.values())
    assert {cut.reason.split(":")[0] for cut in result.cuts} == {"infeasible"}


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_nothing_is_evaluated_twice_and_nothing_infeasible(sampler: str) -> None:
    device = TableDevice(lambda config: 1e9 + len(config.label))  # never near a bound
    result = search(device, sampler=sampler, trials=60)
    assert len(device.asked) == len(set(device.asked)) == result.evaluations == 60
    assert set(device.asked) <= set(SPACE.configs)
    assert result.stopped == "60 trials"


def test_the_default_and_the_heuristics_come_first_whatever_their_bound() -> None:
    device = CountingSimulator()
    result = search(device, trials=1 + len(HEURISTICS))
    assert device.asked == [DEFAULT, *HEURISTICS.values()]
    assert result.default.config == DEFAULT
    assert {name: outcome.config for name, outcome in result.heuristics.items()} == HEURISTICS


def test_trials_asked_for_are_trials_run() -> None:
    device = CountingSimulator()
    result = search(device, trials=1)
    assert device.asked == [DEFAULT]
    assert (result.evaluations, result.stopped) == (1, "1 trial")
    assert (result.best.config, dict(result.heuristics)) == (DEFAULT, {})


def test_the_same_seed_gives_the_same_result(simulated_ns: dict[KernelConfig, float]) -> None:
    first, second = (TableDevice(simulated_ns.__getitem__, spread_ns=100.0) for _ in range(2))
    assert search(first, seed=7, trials=40) == search(second, seed=7, trials=40)
    assert first.asked == second.asked


def test_another_seed_may_look_elsewhere() -> None:
    first, second = (TableDevice(lambda config: 1e9 + len(config.label)) for _ in range(2))
    search(first, seed=0, trials=40)
    search(second, seed=1, trials=40)
    assert first.asked != second.asked


class SimulatedTable(TableDevice):
    """Says of itself that it simulates."""

    def describe(self) -> DeviceDescription:
        return replace(H200, kind="simulator")


@pytest.mark.parametrize(
    ("device", "sampler", "evaluations"),
    [(TableDevice, "tpe", 100), (SimulatedTable, "none", len(SPACE.configs))],
)
def test_what_closed_forms_rank_and_a_simulator_runs_needs_no_sampler_and_no_limit_where_it_is_small(
    device: type[TableDevice], sampler: str, evaluations: int
) -> None:
    result = search(device(lambda config: 1e9 + len(config.label)), sampler="auto")  # never near a bound
    assert (result.sampler, result.evaluations) == (sampler, evaluations)


def test_it_stops_within_the_tolerance_of_the_bound() -> None:
    result = search(CountingSimulator(), tolerance=0.5)
    assert "tolerance, 50" in result.stopped
    assert result.evaluations == 3  # the default and the heuristics
    assert result.above_bound is not None
    assert result.above_bound <= 0.5


def test_it_stops_when_the_time_is_up() -> None:
    result = search(CountingSimulator(), timeout_s=0.0)
    assert result.stopped == "timeout of 0 s"
    assert result.evaluations == 3


def test_the_ranking_counts_as_time_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)

    def slowly_ranked(*arguments: Any) -> Ranking:
        clock.now += 6.0
        return rank_configs(*arguments)

    monkeypatch.setattr(driver, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(driver, "rank_configs", slowly_ranked)
    result = search(CountingSimulator(), timeout_s=5.0)
    assert (result.stopped, result.evaluations) == ("timeout of 5 s", 3)


def slow(best: KernelConfig, by: float) -> TableDevice:
    """A device on which ``best`` is faster than all others by a fraction, with repeats spread over 1%."""
    return TableDevice(lambda config: 1e9 * (1 - by if config == best else 1), spread_ns=1e7)


def test_a_winner_must_beat_the_default_by_more_than_the_repeats_differ() -> None:
    winner = next(c for c in SPACE.configs if c not in (DEFAULT, *HEURISTICS.values()))
    clear = search(slow(winner, by=0.02), sampler="exhaustive")
    assert clear.beats_default
    assert clear.best.config == winner
    assert clear.ties == ()
    unclear = search(slow(winner, by=0.005), sampler="exhaustive")
    assert not unclear.beats_default
    assert unclear.best.config == DEFAULT
    assert winner in [tie.config for tie in unclear.ties]


def test_a_lucky_run_cuts_nothing(simulated_ns: dict[KernelConfig, float]) -> None:
    """The default's first run is as fast as the least bound: were it believed, nothing could be better."""
    lucky_ns = float(rank_configs(SPACE.configs, drained(), BLACKWELL, "latency").bound_ns.min())
    device = TableDevice(simulated_ns.__getitem__, outlier_ns={(DEFAULT, 0): lucky_ns})
    search(device, tolerance=0.0, trials=len(SPACE.configs))
    assert min(simulated_ns[config] for config in device.asked) == min(simulated_ns.values())


def test_the_answer_is_the_best_of_those_that_surely_beat_the_default() -> None:
    """One with a better median has a run as slow as the default's: that is a tie, not the answer."""
    others = [c for c in SPACE.configs if c not in (DEFAULT, *HEURISTICS.values())]
    times = {others[0]: 0.975e9, others[1]: 0.98e9}
    device = TableDevice(lambda config: times.get(config, 1e9), outlier_ns={(others[0], 4): 1e9})
    result = search(device, sampler="exhaustive")
    assert result.best.config == others[1]
    assert others[0] in [tie.config for tie in result.ties]


def test_equal_configs_are_reported_as_ties() -> None:
    def time_ns(config: KernelConfig) -> float:
        return 1e9 if as_megamoe(config).schedule.lead_rows == 12 else 2e9

    result = search(TableDevice(time_ns), trials=60)
    assert result.beats_default
    assert result.ties
    for outcome in (result.best, *result.ties):
        assert as_megamoe(outcome.config).schedule.lead_rows == 12


def test_a_wrong_prediction_is_not_followed_for_long(simulated_ns: dict[KernelConfig, float]) -> None:
    """192-row tiles, which the closed forms like best, take three times as long as expected here."""

    def time_ns(config: KernelConfig) -> float:
        ns = simulated_ns[config]
        return ns * 3 if as_megamoe(config).block_m == 192 else ns

    device = TableDevice(time_ns)
    search(device, trials=20, tolerance=0.0)
    asked = device.asked[3:]
    assert sum(as_megamoe(config).block_m == 192 for config in asked) <= len(asked) / 2
    best_ns = min(time_ns(config) for config in SPACE.configs if as_megamoe(config).pipeline_stages == 6)
    assert min(map(time_ns, asked)) <= 1.01 * best_ns


def test_configs_that_cannot_launch_are_counted_and_passed_over() -> None:
    device = TableDevice(
        lambda config: 1e9 + len(config.label), broken=lambda c: as_megamoe(c).staging_depth == 3
    )
    result = search(device, trials=50)
    assert 0 < result.failed < 50
    assert result.evaluations == 50
    assert as_megamoe(result.best.config).staging_depth != 3


def test_a_failed_heuristic_is_left_out() -> None:
    lost = HEURISTICS["clamped-lag"]
    result = search(TableDevice(lambda _: 1e9, broken=lambda config: config == lost), trials=5)
    assert set(result.heuristics) == {"alternating"}


def test_the_stall_objective_counts_waits() -> None:
    result = search(CountingSimulator(), objective="stall", trials=15)
    assert result.bound_ns == 0
    assert result.above_bound is None
    device = SimulatedKernels(BLACKWELL)
    again = device.run_kernel(drained(), result.best.config, 5)
    assert result.best.samples_ns == again.stall_ns
    assert result.best.objective_ns < result.default.objective_ns


@pytest.mark.usefixtures("few_configs")
@pytest.mark.parametrize(
    "workload",
    [
        moe(tokens_per_rank=1),
        moe(top_k=1, routing={"kind": "histogram", "histogram": [1.0] + [0.0] * 15}),
        moe(remote_fraction=0.0),
        attention(tokens=1),
        attention(tokens=9450),
    ],
    ids=["one token", "all on one expert", "nothing remote", "one row", "straddling tiles"],
)
def test_extreme_workloads_are_searched(workload: object) -> None:
    asked = SearchRequest(workload=workload, platform=BLACKWELL, trials=6)  # type: ignore[arg-type]
    space = build_space(asked.workload, BLACKWELL)
    result = run_search(asked, space, SimulatedDevice(BLACKWELL), NoJournal(), NoProgress())
    assert 0 < result.bound_ns <= result.best.objective_ns <= result.default.objective_ns
    assert np.isfinite(result.best.objective_ns)


def remember_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Histories so short that small studies outgrow them."""
    monkeypatch.setattr(sampling, "_MOST_HISTORY", 40)
    monkeypatch.setattr(sampling, "_KEPT_BEST", 10)
    monkeypatch.setattr(sampling, "_KEPT_NEWEST", 10)


@pytest.mark.parametrize("sampler", ["tpe", "random", "exhaustive"])
def test_what_a_sampler_remembers_does_not_grow_with_the_study(
    sampler: SamplerName, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember_little(monkeypatch)
    proposer = Proposer(sampler, 0, SPACE)
    known: list[int] = []
    for number, config in enumerate(SPACE.configs[:150]):
        proposer.tell(config, 1e9 - number if number % 3 else None)
        if number % 10 == 0:
            proposer.tell(proposer.propose(), 2e9)
        known.append(len(proposer.study.get_trials(deepcopy=False)))
    assert max(known) <= 41
    told = [trial.values[0] for trial in proposer.study.get_trials(deepcopy=False) if trial.values]
    if sampler == "tpe":  # the best stay known
        assert 1e9 - 149 in told


def test_a_study_longer_than_the_history_gives_the_same_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    remember_little(monkeypatch)
    first, second = (TableDevice(lambda config: 1e9 + len(config.label)) for _ in range(2))
    assert search(first, trials=90) == search(second, trials=90)
    assert first.asked == second.asked
