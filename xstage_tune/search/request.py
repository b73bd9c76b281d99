"""What is asked of a search."""

from __future__ import annotations

from typing import Annotated, ClassVar

from xstage_tune.base.field_types import Finite, Whole
from xstage_tune.base.limits import SEED, TIMEOUT_S, TOLERANCE, TRIALS, Objective, SamplerName
from xstage_tune.base.request import Request
from xstage_tune.families.fields import AnyWorkload
from xstage_tune.platforms.schema import PlatformProfile


class SearchOptions(Request):
    """How a search is made.

    Args:
        objective: what to make small.
        sampler: who proposes beside the ranking; ``auto`` is ``tpe`` for what is measured and for what has no
            closed form, else ``none``; ``exhaustive`` evaluates every config that fits.
        seed: of the sampler: the same seed gives the same result.
        trials: most configs to evaluate, the default and the heuristics first; None for 100, or for all of
            them when exhaustive, and where ``auto`` simulates a small space.
        timeout_s: most seconds to begin evaluations in; None for no limit.
        tolerance: stop once the best is within this fraction of the remaining bound.
    """

    OF: ClassVar[str] = "a search"

    objective: Objective = "latency"
    sampler: SamplerName = "auto"
    seed: Annotated[Whole, SEED] = 0
    trials: Annotated[Whole, TRIALS] | None = None
    timeout_s: Annotated[Finite, TIMEOUT_S] | None = None
    tolerance: Annotated[Finite, TOLERANCE] = 0.01

    @property
    def exhaustive(self) -> bool:
        return self.sampler == "exhaustive"


class SearchRequest(SearchOptions):
    """One search.

    Args:
        workload, platform: what to tune for.
    """

    workload: AnyWorkload
    platform: PlatformProfile
