"""Which config to evaluate next: the closed forms' order, corrected by what was measured."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xstage_tune.search.ranking import Ranking
from xstage_tune.search.space import Space, params_of

Floats = NDArray[np.float64]

#: Similarity of two configs falls by a factor e for this many axes in which they differ.
_AXES_APART = 1.5


class Candidates:
    """Configs of a space with their bounds, predictions and measurements, by index.

    A prediction is corrected by the ratios of measured to predicted time of the configs measured so far,
    each weighed by how many axes it shares; a weight of 1 stands for no correction.
    """

    def __init__(self, space: Space, ranking: Ranking) -> None:
        self._ranking = ranking
        self._axes = _axis_positions(space)
        size = len(space.configs)
        self._weight = np.ones(size)
        self._weighted_log_ratio = np.zeros(size)
        self._place = np.empty(size, np.int64)
        self._place[ranking.order] = np.arange(size)
        self.measured_ns: dict[int, float] = {}
        self.failed: set[int] = set()
        self._open = np.ones(size, bool)

    @property
    def best_ns(self) -> float:
        """Least measured objective, infinity before there is one."""
        return min(self.measured_ns.values(), default=np.inf)

    @property
    def tried(self) -> int:
        """Configs that were evaluated, with or without success."""
        return len(self.measured_ns) + len(self.failed)

    def record(self, index: int, objective_ns: float) -> None:
        """Keep a measurement, and correct the predictions of configs like it."""
        self.measured_ns[index] = objective_ns
        self._open[index] = False
        expected_ns = self._ranking.predicted_ns[index]
        if objective_ns > 0 and expected_ns > 0:
            differing = (self._axes != self._axes[index]).sum(axis=1)
            similarity = np.exp(-differing / _AXES_APART)
            self._weight += similarity
            self._weighted_log_ratio += similarity * np.log(objective_ns / expected_ns)

    def record_failure(self, index: int) -> None:
        """Keep that a config could not be measured."""
        self.failed.add(index)
        self._open[index] = False

    def bound_ns(self, index: int) -> float:
        return float(self._ranking.bound_ns[index])

    def is_bounded(self, index: int) -> bool:
        """Whether a config's bound is no better than the best measured."""
        return self.bound_ns(index) >= self.best_ns

    def remaining_bound_ns(self) -> float:
        """Least bound of the configs not measured, or the best itself where all of those are worse."""
        left = self._ranking.bound_ns[self._open]
        return min(float(left.min(initial=np.inf)), self.best_ns)

    def bounded(self) -> int:
        """Unmeasured configs that their bound cuts."""
        return int(np.count_nonzero(self._open & (self._ranking.bound_ns >= self.best_ns)))

    def unmeasured(self) -> int:
        return int(np.count_nonzero(self._open))

    def next_expected_best(self) -> int | None:
        """The config that is expected to be best, measurements taken into account; twins come last."""
        usable = np.flatnonzero(self._open & (self._ranking.bound_ns < self.best_ns))
        if usable.size == 0:
            return None
        firsts = usable[~self._ranking.twin[usable]]
        pool = firsts if firsts.size else usable
        corrected = self._ranking.predicted_ns[pool] * np.exp(
            self._weighted_log_ratio[pool] / self._weight[pool]
        )
        expected = np.maximum(corrected, self._ranking.bound_ns[pool])
        return int(pool[np.lexsort((self._place[pool], expected))[0]])


def _axis_positions(space: Space) -> NDArray[np.int16]:
    """``[n, axes]`` position of each config's value on each axis, -1 where the axis does not apply."""
    names = list(space.axes)
    position = {name: {value: i for i, value in enumerate(space.axes[name])} for name in names}
    rows = [
        [position[name][params[name]] if name in params else -1 for name in names]
        for params in map(params_of, space.configs)
    ]
    return np.array(rows, np.int16).reshape(len(rows), len(names))
