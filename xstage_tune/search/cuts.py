"""What a search did not evaluate, and why."""

from __future__ import annotations

from xstage_tune.base.number_format import duration
from xstage_tune.search.candidates import Candidates
from xstage_tune.search.result import Cut
from xstage_tune.search.space import Space


def describe_cuts(space: Space, candidates: Candidates) -> tuple[Cut, ...]:
    """The configs that cannot run, that their bound rules out, and that the ranking puts last."""
    cuts = [
        Cut(f"infeasible: {cut.limit_name}", cut.configs, f"nearest: {cut.nearest}")
        for cut in space.infeasible
    ]
    bounded = candidates.bounded()
    if bounded:
        cuts.append(Cut("bounded", bounded, f"bound no better than {duration(candidates.best_ns)}"))
    ranked_last = candidates.unmeasured() - bounded
    if ranked_last:
        least_ns = candidates.remaining_bound_ns()
        bounds = f"bounds from {duration(least_ns)}" if least_ns > 0 else "no bound is known"
        why = "expected to be worse than those evaluated" if candidates.known else "not reached"
        cuts.append(Cut("ranked last", ranked_last, f"{bounds}, {why}"))
    return tuple(cuts)
