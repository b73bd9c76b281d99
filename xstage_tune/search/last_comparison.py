"""The last comparison of a search: the baselines and the best few, all measured alike."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from xstage_tune.base.limits import Objective
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.kernel_launch import KernelRun
from xstage_tune.search.candidates import Candidates
from xstage_tune.search.evaluation import Failed, Failure
from xstage_tune.search.result import Outcome, final_outcome
from xstage_tune.search.runner import Runner
from xstage_tune.search.space import Space

#: Repeats, and how many configs beside the baselines take part: those within 1%, or within what runs of one
#: config differ by.
_REPEATS = 5
_FINALISTS, _FINALISTS_IN_TURN = 4, 5
_LEAST_MARGIN = 0.01
#: No interval makes it more.
_WIDEST = 0.05
#: Samples on a device that times in turn.
_SAMPLES = 20


class LastComparison:
    """Of one search.

    Args:
        failed: is told of a config that ran before and fails now; raises where the device is gone.

    Attributes:
        failed_yardsticks: what the answer could not be shown beside, and why.
    """

    def __init__(
        self,
        runner: Runner,
        candidates: Candidates,
        space: Space,
        objective: Objective,
        failed: Callable[[int, Failure], None],
    ) -> None:
        self._runner, self._candidates, self._space = runner, candidates, space
        self._objective: Objective = objective
        self._failed = failed
        self._margin = _LEAST_MARGIN
        self._runs: dict[int, KernelRun] = {}
        self.failed_yardsticks: dict[KernelConfig, Failed] = {}

    def note_spread(self, run: KernelRun) -> None:
        """Let configs take part that are as near to the best as runs of one config are to each other."""
        self._margin = max(self._margin, _spread(run, self._objective))

    def outcomes(self) -> dict[KernelConfig, Outcome]:
        """Measure all of them; what fails makes room for the next. Empty where none ran.

        Raises:
            DeviceError: those that ran before run no more.
        """
        for config in self._space.baselines:
            if self._space.index[config] in self._candidates.measured_ns:
                self._measure(self._space.index[config])
        finalists: set[int] = set()
        most = _FINALISTS_IN_TURN if self._runner.in_turn else _FINALISTS
        while len(finalists) < most and (index := self._next_finalist(finalists)) is not None:
            if index in self._runs or self._measure(index):
                finalists.add(index)
        if not self._runs:
            return {}
        # Of a device that times in turn: what all of them were timed against, over all of its samples.
        against_ns = [time_ns for run in self._runs.values() for time_ns in run.against_ns]
        reference_ns = median(against_ns) if against_ns else None
        by_config = {self._space.configs[index]: run for index, run in self._runs.items()}
        by_config |= self._yardstick_runs(next(iter(by_config)))
        return {
            config: final_outcome(config, run, self._objective, reference_ns)
            for config, run in by_config.items()
        }

    @property
    def _repeats(self) -> int:
        return _SAMPLES if self._runner.in_turn else _REPEATS

    def _measure(self, index: int) -> bool:
        """Add a config's run, or keep that it failed; says whether it ran.

        The first of them that runs, the default unless it fails, is what all are timed against.
        """
        found = self._runner.run(index, self._repeats, next(iter(self._runs), index), last=True)
        if isinstance(found, Failure):
            self._failed(index, found)
            return False
        self._runs[index] = found.run
        return True

    def _next_finalist(self, chosen: set[int]) -> int | None:
        """The best config near the best that is not yet chosen; of equal ones the first that was tried."""
        candidates = self._candidates
        limit_ns = candidates.best_ns * (1 + self._margin)
        near = [i for i in candidates.eligible() if candidates.measured_ns[i] <= limit_ns and i not in chosen]
        return min(near, key=candidates.measured_ns.__getitem__, default=None)

    def _yardstick_runs(self, against: KernelConfig) -> dict[KernelConfig, KernelRun]:
        """What the answer is shown beside, measured as the others were; what fails is kept as such."""
        runs = {}
        for config in self._space.yardsticks.values():
            found = self._runner.launch(config, self._repeats, against, last=True)
            if isinstance(found, Failure):
                self.failed_yardsticks[config] = Failed(found.reason, found.fault)
            else:
                runs[config] = found.run
        return runs


def _spread(run: KernelRun, objective: Objective) -> float:
    """What runs of one config differ by, or how far its ratio to the best is known, as a fraction."""
    if run.ratio is not None and objective == "latency":
        return min(run.ratio.high / run.ratio.low - 1, _WIDEST) if run.ratio.low > 0 else _WIDEST
    samples_ns = run.samples_ns(objective)
    return max(samples_ns) / min(samples_ns) - 1 if min(samples_ns) > 0 else 0.0
