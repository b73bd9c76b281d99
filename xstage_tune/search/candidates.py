"""Which config to evaluate next: the closed forms' order, corrected by what was measured."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xstage_tune.search.evaluation import Failed
from xstage_tune.search.ranking import Ranking
from xstage_tune.search.space import Space

Floats = NDArray[np.float64]

#: Similarity of two configs falls by a factor e for this many axes in which they differ.
_AXES_APART = 1.5
#: What a failure counts as, in expected times.
_FAILURE_RATIO = 3.0
#: Of a bound and a time that are equal but for their last digits.
_ROUNDING = 1e-9


class Candidates:
    """Configs of a space with their bounds, predictions and measurements, by index.

    A prediction is corrected by the ratios of measured to predicted time of the configs measured so far,
    each weighed by how many axes it shares; a weight of 1 stands for no correction. One that failed counts as
    if it had taken a multiple of what was expected: its neighbours, which may fail likewise, come later.

    Of a kernel of which nothing is known the expectation is that of the configs measured so far: of their
    geometric mean, with a weight of 1, and of those like it.
    """

    def __init__(self, space: Space, ranking: Ranking) -> None:
        self._ranking = ranking
        self._axes = _axis_positions(space)
        size = len(space.configs)
        self._weight = np.ones(size)
        self._weighted_log_ratio = np.zeros(size)
        #: Whether the closed forms tell what to expect of every config.
        self.known = bool(np.isfinite(ranking.predicted_ns).all())
        self._predicted_ns = ranking.predicted_ns if self.known else np.ones(size)
        self._log_ratios: list[float] = []
        self._place = np.empty(size, np.int64)
        self._place[ranking.order] = np.arange(size)
        self.measured_ns: dict[int, float] = {}
        self.latency_ns: dict[int, float] = {}
        self.failed: dict[int, Failed] = {}
        self.latency_limit_ns = np.inf
        #: Least measured objective of the configs that may be the answer, infinity before there is one.
        self.best_ns = np.inf
        #: Least part of its lower bound that a config took, at most 1: bounds hold as far as this.
        self._bound_part = 1.0
        self._open = np.ones(size, bool)
        self._expected_slow = np.zeros(size, bool)

    @property
    def tried(self) -> int:
        """Configs that were evaluated, with or without success."""
        return len(self.measured_ns) + len(self.failed)

    def eligible(self) -> list[int]:
        """The measured configs that may be the answer: whose launch is not longer than the limit."""
        return [i for i in self.measured_ns if self.latency_ns[i] <= self.latency_limit_ns]

    def too_slow(self) -> list[int]:
        """The measured configs that may not."""
        return [i for i in self.measured_ns if self.latency_ns[i] > self.latency_limit_ns]

    def fastest(self, *, but: int) -> int | None:
        """The measured config with the shortest launch, other than one; None where there is none."""
        others = (i for i in self.latency_ns if i != but)
        return min(others, key=self.latency_ns.__getitem__, default=None)

    def limit_latency(self, index: int, limit_ns: float) -> None:
        """Let no config be the answer whose launch takes longer; those expected to are tried last.

        Args:
            index: the measured config that the limit comes from, by which expected latencies are scaled.
        """
        self.latency_limit_ns = limit_ns
        self._find_best()
        expected_ns = self._ranking.predicted_latency_ns
        scale = self.latency_ns[index] / expected_ns[index] if expected_ns[index] > 0 else 1.0
        self._expected_slow = expected_ns * scale > limit_ns

    def record(self, index: int, objective_ns: float, latency_ns: float) -> None:
        """Keep a measurement, and correct the predictions of configs like it."""
        self.measured_ns[index] = objective_ns
        self.latency_ns[index] = latency_ns
        if latency_ns <= self.latency_limit_ns:
            self.best_ns = min(self.best_ns, objective_ns)
        self._open[index] = False
        least_ns = self.least_latency_ns(index)
        if least_ns > 0:
            self._bound_part = min(self._bound_part, latency_ns / least_ns)
        expected_ns = self._predicted_ns[index]
        if objective_ns > 0 and expected_ns > 0:
            self._correct(index, np.log(objective_ns / expected_ns))
            self._log_ratios.append(np.log(objective_ns / expected_ns))

    def record_failure(self, index: int, failed: Failed) -> None:
        """Keep that a config could not be measured, or not again."""
        if self.measured_ns.pop(index, None) is not None:
            del self.latency_ns[index]
            self._find_best()
        self.failed[index] = failed
        self._open[index] = False
        self._correct(index, np.log(_FAILURE_RATIO) + self._usual)

    def _find_best(self) -> None:
        self.best_ns = min((self.measured_ns[i] for i in self.eligible()), default=np.inf)

    @property
    def _usual(self) -> float:
        """Logarithm of the ratio that is expected before anything like a config was measured."""
        return 0.0 if self.known or not self._log_ratios else float(np.mean(self._log_ratios))

    def _correct(self, index: int, log_ratio: float) -> None:
        differing = (self._axes != self._axes[index]).sum(axis=1)
        similarity = np.exp(-differing / _AXES_APART)
        self._weight += similarity
        self._weighted_log_ratio += similarity * log_ratio

    def least_latency_ns(self, index: int) -> float:
        return float(self._ranking.least_latency_ns[index])

    def below_bound(self) -> list[float]:
        """Of the configs that took less than their lower bound, the measured part of it."""
        bounds_ns = ((i, self.least_latency_ns(i)) for i in self.measured_ns)
        parts = (self.latency_ns[i] / bound_ns for i, bound_ns in bounds_ns if bound_ns > 0)
        return [part for part in parts if part < 1.0 - _ROUNDING]

    def bound_ns(self, index: int) -> float:
        """Of a config, as far as bounds have held: one that a measurement broke breaks all alike."""
        return float(self._bounds_ns[index])

    @property
    def _bounds_ns(self) -> NDArray[np.float64]:
        bounds_ns: Floats = self._ranking.bound_ns * self._bound_part
        return bounds_ns

    def expected_ns(self, index: int) -> float:
        """Its objective as the closed forms expect it, measurements of configs like it taken into account."""
        return float(self._expected_ns(np.array([index]))[0])

    def _expected_ns(self, pool: NDArray[np.int64]) -> Floats:
        correction = np.exp((self._weighted_log_ratio[pool] + self._usual) / self._weight[pool])
        expected: Floats = np.maximum(self._predicted_ns[pool] * correction, self._bounds_ns[pool])
        return expected

    def left_out(self) -> list[int]:
        """The configs not measured that a bound cuts, or that are expected to be among the slower half."""
        open_ = np.flatnonzero(self._open)
        if open_.size == 0:
            return []
        expected = self._expected_ns(open_)
        out = (self._bounds_ns[open_] >= self.best_ns) | (expected > np.median(expected))
        return [int(index) for index in open_[out]]

    def is_bounded(self, index: int) -> bool:
        """Whether a config's bound is no better than the best measured."""
        return self.bound_ns(index) >= self.best_ns

    def remaining_bound_ns(self) -> float:
        """Least bound of the configs not measured, or the best itself where all of those are worse."""
        left = self._bounds_ns[self._open]
        return min(float(left.min(initial=np.inf)), self.best_ns)

    def bounded(self) -> int:
        """Unmeasured configs that their bound cuts."""
        return int(np.count_nonzero(self._open & (self._bounds_ns >= self.best_ns)))

    def unmeasured(self) -> int:
        return int(np.count_nonzero(self._open))

    def next_expected_best(self) -> int | None:
        """The config that is expected to be best, measurements taken into account; twins come last."""
        return next(iter(self.expected_best(1)), None)

    def expected_best(self, count: int) -> list[int]:
        """The ``count`` configs that are expected to be best; see :meth:`next_expected_best`."""
        usable = np.flatnonzero(self._open & (self._bounds_ns < self.best_ns))
        in_time = usable[~self._expected_slow[usable]]
        usable = in_time if in_time.size else usable
        firsts = usable[~self._ranking.twin[usable]]
        pool = firsts if firsts.size else usable
        expected = self._expected_ns(pool)
        best: list[int] = pool[np.lexsort((self._place[pool], expected))[:count]].tolist()
        return best


def _axis_positions(space: Space) -> NDArray[np.int16]:
    """``[n, axes]`` position of each config's value on each axis, -1 where the axis does not apply."""
    names = list(space.axes)
    position = {name: {value: i for i, value in enumerate(space.axes[name])} for name in names}
    rows = [
        [position[name][params[name]] if name in params else -1 for name in names]
        for params in map(space.family.params_of, space.configs)
    ]
    return np.array(rows, np.int16).reshape(len(rows), len(names))
