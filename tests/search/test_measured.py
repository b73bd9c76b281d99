"""Searches on a device that times in turn, and on one in a process of its own."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.configs.cases import BLACKWELL
from tests.devices.fault_device import COMES_UNDER, open_planted
from tests.processes import start
from tests.search.cases import CountingSimulator, RunsKernels, drained, request, small_space
from tests.search.killed_search import TRIALS, search
from xstage_tune.base.errors import DeviceLost
from xstage_tune.base.progress import NoProgress
from xstage_tune.devices.isolated import IsolatedDevice
from xstage_tune.families.binding import default_config
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.kernel_launch import KernelLaunch, KernelRun
from xstage_tune.launches.device import LaunchInfo, Outcome
from xstage_tune.search.driver import run_search
from xstage_tune.search.journal import NoJournal, begin_study, recorded, stored_result
from xstage_tune.search.ranking import rank_configs
from xstage_tune.search.result import SearchResult
from xstage_tune.store.facade import Store

pytestmark = pytest.mark.usefixtures("warm_workers")

SPACE = small_space()
DEFAULT = default_config(drained(), BLACKWELL)
OTHERS = [config for config in SPACE.configs if config not in SPACE.baselines]
INFO = LaunchInfo("kernel", "", 0, 0, 0, 1, 1, "2026-01-01T00:00:00+00:00")


class InTurn(RunsKernels):
    """A GPU whose clocks fall with every launch: times of two launches say nothing, their ratios do.

    Args:
        time_ns: of a config, at the first clocks.
        exposed_ns: E_res of a config.
    """

    identity = "in turn"

    def __init__(
        self,
        time_ns: Callable[[KernelConfig], float],
        exposed_ns: Callable[[KernelConfig], float] = lambda _: 0.0,
        *,
        noise: float = 1e-3,
        seed: int = 0,
    ) -> None:
        self._time_ns, self._exposed_ns, self._noise = time_ns, exposed_ns, noise
        self._random = random.Random(seed)
        self.launches: list[KernelLaunch] = []

    def run(self, launches: Iterable[Any]) -> Iterator[Outcome[Any, Any]]:
        for launch in launches:
            self.launches.append(launch)
            slower = 1 + 0.01 * len(self.launches)
            samples = max(5, launch.repeats)

            def samples_ns(config: KernelConfig, slower: float = slower, samples: int = samples) -> Any:
                time_ns = slower * self._time_ns(config)
                return tuple(time_ns * (1 + self._random.gauss(0, self._noise)) for _ in range(samples))

            against = () if launch.against is None else samples_ns(launch.against)
            exposed_ns = self._exposed_ns(launch.config) if launch.exposed else None
            run = KernelRun(samples_ns(launch.config), against_ns=against, exposed_ns=exposed_ns, busy_ns=1e8)
            yield Outcome(launch, run, INFO)


def measured(device: InTurn, **changes: object) -> SearchResult:
    return run_search(request(**({"trials": 24} | changes)), SPACE, device, NoJournal(), NoProgress())


def by_place(config: KernelConfig) -> float:
    """1 ms, and up to 10% more, none twice."""
    return 1e9 * (1 + 0.1 * SPACE.index[config] / len(SPACE.configs))


@pytest.mark.parametrize("sampler", ["tpe", "exhaustive"])
def test_falling_clocks_neither_make_nor_hide_a_winner(sampler: str) -> None:
    winner = OTHERS[40]
    device = InTurn(lambda config: 0.9e9 if config == winner else by_place(config))
    result = measured(device, sampler=sampler, trials=len(SPACE.configs))
    assert result.best.config == winner
    assert result.default is not None
    gain = result.default.objective_ns / result.best.objective_ns
    assert gain == pytest.approx(by_place(DEFAULT) / 0.9e9, rel=2e-3)
    assert result.busy_s == pytest.approx(0.1 * len(device.launches))


def test_every_launch_has_inputs_of_its_own_and_all_but_the_first_config_run_against_the_best() -> None:
    device = InTurn(by_place)
    measured(device)
    assert len({launch.inputs for launch in device.launches}) == len(device.launches)
    first, again, *trials = [launch for launch in device.launches if not launch.exposed]
    assert first.against is again.against is None
    best = first.config
    assert again.config == best
    for launch in trials:
        assert launch.against is not None
        assert by_place(launch.against) <= by_place(best) * 1.003  # what noise allows
        best = min(best, launch.config, key=by_place)
    last = [launch for launch in device.launches if launch.exposed]
    assert {launch.against for launch in last} == {DEFAULT}
    assert last[0].config == DEFAULT


def test_a_whole_space_is_timed_against_one_config() -> None:
    device = InTurn(by_place)
    measured(device, sampler="exhaustive", trials=None)
    trials = [launch for launch in device.launches if not launch.exposed]
    assert {launch.against for launch in trials[2:]} == {trials[0].config}


def test_where_nothing_beats_the_default_surely_it_is_the_answer() -> None:
    result = measured(InTurn(lambda _: 1e9, noise=5e-3))
    assert result.best.config == DEFAULT
    assert not result.beats_default


@pytest.mark.parametrize(("noise", "warned"), [(5e-3, 0), (0.15, 2)])
def test_times_that_do_not_hold_still_are_not_taken_for_an_answer_unsaid(noise: float, warned: int) -> None:
    winner = OTHERS[40]
    device = InTurn(lambda config: 1e8 if config == winner else 1e9, noise=noise)
    result = measured(device, sampler="exhaustive", trials=None)
    assert result.best.config == winner
    assert sum("hold still" in warning for warning in result.warnings) == warned


def test_of_equal_ones_the_config_that_hides_more_wins_and_the_result_says_so(store: Store) -> None:
    fast = OTHERS[40:43]
    exposed = dict(zip(fast, (3e4, 1e4, 2e4), strict=True))
    device = InTurn(
        lambda config: 0.9e9 if config in fast else by_place(config),
        lambda config: exposed.get(config, 0.0),
    )
    asked = request(sampler="exhaustive", trials=None)
    result = run_search(asked, SPACE, device, begin_study(store, asked, SPACE, device.identity), NoProgress())
    assert result.best.config == fast[1]
    assert {tie.config for tie in result.ties} == {fast[0], fast[2]}
    assert result.hides_more in (None, fast[0], fast[2])
    assert stored_result(store) == result


def test_samples_and_states_are_kept_with_each_trial(store: Store) -> None:
    asked = request(trials=4)
    device = InTurn(by_place)
    run_search(asked, SPACE, device, begin_study(store, asked, SPACE, device.identity), NoProgress())
    trials = [trial for trial in store.studies.trials(store.studies.get().id) if not trial.verification]
    assert len(trials) == 4
    for trial in trials[1:]:
        assert trial.measured is not None
        assert len(trial.measured["run"]["latency_ns"]) == len(trial.measured["run"]["against_ns"]) == 5
        assert trial.measured["launch"]["kernel"] == "kernel"


def test_some_trials_check_what_the_model_leaves_out_and_the_result_says_what_they_found(
    store: Store,
) -> None:
    device = InTurn(by_place)
    asked = request(trials=60)
    journal = begin_study(store, asked, SPACE, device.identity)
    result = run_search(asked, SPACE, device, journal, NoProgress())
    assert result.model is not None
    assert result.model.checked == 3
    assert result.model.checked_best_over_best is not None
    assert result.model.second_half_error is not None
    assert stored_result(store) == result
    simulated = run_search(asked, SPACE, CountingSimulator(), NoJournal(), NoProgress())
    assert simulated.model is None  # it is the model


def test_measured_against_expected_is_kept_with_each_trial_and_gets_nearer(store: Store) -> None:
    """A machine on which everything takes a third longer than the closed forms say."""
    ranking = rank_configs(SPACE.configs, drained(), BLACKWELL, "latency")
    closed = dict(zip(SPACE.configs, ranking.predicted_ns, strict=True))
    device = InTurn(lambda config: 1.33 * float(closed[config]))
    asked = request(trials=40)
    result = run_search(asked, SPACE, device, begin_study(store, asked, SPACE, device.identity), NoProgress())
    assert result.model is not None
    # At the clocks of the default's second launch, on which every later ratio rests.
    assert result.model.closed_form_error == pytest.approx(1.33 * 1.02 - 1, abs=0.01)
    assert result.model.first_half_error is not None
    assert result.model.second_half_error is not None
    assert result.model.second_half_error < result.model.first_half_error < result.model.closed_form_error
    kept = [trial.measured for trial in store.studies.trials(store.studies.get().id) if trial.measured]
    assert all(trial["closed_form_ns"] > 0 and trial["expected_ns"] > 0 for trial in kept)


def test_bounds_that_a_measurement_broke_cut_no_more_than_they_have_proved() -> None:
    """Every time is below its bound: as they stand, bounds would cut what is faster than the best."""
    bounds_ns = rank_configs(SPACE.configs, drained(), BLACKWELL, "latency").bound_ns
    times_ns = {
        config: float(bound_ns) * (0.8 if place % 2 else 0.99)
        for place, (config, bound_ns) in enumerate(zip(SPACE.configs, bounds_ns, strict=True))
    }
    result = measured(InTurn(times_ns.__getitem__), trials=len(SPACE.configs), tolerance=0.0)
    best_ns = min(times_ns.values())
    assert times_ns[result.best.config] <= best_ns * 1.003
    assert result.below_bound > 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "planted").mkdir()
    return tmp_path / "planted"


def test_a_search_outlives_whatever_its_kernels_do_to_their_process(folder: Path, store: Store) -> None:
    """And so does its store: each fault is a trial with what it comes under."""
    planted = {"hang": 20, "crash": 21, "illegal access": 30, "incorrect": 31, "compile": 22, "nan": 23}
    by_label = {OTHERS[place].label: fault for fault, place in planted.items()}
    (folder / "faults").write_text("".join(f"{label}\t{fault}\n" for label, fault in by_label.items()))
    asked = request(sampler="exhaustive", trials=None)
    with closing(IsolatedDevice(partial(open_planted, str(folder)), deadline_s=2.0)) as device:
        journal = begin_study(store, asked, SPACE, device.identity)
        result = run_search(asked, SPACE, device, journal, NoProgress())
    assert result.evaluations == len(SPACE.configs)
    assert result.faults == result.failed == len(planted)
    failed = [trial for trial in store.studies.trials(journal.study_id) if trial.state == "failed"]
    _, found = recorded(store.studies.get(), failed)
    assert {config.label: failure.fault for config, failure in found.items()} == {
        label: COMES_UNDER[fault] for label, fault in by_label.items()
    }


def test_a_lost_gpu_ends_the_search_and_fails_no_config_behind_it(folder: Path, store: Store) -> None:
    label = OTHERS[20].label
    (folder / "faults").write_text(f"{label}\tcrash\n")
    asked = request(sampler="exhaustive", trials=None)

    class Lost(IsolatedDevice):
        def run(self, launches: Iterable[Any]) -> Iterator[Any]:
            for launch in launches:
                if launch.config.label == label:
                    (folder / "lost").touch()
                yield from super().run([launch])

    with closing(Lost(partial(open_planted, str(folder)))) as device:
        journal = begin_study(store, asked, SPACE, device.identity)
        with pytest.raises(DeviceLost, match=r"is lost.*trials are kept") as ended:
            run_search(asked, SPACE, device, journal, NoProgress())
    assert f"--resume {journal.study_id}" in ended.value.hint
    assert [t for t in store.studies.trials(journal.study_id) if t.state == "failed"] == []


@pytest.mark.parametrize("killed", ["search", "worker", "both"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_search_that_is_killed_loses_no_finished_trial(
    folder: Path, tmp_path: Path, killed: str, seed: int
) -> None:
    """``kill -9`` at any point."""
    chance = random.Random(seed)
    (folder / "slow").touch()
    location = str(tmp_path / "store.db")
    process = start(tmp_path, "tests.search.killed_search", location, str(folder))
    until = time.monotonic() + 60
    wanted = chance.randrange(2, TRIALS)
    while len(ran(folder)) < wanted and time.monotonic() < until and process.returncode is None:
        time.sleep(0.005)
    if killed in ("worker", "both"):
        with suppress(ProcessLookupError):
            os.kill(int((folder / "workers").read_text().split()[-1]), signal.SIGKILL)
    if killed in ("search", "both"):
        process.send_signal(signal.SIGKILL)
    process.communicate(60)
    with Store.open(location) as store:
        study = store.studies.get("latest-any").id
        before = {config_key(t.params): t.objective_ns for t in trials_of(store, study)}
    if killed == "worker":
        assert process.returncode == 0  # it was one trial's fault, if any's
        return
    result = search(location, str(folder), study)
    assert result.evaluations == TRIALS
    with Store.open(location) as store:
        after = trials_of(store, study)
    assert before.items() <= {config_key(t.params): t.objective_ns for t in after}.items()
    assert max(Counter(config_key(t.params) for t in after).values()) == 1  # none was run again


def ran(folder: Path) -> list[str]:
    file = folder / "ran"
    return file.read_text().splitlines() if file.exists() else []


def trials_of(store: Store, study: str) -> list[Any]:
    return [t for t in store.studies.trials(study) if t.state == "complete" and not t.verification]


def config_key(params: dict[str, Any]) -> str:
    return repr(sorted(params.items()))
