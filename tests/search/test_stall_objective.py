"""Less waiting is no answer in a slower launch: latency beside the objective, and held to the default's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.configs.cases import BLACKWELL
from tests.search.cases import RunsKernels, as_megamoe, drained, request, small_space
from xstage_tune.base.progress import NoProgress
from xstage_tune.families.binding import bind, default_config
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.kernel_launch import KernelRun
from xstage_tune.families.workload import Workload
from xstage_tune.search.driver import run_search
from xstage_tune.search.journal import NoJournal, begin_study, resume_study, stored_result
from xstage_tune.search.result import SearchResult, result_from_keys
from xstage_tune.store.facade import Store

SPACE = small_space()
DEFAULT = default_config(drained(), BLACKWELL)
BASELINES = (DEFAULT, *bind(drained(), BLACKWELL).heuristics().values())
OTHERS = [config for config in SPACE.configs if config not in BASELINES]


class Waiting(RunsKernels):
    """A device of given latencies and stalls."""

    identity = "waiting"

    def __init__(self, times_ns: Callable[[KernelConfig], tuple[float, float]]) -> None:
        self._times_ns = times_ns
        self.asked: list[KernelConfig] = []

    def run_kernel(self, workload: Workload, config: KernelConfig, repeats: int) -> KernelRun:
        del workload
        self.asked.append(config)
        latency_ns, stall_ns = self._times_ns(config)
        return KernelRun((latency_ns,) * repeats, (stall_ns,) * repeats)


def search(device: Waiting, **changes: object) -> SearchResult:
    asked = request(**({"objective": "stall"} | changes))
    return run_search(asked, SPACE, device, NoJournal(), NoProgress())


def slow_idler(config: KernelConfig) -> tuple[float, float]:
    """One config waits for nothing in a launch that is 20% longer; another waits less in an equal one."""
    if config == OTHERS[0]:
        return 1.2e9, 0.0
    return 1e9, 1e7 if config == OTHERS[1] else 1e8


def test_a_config_slower_than_the_default_is_no_answer_however_little_it_waits() -> None:
    result = search(Waiting(slow_idler), sampler="exhaustive")
    assert result.best.config == OTHERS[1]
    assert result.best.latency_ns == 1e9
    assert result.slower == 1
    assert OTHERS[0] not in [tie.config for tie in result.ties]


def test_a_launch_that_is_longer_by_no_more_than_runs_differ_may_be_the_answer() -> None:
    def times_ns(config: KernelConfig) -> tuple[float, float]:
        return (1.005e9, 0.0) if config == OTHERS[0] else (1e9, 1e8)

    assert search(Waiting(times_ns), sampler="exhaustive").best.config == OTHERS[0]


def test_one_that_waits_for_nothing_but_is_too_slow_does_not_end_the_search() -> None:
    """Nothing can wait less than not at all, yet it is no answer, so that others must be tried."""

    def times_ns(config: KernelConfig) -> tuple[float, float]:
        slow = as_megamoe(config).schedule.kind == "interleaved"
        return (1.3e9, 0.0) if slow else (1e9, 1e8 - len(config.label))

    result = search(Waiting(times_ns), trials=40)
    assert result.evaluations == 40
    assert as_megamoe(result.best.config).schedule.kind != "interleaved"


def test_latency_is_kept_with_every_trial_and_resumed(store: Store) -> None:
    asked = request(objective="stall", trials=20)
    first = Waiting(slow_idler)
    journal = begin_study(store, asked, SPACE, first.identity)
    result = run_search(asked, SPACE, first, journal, NoProgress())
    trials = [trial for trial in store.studies.trials(journal.study_id) if trial.state == "complete"]
    assert trials
    assert all(trial.latency_ns in (1e9, 1.2e9) for trial in trials)
    assert stored_result(store) == result

    more = request(objective="stall", trials=22)
    second = Waiting(slow_idler)
    again = resume_study(store, journal.study_id, more, second.identity)
    resumed = run_search(more, SPACE, second, again, NoProgress())
    assert resumed.evaluations == 22
    measured_again = {outcome.config for outcome in (*resumed.named, *resumed.ties)}
    assert len(set(second.asked) - measured_again) <= 2


def test_a_stall_without_latency_of_an_earlier_version_runs_again(store: Store) -> None:
    asked = request(objective="stall", trials=5)
    journal = begin_study(store, asked, SPACE, "waiting")
    journal.write(DEFAULT, "complete", objective_ns=1e8)
    store.studies.end(journal.study_id, "interrupted")
    assert resume_study(store, journal.study_id, asked, "waiting").finished() == {}


@pytest.mark.parametrize("objective", ["latency", "stall"])
def test_a_result_of_an_earlier_version_is_read(objective: str) -> None:
    keys = search(Waiting(slow_idler), objective=objective, trials=5).keys()
    for name in ("no_default", "failures", "below_bound", "least_part_of_bound", "slower", "warnings"):
        del keys[name]
    for outcome in (keys["best"], keys["default"], *keys["heuristics"].values(), *keys["ties"]):
        del outcome["latency_ns"], outcome["latency_samples_ns"]
    result = result_from_keys(keys, "an old study")
    assert result.default is not None
    assert result.default.latency_ns == (1e9 if objective == "latency" else None)
    assert (result.no_default, result.failures, result.warnings) == ("", (), ())
