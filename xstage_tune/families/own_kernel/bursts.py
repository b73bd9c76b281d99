"""The bursts of an own kernel's configs, as a function of the user's tells them, and what follows from them.

A config's launch is a sequence of phases. In each, K producers store B bytes a burst, S times, with a gap of
G between two bursts. A phase may also say how many floating point operations it takes and how many bytes of
memory it moves, over all SMs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from xstage_tune.base.errors import FindingError, XStageError
from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.base.field_types import Count, NonNegative, Strict, Tally
from xstage_tune.base.line_process import LineProcess
from xstage_tune.base.parsing import parse_json
from xstage_tune.estimates.bursts import BurstTerms, burst_terms
from xstage_tune.estimates.figures import Basis, Figure
from xstage_tune.families.floors import Floors
from xstage_tune.families.own_kernel.config import OwnConfig
from xstage_tune.families.own_kernel.workload import OwnSpace
from xstage_tune.families.prediction import Prediction
from xstage_tune.families.tile_times import tensor_rate
from xstage_tune.model import burst_gap
from xstage_tune.model.checks import NS_PER_S
from xstage_tune.platforms.queries import preferred_flavour
from xstage_tune.platforms.schema import PlatformProfile

#: Configs that one request asks for, and seconds that it may take.
_AT_ONCE = 1000
_DEADLINE_S = 60.0


class Phase(Strict):
    """Rounds of equal bursts."""

    burst_bytes: Tally = Field(0, description="B, remote bytes of one producer's burst; 0 for no stores")
    producers: Count = Field(1, description="K, SMs that store together")
    gap_ns: NonNegative = Field(0.0, description="G, least work of a producer between two bursts, ns")
    rounds: Count = Field(1, description="S, bursts of each producer")
    stores: StoreFlavour | None = Field(None, description="Store flavour; the platform's if left out")
    flops: NonNegative = Field(0.0, description="Floating point operations of all SMs")
    dtype: str = Field("bf16", description="Type of their operands")
    memory_bytes: NonNegative = Field(0.0, description="Bytes from or to memory, of all SMs")


_PHASES: TypeAdapter[tuple[Phase, ...]] = TypeAdapter(tuple[Phase, ...])


def phases_of(space: OwnSpace, configs: Sequence[OwnConfig]) -> dict[OwnConfig, tuple[Phase, ...]]:
    """What the function says of each config; it runs in a process of its own.

    Raises:
        FindingError: it cannot be run, does not answer, or says what are no phases; says of which config.
    """
    host = (sys.executable, "-m", "xstage_tune.base.function_host", space.bursts)
    process = LineProcess(host, space.place)
    found: dict[OwnConfig, tuple[Phase, ...]] = {}
    try:
        for start in range(0, len(configs), _AT_ONCE):
            part = configs[start : start + _AT_ONCE]
            asked = [{"config": dict(config.values), **space.known} for config in part]
            answers = parse_json(process.ask(json.dumps(asked), _DEADLINE_S), most_values=100 * _AT_ONCE)
            found |= {config: _checked(config, answer) for config, answer in zip(part, answers, strict=True)}
    except (XStageError, ValueError, TypeError) as error:
        if isinstance(error, FindingError):
            raise
        raise FindingError(f"bursts = '{space.bursts}': {error}", "mend it, or leave out bursts") from None
    finally:
        process.kill()
    return found


def _checked(config: OwnConfig, answer: Any) -> tuple[Phase, ...]:
    if isinstance(answer, dict) and "error" in answer:
        raise FindingError(f"bursts of {config.label}: {answer['error']}", "mend it, or leave out bursts")
    try:
        return _PHASES.validate_python(answer)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the answer"
        raise FindingError(
            f"bursts of {config.label}: {place}: {first['msg'].lower()}",
            "it returns a list of phases, each a dict of burst_bytes, producers, gap_ns, rounds, ...",
        ) from None


class PhaseTimes:
    """Bounds and expected times of phases on a platform; what phases have in common is worked out once.

    Raises:
        UsageError: when asked, the platform lacks what a phase rests on.
    """

    def __init__(self, platform: PlatformProfile) -> None:
        self._platform = platform
        self._flavour = preferred_flavour(platform)
        self._terms = lru_cache(maxsize=None)(self._make_terms)

    def floors(self, phases: Sequence[Phase]) -> Floors:
        """No launch of these phases is over sooner.

        Issue: every producer issues its bursts, T0 each, and works in the gaps. Drain: equation 1 of all
        bytes, behind the work before the first burst. Compute and memory: at the platform's peak rates.
        """
        compute_ns = sum(
            NS_PER_S * phase.flops / tensor_rate(self._platform, phase.dtype).peak_flop_per_s
            for phase in phases
            if phase.flops
        )
        memory = self._platform.compute
        memory_ns = sum(
            NS_PER_S * phase.memory_bytes / memory.memory_bytes_per_s for phase in phases if memory
        )
        issue_ns = drain_ns = 0.0
        for phase in phases:
            if phase.burst_bytes and not drain_ns:
                drain_ns = issue_ns + phase.gap_ns
            issue_ns += phase.rounds * phase.gap_ns
            if phase.burst_bytes:
                terms = self.terms(phase)
                issue_ns += phase.rounds * terms.free_issue_ns.value
                drain_ns += phase.rounds * terms.drain_ns.value
        return Floors(compute_ns=compute_ns, issue_ns=issue_ns, drain_ns=drain_ns, memory_ns=memory_ns)

    def prediction(self, phases: Sequence[Phase], floors: Floors) -> Prediction:
        """Rounds of the steady state (equations 2, 3 and 7), and what is left to drain of the last burst.

        Or the largest floor where that is longer.
        """
        latency_ns = stall_ns = left_ns = 0.0
        for phase in phases:
            issue_ns = free_ns = left_ns = 0.0
            if phase.burst_bytes:
                terms = self.terms(phase)
                free_ns = terms.free_issue_ns.value
                periodic_ns = burst_gap.issue_ns(
                    gap_ns=phase.gap_ns,
                    free_issue_ns=free_ns,
                    volume_bytes=terms.volume_bytes.value,
                    drain_bytes_per_s=terms.drain_bytes_per_s.value,
                )
                issue_ns = max(float(periodic_ns), terms.isolated_issue_ns)
                left_ns = max(0.0, terms.drain_ns.value - issue_ns)
            latency_ns += phase.rounds * (phase.gap_ns + issue_ns)
            stall_ns += phase.rounds * (issue_ns - free_ns)
        return Prediction(max(latency_ns + left_ns, floors.latency_ns), stall_ns)

    def terms(self, phase: Phase) -> BurstTerms:
        """The bursts of a phase."""
        return self._terms(phase.stores or self._flavour, phase.producers, phase.burst_bytes)

    def _make_terms(self, flavour: StoreFlavour, producers: int, burst_bytes: int) -> BurstTerms:
        size = Figure(float(burst_bytes), Basis.DERIVED, "as the space's function says")
        return burst_terms(self._platform, flavour, producers, size)
