"""What fails is an outcome: kept with its reason, not run again, and no end of the search."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.configs.cases import BLACKWELL
from tests.search.cases import FaultyDevice, TableDevice, as_megamoe, drained, request, small_space
from xstage_tune.base.errors import DeviceError, FindingError, RunInterrupted, StoreError
from xstage_tune.base.progress import NoProgress
from xstage_tune.families.binding import bind, default_config
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.kernel_launch import KernelLaunch, KernelRun
from xstage_tune.launches.device import Device
from xstage_tune.search.driver import run_search
from xstage_tune.search.evaluation import Failed, Failure, evaluate, grouped
from xstage_tune.search.journal import NoJournal, begin_study, resume_study, stored_result
from xstage_tune.search.ranking import rank_configs
from xstage_tune.search.result import SearchResult
from xstage_tune.store.facade import Store

SPACE = small_space()
DEFAULT = default_config(drained(), BLACKWELL)
HEURISTICS = bind(drained(), BLACKWELL).heuristics()
TRIALS = 20
LAUNCH = KernelLaunch(drained(), DEFAULT, BLACKWELL.path)

Outcome = BaseException | float | None
UNUSABLE = (math.nan, math.inf, 0.0, -1.0, 5.0)
ERRORS = (
    FindingError("4096 bytes did not arrive"),
    DeviceError("cannot launch"),
    RuntimeError("PassManager::run failed"),
    MemoryError(),
)


def when(fails: Callable[[KernelConfig], bool], outcome: Outcome) -> FaultyDevice:
    return FaultyDevice(lambda config, _: outcome if fails(config) else None)


def search(device: Device, **changes: object) -> SearchResult:
    return run_search(request(**({"trials": TRIALS} | changes)), SPACE, device, NoJournal(), NoProgress())


def is_alternating(config: KernelConfig) -> bool:
    return as_megamoe(config).schedule.kind == "alternating"


def is_default(config: KernelConfig) -> bool:
    return config == DEFAULT


@pytest.mark.parametrize("outcome", [*ERRORS, *UNUSABLE], ids=repr)
def test_a_search_outlives_configs_that_fail(outcome: Outcome) -> None:
    result = search(when(is_alternating, outcome))
    assert result.evaluations == TRIALS
    assert result.failed > 0
    assert sum(group.configs for group in result.failures) == result.failed
    assert not is_alternating(result.best.config)
    assert result.default is not None
    assert result.bound_ns > 0


@pytest.mark.parametrize("outcome", [*ERRORS, *UNUSABLE], ids=repr)
def test_a_default_that_fails_is_named_and_the_best_heuristic_is_compared_with(outcome: Outcome) -> None:
    result = search(when(is_default, outcome))
    assert result.default is None
    assert DEFAULT.label in result.no_default
    assert not result.beats_default
    assert result.evaluations == TRIALS
    assert result.baseline in result.heuristics.values()
    assert any("heuristics" in warning for warning in result.warnings)


def test_a_winner_must_surely_beat_the_best_heuristic_where_the_default_failed() -> None:
    winner = next(c for c in SPACE.configs if c not in (DEFAULT, *HEURISTICS.values()))

    def faster(by: float) -> SearchResult:
        table = TableDevice(lambda config: 1e9 * (1 - by if config == winner else 1), spread_ns=1e7)
        device = FaultyDevice(lambda config, _: math.nan if config == DEFAULT else None, table)
        return search(device, sampler="exhaustive", trials=None)

    assert faster(0.02).best.config == winner
    assert faster(0.02).beats_baseline
    unclear = faster(0.005)
    assert unclear.best.config in HEURISTICS.values()
    assert not unclear.beats_baseline


def test_where_every_baseline_failed_the_best_of_the_rest_is_the_answer() -> None:
    baselines = (DEFAULT, *HEURISTICS.values())
    result = search(when(lambda config: config in baselines, RuntimeError("no")))
    assert result.baseline is None
    assert result.best.config not in baselines
    assert any("nothing" in warning for warning in result.warnings)


@pytest.mark.parametrize("outcome", [RuntimeError("no kernel image"), math.nan], ids=repr)
def test_where_nothing_runs_the_reasons_are_the_finding(outcome: Outcome) -> None:
    device = when(lambda _: True, outcome)
    with pytest.raises(FindingError) as caught:
        search(device, trials=200)
    assert ("no kernel image" in caught.value.message) or ("nan" in caught.value.message)
    assert len(device.asked) < 50  # it gives up


def test_a_device_that_is_gone_stops_the_search_and_is_no_outcome_of_later_configs(store: Store) -> None:
    asked = request(trials=TRIALS)
    device = FaultyDevice(lambda _, call: RuntimeError("sticky error") if call > 12 else None)
    journal = begin_study(store, asked, SPACE, device.identity)
    with pytest.raises(DeviceError, match="runs nothing any more") as caught:
        run_search(asked, SPACE, device, journal, NoProgress())
    assert f"--resume {journal.study_id}" in caught.value.hint
    assert store.studies.get().status == "failed"
    failed = [t for t in store.studies.trials(journal.study_id) if t.state == "failed"]
    assert len(failed) == 1  # the one that may have broken it

    still_gone = FaultyDevice(lambda *_: RuntimeError("sticky error"))
    again = resume_study(store, journal.study_id, asked, device.identity)
    with pytest.raises(DeviceError, match="runs nothing any more"):
        run_search(asked, SPACE, still_gone, again, NoProgress())
    failed = [t for t in store.studies.trials(journal.study_id) if t.state == "failed"]
    assert len(failed) == 1

    repaired = FaultyDevice(lambda *_: None)
    again = resume_study(store, journal.study_id, asked, device.identity)
    assert run_search(asked, SPACE, repaired, again, NoProgress()).evaluations == TRIALS


def test_failures_that_come_and_go_stop_nothing() -> None:
    result = search(FaultyDevice(lambda _, call: math.nan if call % 3 == 0 else None))
    assert result.evaluations == TRIALS
    assert 0 < result.failed < TRIALS


def test_a_finalist_that_fails_when_it_is_measured_again_makes_room_for_the_next() -> None:
    """The best config runs while it is tried, and never again."""
    others = [c for c in SPACE.configs if c not in (DEFAULT, *HEURISTICS.values())]
    times = {others[0]: 0.8e9, others[1]: 0.9e9}
    runs: list[KernelConfig] = []

    def outcome(config: KernelConfig, _: int) -> Outcome:
        runs.append(config)
        fails = config == others[0] and runs.count(config) > 2
        return FindingError("wrong data") if fails else None

    device = FaultyDevice(outcome, TableDevice(lambda config: times.get(config, 1e9)))
    result = search(device, sampler="exhaustive", trials=None)
    assert result.best.config == others[1]
    assert [group.reason for group in result.failures] == ["wrong data"]


def test_a_default_that_fails_when_it_is_measured_again_is_named() -> None:
    runs: list[KernelConfig] = []

    def outcome(config: KernelConfig, _: int) -> Outcome:
        runs.append(config)
        return RuntimeError("no") if config == DEFAULT and runs.count(config) > 2 else None

    result = search(FaultyDevice(outcome))
    assert result.default is None
    assert DEFAULT.label in result.no_default


@pytest.mark.parametrize("passing", [KeyboardInterrupt(), SystemExit(3), StoreError("full")], ids=repr)
def test_what_is_no_outcome_of_a_config_ends_the_search(passing: BaseException) -> None:
    expected = RunInterrupted if isinstance(passing, KeyboardInterrupt) else type(passing)
    with pytest.raises(expected):
        search(when(is_alternating, passing))


def test_a_time_below_the_proven_bound_is_named_and_one_far_below_is_no_time() -> None:
    bound_ns = dict(
        zip(SPACE.configs, rank_configs(SPACE.configs, drained(), BLACKWELL, "latency").bound_ns, strict=True)
    )
    sound = search(TableDevice(lambda config: 1.5 * bound_ns[config]))
    assert sound.below_bound == 0
    assert sound.warnings == ()
    fast = search(TableDevice(lambda config: bound_ns[config] * (0.9 if is_alternating(config) else 1.5)))
    assert fast.below_bound > 0
    assert fast.least_part_of_bound == pytest.approx(0.9)
    assert any("bound does not hold" in warning for warning in fast.warnings)
    absurd = search(TableDevice(lambda config: bound_ns[config] * (0.1 if is_alternating(config) else 1.5)))
    assert absurd.below_bound == 0
    assert absurd.failed > 0
    assert not is_alternating(absurd.best.config)


def test_resuming_runs_no_failed_config_again_unless_told_to(store: Store) -> None:
    asked = request(trials=TRIALS)
    broken = when(is_alternating, RuntimeError("compiler crashed"))
    journal = begin_study(store, asked, SPACE, broken.identity)
    first = run_search(asked, SPACE, broken, journal, NoProgress())
    assert first.failed > 0
    kept = [t for t in store.studies.trials(journal.study_id) if t.state == "failed"]
    assert len(kept) == first.failed
    assert all("compiler crashed" in trial.reason for trial in kept)
    assert stored_result(store) == first

    more = request(trials=TRIALS + 4)
    device = FaultyDevice(lambda *_: None)
    again = resume_study(store, journal.study_id, more, device.identity)
    second = run_search(more, SPACE, device, again, NoProgress())
    failed = {config for config in broken.asked if is_alternating(config)}
    assert not failed & set(device.asked)
    assert second.failed == first.failed
    assert second.evaluations == TRIALS + 4

    device = FaultyDevice(lambda *_: None)
    again = resume_study(store, journal.study_id, more, device.identity, retry_failed=True)
    third = run_search(more, SPACE, device, again, NoProgress())
    assert failed & set(device.asked)
    assert third.failed == 0


def test_a_time_that_was_kept_by_an_earlier_version_and_is_none_runs_again(store: Store) -> None:
    asked = request(trials=5)
    journal = begin_study(store, asked, SPACE, "faulty")
    journal.write(DEFAULT, "complete", objective_ns=math.nan)
    journal.write(HEURISTICS["alternating"], "complete", objective_ns=2e9)
    store.studies.end(journal.study_id, "failed")
    again = resume_study(store, journal.study_id, asked, "faulty")
    assert list(again.finished()) == [HEURISTICS["alternating"]]


def test_equal_reasons_are_grouped_whatever_their_numbers() -> None:
    first, second, third = SPACE.configs[:3]
    groups = grouped(
        [
            (first, Failed("compiler crashed", "compile")),
            (second, Failed(f"{second.label}: 4,096 bytes at 0x7f did not arrive", "incorrect")),
            (third, Failed(f"{third.label}: 12 bytes at 0xff did not arrive", "incorrect")),
        ]
    )
    assert [(group.configs, group.example) for group in groups] == [(2, second.label), (1, first.label)]


def test_an_error_of_ours_keeps_its_words_and_another_says_where_it_is_from() -> None:
    def failure(error: Exception) -> str:
        found = evaluate(when(lambda _: True, error), LAUNCH)
        assert isinstance(found, Failure)
        return found.reason

    assert failure(FindingError("wrong data")) == "wrong data"
    assert failure(ValueError("bad shape\nmore")).startswith("ValueError: bad shape (cases.py:")
    assert failure(MemoryError()).startswith("MemoryError (")


def test_a_run_without_repeats_is_no_time() -> None:
    class Empty(TableDevice):
        def run_kernel(self, *_: object) -> KernelRun:
            return KernelRun((), ())

    assert isinstance(evaluate(Empty(lambda _: 1.0), LAUNCH), Failure)
