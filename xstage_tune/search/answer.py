"""From the last comparison to the answer: what surely beats the baseline, and does not cost latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

from xstage_tune.search.result import Outcome

#: An answer's launch may take this much longer than the baseline's: within it the search takes configs for
#: equal. It only plays a part where the objective is another than latency.
SLOWER_MARGIN = 0.01


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer, and the configs that the repeats cannot tell from it."""

    best: Outcome
    ties: tuple[Outcome, ...]


def choose_answer(
    default: Outcome | None, heuristics: Sequence[Outcome], outcomes: Sequence[Outcome]
) -> Answer:
    """The best outcome that surely beats the baseline and is not slower, else the baseline.

    The baseline is the default, or where there is none the best heuristic. Without either, the best is.

    Args:
        outcomes: all of the comparison, at least one.
    """
    baseline = default or min(heuristics, key=lambda one: one.objective_ns, default=None)
    slowest_ns = max(baseline.latency_samples_ns) if baseline else inf
    allowed = [one for one in outcomes if median(one.latency_samples_ns) <= slowest_ns * (1 + SLOWER_MARGIN)]
    better = [one for one in allowed if baseline is None or one.surely_better_than(baseline)]
    best = min(better, key=lambda one: one.objective_ns, default=baseline)
    assert best is not None  # without a baseline every outcome is better
    ties = (one for one in allowed if one.config != best.config and not best.surely_better_than(one))
    return Answer(best, tuple(ties))
