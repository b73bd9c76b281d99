"""The search: evaluate what the closed forms expect to be best, and stop when the bound says so.

1. The default and today's heuristics are evaluated whatever their bound.
2. Then configs by expected time, and after the first few one in three by the sampler's choice. Measurements
   correct the expectations, so a wrong prediction is not followed for long. One that seems to be the best so
   far is run again, and its median counts: a lucky run must not cut anything.
3. A config whose lower bound is no better than the best measurement is never evaluated. The search ends
   when what remains cannot be better by more than the tolerance, or the trials or the time are used up.
4. The best few and the baselines are measured again, all with the same repeats. The answer is the best of
   those all of whose repeats are better than all the default's, else the default.

Everything follows from the request and the objectives, so the same seed gives the same result, and resuming
replays the finished trials' objectives instead of running them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import optuna
from optuna.trial import TrialState

from xstage_tune.configs.defaults import default_config, heuristic_configs
from xstage_tune.configs.resources import check_config
from xstage_tune.configs.schema import KernelConfig
from xstage_tune.devices.kernels import KernelDevice
from xstage_tune.devices.tile_times import scaled_from
from xstage_tune.errors import DeviceError, FindingError, RunInterrupted
from xstage_tune.interrupts import held_back, stop_if_asked
from xstage_tune.progress import Progress
from xstage_tune.report.format import duration
from xstage_tune.search.candidates import Candidates
from xstage_tune.search.journal import Journal
from xstage_tune.search.ranking import rank_configs
from xstage_tune.search.request import SearchRequest
from xstage_tune.search.result import Cut, Outcome, SearchResult
from xstage_tune.search.sampling import as_suggestions, make_sampler, suggest
from xstage_tune.search.space import Space, config_of, params_of

_DEFAULT_TRIALS = 100
#: Evaluations that the ranking chooses before the sampler has its turns, every third from then on.
_RANKED_FIRST = 12
_SAMPLER_TURN = 3
#: Infeasible, known or bounded proposals in a row after which the sampler passes its turn.
_MOST_USELESS_ASKS = 8
#: Runs of a config that seems to be the best so far.
_CONFIRMING_REPEATS = 3
#: Repeats of the last comparison, and how many configs beside the baselines take part: those within 1%, or
#: within what runs of one config differ by.
_FINAL_REPEATS = 5
_FINALISTS = 4
_FINALIST_MARGIN = 0.01


class NoProgress:
    """Progress that nobody sees."""

    def planned(self, total: int) -> None:
        """Not shown."""

    def advance(self, label: str) -> None:
        """Not shown."""


def run_search(
    request: SearchRequest, space: Space, device: KernelDevice, journal: Journal, progress: Progress
) -> SearchResult:
    """Search ``space`` for the config with the least objective.

    Raises:
        UsageError: the platform lacks compute figures, T0 or Q.
        DeviceError: the device cannot run the default config.
        FindingError: it ran none of the others either.
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
        device: KernelDevice,
        journal: Journal,
        progress: Progress,
    ) -> None:
        self._request, self._space, self._device = request, space, device
        self._journal, self._progress = journal, progress
        self._ranking = rank_configs(space.configs, request.workload, request.platform, request.objective)
        self.candidates = Candidates(space, self._ranking)
        self._study = optuna.create_study(sampler=make_sampler(request.sampler, request.seed))
        self._finished = dict(journal.finished())
        self._ran = 0
        self._margin = _FINALIST_MARGIN
        every = len(space.configs)
        self._most = request.trials or (every if request.exhaustive else min(_DEFAULT_TRIALS, every))

    def run(self, began: float) -> SearchResult:
        """The search; its timeout counts from ``began``, a time of the monotonic clock."""
        request = self._request
        default = default_config(request.workload, request.platform)
        heuristics = heuristic_configs(request.workload, request.platform)
        self._progress.planned(self._most)
        for config in (default, *heuristics.values()):
            self._try(self._space.index[config])
        stopped = self._stopped(began)
        proposals = self._proposals()
        while stopped is None:
            proposal = next(proposals, None)
            if proposal is None:
                stopped = "every config evaluated or cut"
            else:
                self._try(*proposal)
                stopped = self._stopped(began)
        if adopted := self._adopt_finished():
            stopped += f" ({self._ran} in this run, the others in earlier ones, which made {adopted} more)"
        return self._result(default, heuristics, stopped)

    def _stopped(self, began: float) -> str | None:
        """Why to stop now; None to go on."""
        request, candidates = self._request, self.candidates
        if candidates.tried >= self._most:
            return f"{self._most} trials"
        if request.timeout_s is not None and time.monotonic() - began >= request.timeout_s:
            return f"timeout of {request.timeout_s:g} s"
        bound_ns = candidates.remaining_bound_ns()
        if not request.exhaustive and candidates.best_ns <= bound_ns * (1 + request.tolerance):
            above = candidates.best_ns / bound_ns - 1 if bound_ns > 0 else 0.0
            return f"within {above:.1%} of the bound" if above else "nothing left can be better"
        return None

    def _proposals(self) -> Iterator[tuple[int, optuna.Trial | None]]:
        """Configs to evaluate, and the sampler's trial where it proposed them, until none is left."""
        if self._request.exhaustive:
            yield from ((int(index), None) for index in self._ranking.order)
            return
        while True:
            turn = self.candidates.tried
            if turn >= _RANKED_FIRST and turn % _SAMPLER_TURN == 0:
                sampled = self._sampled()
                if sampled is not None:
                    yield sampled
                    continue
            index = self.candidates.next_expected_best()
            if index is None:
                return
            yield index, None

    def _sampled(self) -> tuple[int, optuna.Trial] | None:
        """A config of the sampler's that is worth evaluating; None when it finds none."""
        for _ in range(_MOST_USELESS_ASKS):
            trial = self._study.ask()
            config = config_of(suggest(trial, self._space.axes))
            index = self._space.index.get(config)
            if index is None:
                self._prune_infeasible(config)
                self._study.tell(trial, state=TrialState.PRUNED)
            elif index in self.candidates.measured_ns:
                self._study.tell(trial, self.candidates.measured_ns[index])
            elif index in self.candidates.failed or self._cut(index):
                self._study.tell(trial, state=TrialState.PRUNED)
            else:
                return index, trial
        return None

    def _prune_infeasible(self, config: KernelConfig) -> None:
        """Keep that the sampler proposed what cannot run, and which limit it breaks."""
        violations = check_config(config, self._request.workload, self._request.platform).violations
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

    def _try(self, index: int, trial: optuna.Trial | None = None) -> None:
        """Evaluate a config unless that was done, and tell the sampler."""
        stop_if_asked()
        if index in self.candidates.measured_ns or index in self.candidates.failed:
            return
        config = self._space.configs[index]
        trial = trial or self._enqueued(config)
        objective_ns = self._finished.pop(config, None)
        if objective_ns is None:
            objective_ns = self._evaluate(index, config)
        else:
            self.candidates.record(index, objective_ns)
        if objective_ns is None:
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            self._study.tell(trial, objective_ns)
        best_ns, bound_ns = self.candidates.best_ns, self.candidates.remaining_bound_ns()
        self._progress.advance(f"best {duration(best_ns)}, bound {duration(bound_ns)}")

    def _enqueued(self, config: KernelConfig) -> optuna.Trial:
        """A trial of the study for a config that the sampler did not propose."""
        axes = self._space.axes
        self._study.enqueue_trial(as_suggestions(params_of(config), axes))
        trial = self._study.ask()
        suggest(trial, axes)
        return trial

    def _evaluate(self, index: int, config: KernelConfig) -> float | None:
        """Run a config and keep what came of it; None when the device cannot run it."""
        bound_ns = self.candidates.bound_ns(index)
        workload, objective = self._request.workload, self._request.objective
        self._ran += 1
        try:
            run = self._device.run_kernel(workload, config, 1)
            if run.median_ns(objective) < self.candidates.best_ns:
                run = self._device.run_kernel(workload, config, _CONFIRMING_REPEATS)
        except DeviceError as error:
            with held_back():  # what is said to be kept is what is kept
                self._journal.write(config, "failed", bound_ns=bound_ns, reason=error.message)
                self.candidates.record_failure(index)
            return None
        samples_ns = run.samples_ns(objective)
        if min(samples_ns) > 0:
            self._margin = max(self._margin, max(samples_ns) / min(samples_ns) - 1)
        objective_ns = run.median_ns(objective)
        with held_back():
            self._journal.write(config, "complete", objective_ns=objective_ns, bound_ns=bound_ns)
            self.candidates.record(index, objective_ns)
        return objective_ns

    def _adopt_finished(self) -> int:
        """Count trials of earlier runs that this one did not come to: no finished trial is lost.

        Returns:
            How many those are.
        """
        before = self.candidates.tried
        for config, objective_ns in self._finished.items():
            index = self._space.index.get(config)
            if index is not None:
                self.candidates.record(index, objective_ns)
        return self.candidates.tried - before

    def _result(
        self, default: KernelConfig, heuristics: Mapping[str, KernelConfig], stopped: str | None
    ) -> SearchResult:
        if not self.candidates.measured_ns:
            raise FindingError(f"{self._device.identity} ran none of the configs", "xstage-tune doctor")
        measured = self._measure_again(default, heuristics)
        baseline = measured[default]
        better = (outcome for outcome in measured.values() if outcome.surely_better_than(baseline))
        best = min(better, key=lambda outcome: outcome.objective_ns, default=baseline)
        ties = tuple(
            outcome
            for outcome in measured.values()
            if outcome.config != best.config and not best.surely_better_than(outcome)
        )
        return SearchResult(
            study_id=self._journal.study_id,
            workload=self._request.workload.name,
            platform=self._request.platform.name,
            device=self._device.identity,
            objective=self._request.objective,
            sampler=self._request.sampler,
            seed=self._request.seed,
            best=best,
            default=baseline,
            heuristics={name: measured[config] for name, config in heuristics.items() if config in measured},
            ties=ties,
            bound_ns=min(self.candidates.remaining_bound_ns(), best.objective_ns),
            evaluations=self.candidates.tried,
            failed=len(self.candidates.failed),
            cuts=self._cuts(),
            stopped=stopped or "",
            assumed=scaled_from(best.config, self._request.workload, self._request.platform),
        )

    def _measure_again(
        self, default: KernelConfig, heuristics: Mapping[str, KernelConfig]
    ) -> dict[KernelConfig, Outcome]:
        """The baselines and the best few, all with the same repeats; a heuristic that failed is left out."""
        measured_ns = self.candidates.measured_ns
        runnable = [c for c in heuristics.values() if self._space.index[c] in measured_ns]
        limit_ns = self.candidates.best_ns * (1 + self._margin)
        # Of equal ones the first that the ranking chose.
        leading = sorted((i for i, ns in measured_ns.items() if ns <= limit_ns), key=measured_ns.__getitem__)
        finalists = [default, *runnable, *(self._space.configs[i] for i in leading[:_FINALISTS])]
        outcomes = {}
        for config in dict.fromkeys(finalists):
            run = self._device.run_kernel(self._request.workload, config, _FINAL_REPEATS)
            outcomes[config] = Outcome(config, run.samples_ns(self._request.objective))
        return outcomes

    def _cuts(self) -> tuple[Cut, ...]:
        candidates = self.candidates
        cuts = [
            Cut(f"infeasible: {cut.limit_name}", cut.configs, f"nearest: {cut.nearest}")
            for cut in self._space.infeasible
        ]
        bounded = candidates.bounded()
        if bounded:
            cuts.append(Cut("bounded", bounded, f"bound no better than {duration(candidates.best_ns)}"))
        ranked_last = candidates.unmeasured() - bounded
        if ranked_last:
            least_ns = candidates.remaining_bound_ns()
            detail = f"bounds from {duration(least_ns)}, expected to be worse than those evaluated"
            cuts.append(Cut("ranked last", ranked_last, detail))
        return tuple(cuts)
