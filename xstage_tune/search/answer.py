"""From the last comparison to the answer: what surely beats the baseline, and does not cost latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

from xstage_tune.families.config import KernelConfig
from xstage_tune.search.result import Outcome

#: An answer's launch may take this much longer than the baseline's: within it the search takes configs for
#: equal. It only plays a part where the objective is another than latency.
SLOWER_MARGIN = 0.01
#: Two that are timed in turn count as equal up to this.
EQUAL = 0.005


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer, and the configs that the repeats cannot tell from it, or hardly.

    Args:
        hides_more: the fastest of them by its median, where that is not the answer because it exposes more.
    """

    best: Outcome
    ties: tuple[Outcome, ...]
    hides_more: KernelConfig | None = None


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
    fastest = best
    if better and best.exposed_ns is not None:
        # Of those that nothing tells apart the one that exposes less leaves more room to what comes next.
        equal = [one for one in better if not best.surely_better_than(one) and one.exposed_ns is not None]
        best = min(equal, key=lambda one: one.exposed_ns or 0.0, default=best)
    others = (one for one in allowed if one.config != best.config)
    ties = (one for one in others if not fastest.surely_better_than(one, EQUAL))
    return Answer(best, tuple(ties), None if best == fastest else fastest.config)
