"""The search: evaluate what the closed forms expect to be best, and stop when the bound says so.

1. The default and today's heuristics are evaluated whatever their bound; they are the first of the trials.
2. Then configs by expected time, and after the first few one in three by the sampler's choice, where there
   is one: of a simulated kernel the closed forms know what a sampler would have to learn. Measurements
   correct the expectations, so a wrong prediction is not followed for long. One that seems to be the best so
   far is run again, and its median counts: a lucky run must not cut anything.
   On a device that times launches in turn every other one is timed against the best so far, at the same
   clocks, until the interval of their ratio tells which is faster, or that they are equal.
3. A config whose lower bound is no better than the best measurement is never evaluated. The search ends
   when what remains cannot be better by more than the tolerance, or the trials or the time are used up.
4. The best few and the baselines are measured again, all with the same repeats, in turn with the default
   where the device does that. The answer is the best of those that are surely better than the default, else
   the default.

Under another objective than latency, a config whose launch takes longer than the default's, by more than what
runs of one config differ by, cannot be the answer: nobody deploys less waiting in a slower launch.

A config that fails, or returns times that are none, is an outcome like another (:mod:`.evaluation`): kept
with its reason, and not run again when the search is resumed, unless it is told to. If the default fails, the
best heuristic takes its place, and the result says so. A failure may also be the device's: then nothing runs
any more, and what would be kept of the configs is wrong. So after each one that the device raised, a config
that ran before is run again. If that fails too, twice, the search stops with what is kept. Where nothing has
run yet nobody can tell: the search gives up after the first few.

Everything follows from the request and the objectives, so the same seed gives the same result, and resuming
replays the finished trials' objectives instead of running them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import asdict
from math import isfinite

from xstage_tune.base.errors import DeviceError, FindingError, RunInterrupted
from xstage_tune.base.interrupts import held_back, stop_if_asked
from xstage_tune.base.number_format import counted, duration, percent, signed_percent
from xstage_tune.base.progress import Progress, phase
from xstage_tune.families.binding import bind
from xstage_tune.families.config import KernelConfig
from xstage_tune.launches.device import Device
from xstage_tune.model.checks import NS_PER_S
from xstage_tune.search.answer import SLOWER_MARGIN, choose_answer
from xstage_tune.search.candidates import Candidates
from xstage_tune.search.cuts import describe_cuts
from xstage_tune.search.evaluation import Evaluation, Failed, Failure, grouped
from xstage_tune.search.journal import Journal
from xstage_tune.search.last_comparison import LastComparison
from xstage_tune.search.model_check import Expectations
from xstage_tune.search.ranking import rank_configs
from xstage_tune.search.request import SearchRequest
from xstage_tune.search.result import SearchResult
from xstage_tune.search.runner import Runner
from xstage_tune.search.sampling import Proposer
from xstage_tune.search.space import Space, violations_of

_DEFAULT_TRIALS = 100
#: Of a simulated space that has no more configs, all that the bound leaves are evaluated: that takes seconds.
_FEW_CONFIGS = 1000
#: Evaluations that the ranking chooses before the sampler has its turns, every third from then on.
_RANKED_FIRST = 12
_SAMPLER_TURN = 3
#: On a device that times in turn, one trial in so many is of a config that would be left out: a check of the
#: model, and of the bounds.
_CHECKED_TURN = 20
#: Infeasible, known or bounded proposals in a row after which the sampler passes its turn.
_MOST_USELESS_ASKS = 8
#: Runs of a config that seems to be the best so far.
_CONFIRMING_REPEATS = 3
#: Samples of each config of a whole space, on a device that times in turn: others are to search it by what
#: is measured here.
_WHOLE_SAMPLES = 8
#: Configs beside the next one that a device may get ready for.
_LOOKED_AHEAD = 32
#: Failures after which the search gives up if nothing has run.
_HOPELESS = 16
#: What may be no fault of the config: anything but its code and its output.
_MAY_BE_THE_DEVICES = ("launch", "fault", "timeout")


def run_search(
    request: SearchRequest, space: Space, device: Device, journal: Journal, progress: Progress
) -> SearchResult:
    """Search ``space`` for the config with the least objective.

    Raises:
        UsageError: the platform lacks compute figures, T0 or Q.
        FindingError: no config ran; says why.
        DeviceError: the device, which ran some, runs nothing any more; the trials are kept.
        RunInterrupted: the user stopped it; its trials are kept.
    """
    search = None
    began = time.monotonic()
    try:
        search = _Search(request, space, device, journal, progress)
        result = search.run(began)
        journal.conclude(result)
    except KeyboardInterrupt:
        journal.abandon("interrupted")
        tried = search.candidates.tried if search else 0
        kept = f"; {tried} trials are kept" if journal.study_id else ""
        hint = f"the same command with --resume {journal.study_id}" if journal.study_id else ""
        raise RunInterrupted(f"search interrupted{kept}", hint) from None
    except BaseException:
        journal.abandon("failed")
        raise
    return result


class _Search:
    """One search under way."""

    def __init__(
        self,
        request: SearchRequest,
        space: Space,
        device: Device,
        journal: Journal,
        progress: Progress,
    ) -> None:
        self._request, self._space = request, space
        self._journal, self._progress = journal, progress
        with phase(f"ranking {len(space.configs):,} configs"):
            self._ranking = rank_configs(space.configs, request.workload, request.platform, request.objective)
        self.candidates = Candidates(space, self._ranking)
        self._finished = dict(journal.finished())
        self._failed_before = dict(journal.failed())
        self._ran = 0
        self._began = time.monotonic()
        self._runner = Runner(request, space, device, self.candidates, journal.study_id)
        self._last = LastComparison(self._runner, self.candidates, space, request.objective, self._fail)
        self._expectations = Expectations()
        self._reference: int | None = None
        self._chance = random.Random(request.seed)
        self._no_default = space.no_default
        every = len(space.configs)
        simulated = device.describe().simulated
        self._sampler = request.sampler
        if request.sampler == "auto":
            self._sampler = "none" if simulated and self.candidates.known else "tpe"
        self._proposer = Proposer(self._sampler, request.seed, space)
        whole = request.exhaustive or (request.sampler == "auto" and simulated and every <= _FEW_CONFIGS)
        self._most = request.trials or (every if whole else min(_DEFAULT_TRIALS, every))

    def run(self, began: float) -> SearchResult:
        """The search; its timeout counts from ``began``, a time of the monotonic clock."""
        self._progress.planned(self._most)
        for config in self._space.baselines:
            if self.candidates.tried < self._most:
                self._try(self._space.index[config])
        self._limit_latency()
        stopped = self._stopped(began)
        proposals = self._proposals()
        while stopped is None:
            index = next(proposals, None)
            if index is None:
                stopped = "every config evaluated or cut"
            else:
                self._try(index)
                stopped = self._stopped(began)
        if adopted := self._adopt_finished():
            stopped += f" ({self._ran} in this run, the others in earlier ones, which made {adopted} more)"
        return self._result(stopped)

    def _limit_latency(self) -> None:
        """Under another objective than latency, hold the answer to the baseline's latency."""
        if self._request.objective == "latency":
            return
        latency_ns = self.candidates.latency_ns
        ran = [i for i in map(self._space.index.__getitem__, self._space.baselines) if i in latency_ns]
        default = self._space.default
        if default is not None and self._space.index[default] in ran:
            baseline = self._space.index[default]
        elif ran:
            baseline = min(ran, key=latency_ns.__getitem__)
        else:
            return
        self.candidates.limit_latency(baseline, latency_ns[baseline] * (1 + SLOWER_MARGIN))

    def _stopped(self, began: float) -> str | None:
        """Why to stop now; None to go on."""
        request, candidates = self._request, self.candidates
        if candidates.tried >= self._most:
            return counted(self._most, "trial")
        if request.timeout_s is not None and time.monotonic() - began >= request.timeout_s:
            return f"timeout of {request.timeout_s:g} s"
        bound_ns = candidates.remaining_bound_ns()
        if not request.exhaustive and candidates.best_ns <= bound_ns * (1 + request.tolerance):
            # How far the answer is from it only the last comparison tells: one figure, with the result.
            if candidates.best_ns > bound_ns:
                return f"the best came within the tolerance, {percent(100 * request.tolerance)}"
            return "nothing left can be better"
        return None

    def _proposals(self) -> Iterator[int]:
        """Configs to evaluate, until none is left."""
        if self._request.exhaustive:
            yield from map(int, self._ranking.order)
            return
        while True:
            turn = self.candidates.tried
            if self._runner.in_turn and turn % _CHECKED_TURN == _CHECKED_TURN - 1:
                left_out = self.candidates.left_out()
                if left_out:
                    yield self._check(self._chance.choice(left_out))
                    continue
            if self._sampler != "none" and turn >= _RANKED_FIRST and turn % _SAMPLER_TURN == 0:
                sampled = self._sampled()
                if sampled is not None:
                    yield sampled
                    continue
            index = self.candidates.next_expected_best()
            if index is None:
                return
            yield index

    def _check(self, index: int) -> int:
        """A config that would have been left out, to be measured all the same."""
        self._expectations.to_be_checked(index, bounded=self.candidates.is_bounded(index))
        return index

    def _sampled(self) -> int | None:
        """A config of the sampler's that is worth evaluating; None when it finds none."""
        for _ in range(_MOST_USELESS_ASKS):
            config = self._proposer.propose()
            index = self._space.index.get(config)
            if index is None:
                self._prune_infeasible(config)
                self._proposer.tell(config, None)
            elif index in self.candidates.measured_ns:
                self._proposer.tell(config, self.candidates.measured_ns[index])
            elif index in self.candidates.failed or self._cut(index):
                self._proposer.tell(config, None)
            else:
                return index
        return None

    def _prune_infeasible(self, config: KernelConfig) -> None:
        """Keep that the sampler proposed what cannot run, and which limit it breaks."""
        request = self._request
        violations = violations_of(config, bind(request.workload, request.platform), self._space.axes)
        self._journal.write(config, "pruned", reason=violations[0].message)

    def _cut(self, index: int) -> bool:
        """Whether a config is cut by its bound; keeps that it was."""
        if not self.candidates.is_bounded(index):
            return False
        bound_ns = self.candidates.bound_ns(index)
        self._journal.write(
            self._space.configs[index],
            "cut",
            bound_ns=bound_ns,
            reason=f"{self._ranking.binding[index]} bound {duration(bound_ns)} is no better than "
            f"{duration(self.candidates.best_ns)}",
        )
        return True

    def _try(self, index: int) -> None:
        """Evaluate a config unless that was done, and tell the sampler."""
        stop_if_asked()
        if coming := self._coming(index):
            self._runner.look_ahead(coming)
        if index in self.candidates.measured_ns or index in self.candidates.failed:
            return
        config = self._space.configs[index]
        if config in self._failed_before:
            self.candidates.record_failure(index, self._failed_before.pop(config))
        elif config in self._finished:
            known = self._finished.pop(config)
            self.candidates.record(index, known.objective_ns, known.latency_ns)
        else:
            self._evaluate(index, config)
        self._proposer.tell(config, self.candidates.measured_ns.get(index))
        self._progress.advance(self._standing())

    def _coming(self, index: int) -> list[int]:
        """A config and those that may come next; empty where the device was told of them before."""
        if not self._request.exhaustive:
            return [index, *self.candidates.expected_best(_LOOKED_AHEAD)]
        return [] if self.candidates.tried else [index, *self._ranking.order.tolist()]

    def _standing(self) -> str:
        best_ns, bound_ns = self.candidates.best_ns, self.candidates.remaining_bound_ns()
        if not self.candidates.measured_ns:
            return "nothing ran yet"
        standing = f"best {duration(best_ns)}" + (f", bound {duration(bound_ns)}" if bound_ns > 0 else "")
        surprise = self._expectations.last_surprise if self._runner.in_turn else None
        if surprise is not None:
            standing += f", last {signed_percent(100 * (surprise - 1))} of what was expected"
        return standing

    def _evaluate(self, index: int, config: KernelConfig) -> None:
        """Run a config and keep what came of it.

        Raises:
            FindingError, DeviceError: as :meth:`_fail`.
        """
        objective = self._request.objective
        self._ran += 1
        against = self._incumbent()
        repeats = _WHOLE_SAMPLES if self._runner.in_turn and self._request.exhaustive else 1
        found = self._runner.run(index, repeats, against)
        if (
            isinstance(found, Evaluation)
            and found.run.ratio is None
            and found.run.median_ns(objective) < self.candidates.best_ns
        ):
            found = self._runner.run(index, _CONFIRMING_REPEATS, against)
        if isinstance(found, Failure):
            self._fail(index, found)
            return
        run = found.run
        self._last.note_spread(run)
        objective_ns, latency_ns = run.median_ns(objective), run.median_ns("latency")
        if run.ratio is not None and against is not None:
            latency_ns = run.ratio.value * self.candidates.latency_ns[against]
            if objective == "latency":
                objective_ns = latency_ns
        bound_ns, expected_ns = self.candidates.bound_ns(index), self.candidates.expected_ns(index)
        closed_ns = float(self._ranking.predicted_ns[index])
        self._expectations.measured(objective_ns, expected_ns, closed_ns)
        with held_back():  # what is said to be kept is what is kept
            self._journal.write(
                config, "complete", objective_ns=objective_ns, bound_ns=bound_ns, latency_ns=latency_ns,
                measured={
                    "run": asdict(run), "launch": asdict(found.info), "expected_ns": expected_ns,
                    "closed_form_ns": closed_ns if isfinite(closed_ns) else None,
                },
            )  # fmt: skip
            self.candidates.record(index, objective_ns, latency_ns)

    def _incumbent(self) -> int | None:
        """What a config is to be timed in turn with: the best so far; the first one, of a whole space."""
        if self._request.exhaustive:
            if self._reference not in self.candidates.measured_ns:
                self._reference = next(iter(self.candidates.measured_ns), None)
            return self._reference
        return min(self.candidates.eligible(), key=self.candidates.measured_ns.__getitem__, default=None)

    def _fail(self, index: int, failure: Failure) -> None:
        """Keep a failure, and stop if it was the device's.

        Where the device is gone and has run nothing in this process, the failure says nothing of the config.

        Raises:
            FindingError: nothing has run, and so many failed that nothing will.
            DeviceError: the device is gone.
        """
        stop_if_asked()  # what fails from then on may fail because of it
        config, bound_ns = self._space.configs[index], self.candidates.bound_ns(index)
        succeeded = self._runner.succeeded
        gone = (
            self._runner.device_gone(index)
            if failure.raised and failure.fault in _MAY_BE_THE_DEVICES
            else None
        )
        if gone is None or succeeded:
            with held_back():
                self._journal.write(
                    config, "failed", bound_ns=bound_ns, reason=failure.reason, fault=failure.fault
                )
                self.candidates.record_failure(index, Failed(failure.reason, failure.fault))
        if gone is not None:
            raise DeviceError(
                f"{self._runner.device_identity} runs nothing any more, not even a config that ran before: "
                f"{gone.reason}{self._runner.kept}",
                self._runner.resumed("once the device is in order again: "),
            )
        if not self.candidates.measured_ns and len(self.candidates.failed) >= _HOPELESS:
            raise self._nothing_ran()

    def _nothing_ran(self) -> FindingError:
        groups = grouped((self._space.configs[i], why) for i, why in self.candidates.failed.items())
        reasons = "; ".join(f"{group.configs} times: {group.reason}" for group in groups[:3])
        return FindingError(
            f"{self._runner.device_identity} ran none of {self.candidates.tried} configs: {reasons}",
            self._runner.resumed("once that is mended: ", " --retry-failed") or "xstage-tune doctor",
        )

    def _adopt_finished(self) -> int:
        """Count trials of earlier runs that this one did not come to: no finished trial is lost.

        Returns:
            How many those are.
        """
        before = self.candidates.tried
        for config, known in self._finished.items():
            index = self._space.index.get(config)
            if index is not None:
                self.candidates.record(index, known.objective_ns, known.latency_ns)
        for config, failed in self._failed_before.items():
            index = self._space.index.get(config)
            if index is not None:
                self.candidates.record_failure(index, failed)
        return self.candidates.tried - before

    def _result(self, stopped: str) -> SearchResult:
        with phase("running the best again"):
            measured = self._last.outcomes()
        if not measured:
            raise self._nothing_ran()
        candidates, space, runner = self.candidates, self._space, self._runner
        if space.default is not None and space.default not in measured:
            reason = candidates.failed[space.index[space.default]].reason
            self._no_default = f"the default ({space.default.label}) failed: {reason}"
        heuristics = {
            name: measured[config] for name, config in space.heuristics.items() if config in measured
        }
        beside = {name: measured[config] for name, config in space.yardsticks.items() if config in measured}
        answers = [one for one in measured.values() if one not in beside.values()]
        default = measured.get(space.default) if space.default is not None else None
        answer = choose_answer(default, tuple(heuristics.values()), answers)
        below = candidates.below_bound()
        return SearchResult(
            study_id=self._journal.study_id,
            workload=self._request.workload.name,
            platform=self._request.platform.name,
            device=self._runner.device_identity,
            objective=self._request.objective,
            sampler=self._sampler,
            seed=self._request.seed,
            best=answer.best,
            default=default,
            heuristics=heuristics | beside,
            ties=answer.ties,
            bound_ns=min(candidates.remaining_bound_ns(), answer.best.objective_ns),
            evaluations=candidates.tried,
            failed=len(candidates.failed),
            cuts=describe_cuts(space, candidates),
            stopped=stopped,
            assumed=bind(self._request.workload, self._request.platform).assumed(answer.best.config),
            no_default=self._no_default,
            failures=grouped(
                [
                    *((space.configs[i], reason) for i, reason in candidates.failed.items()),
                    *self._last.failed_yardsticks.items(),
                ]
            ),
            below_bound=len(below),
            least_part_of_bound=min(below, default=None),
            slower=len(candidates.too_slow()),
            hides_more=answer.hides_more,
            model=self._expectations.summary(candidates) if runner.in_turn else None,
            busy_s=runner.busy_ns / NS_PER_S if runner.busy_ns else None,
            elapsed_s=time.monotonic() - self._began if runner.busy_ns else None,
        )
