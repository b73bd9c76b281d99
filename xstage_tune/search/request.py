"""What is asked of a search."""

from __future__ import annotations

from dataclasses import dataclass

from xstage_tune.families.kernel_launch import Objective
from xstage_tune.families.workload import Workload
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.search.sampling import SamplerName


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One search.

    Args:
        workload, platform: what to tune for.
        objective: what to make small.
        sampler: who proposes beside the ranking; ``exhaustive`` evaluates every config that fits.
        seed: of the sampler: the same seed gives the same result.
        trials: most configs to evaluate; None for 100, or all of them when exhaustive.
        timeout_s: most seconds to begin evaluations in; None for no limit.
        tolerance: stop once the best is within this fraction of the remaining bound.
    """

    workload: Workload
    platform: PlatformProfile
    objective: Objective = "latency"
    sampler: SamplerName = "tpe"
    seed: int = 0
    trials: int | None = None
    timeout_s: float | None = None
    tolerance: float = 0.01

    @property
    def exhaustive(self) -> bool:
        return self.sampler == "exhaustive"
