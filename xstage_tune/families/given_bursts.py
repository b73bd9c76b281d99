"""The design test of bursts that are given as numbers: how large, by how many producers, how far apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.base.number_format import byte_count, count, duration, share
from xstage_tune.estimates.bursts import BurstTerms, burst_terms, saturating_producers
from xstage_tune.estimates.figures import Basis, Figure
from xstage_tune.estimates.schedule import SchedulePrediction, in_steady_state, issue_at, overhead
from xstage_tune.families.advice import Action, lengthen, passes, piggyback, shrink
from xstage_tune.families.estimate import Estimate, Quantity
from xstage_tune.platforms.schema import PlatformProfile

_NAME = "piggyback"


@dataclass(frozen=True, slots=True)
class GivenBursts:
    """Rounds of bursts, as whoever writes a kernel knows them.

    Args:
        burst_bytes: B, remote bytes of one producer.
        producers: K that store together.
        gap_ns: G, work without remote stores between two bursts of a producer.
        flavour: of the stores.
        rounds: bursts of each producer.
    """

    burst_bytes: float
    producers: int
    gap_ns: float
    flavour: StoreFlavour
    rounds: int = 1


@dataclass(frozen=True, slots=True)
class GivenBurstsEstimate(Estimate):
    """What the closed forms say of them: of a role that issues its burst and goes back to its work."""

    burst: BurstTerms
    predicted: SchedulePrediction
    saturating: Figure | None

    @property
    def schedules(self) -> Mapping[str, SchedulePrediction]:
        return {_NAME: self.predicted}

    @property
    def audited(self) -> str:
        return _NAME

    def remarks(self) -> Iterator[tuple[str, str]]:
        span, added = self.predicted.span_ns.value, self.predicted.issue_overhead_ns.value
        period = span + self.predicted.gap_ns.value
        yield (
            "a round",
            f"T_RS is {duration(span)}; backpressure exposes {duration(added)} of it, "
            f"{share(added / period)} of the {duration(period)} from burst to burst",
        )
        size = byte_count(self.burst.burst_bytes.value)
        sms = self.burst.platform.gpu.sm_count
        if self.saturating is None:
            yield "saturation", f"not even all {sms} SMs saturate R with bursts of {size}"
        else:
            yield (
                "saturation",
                f"{self.saturating.value:.0f} of {sms} SMs saturate R with bursts of {size} and no gap "
                f"({self.saturating.basis.label}): more store no faster together",
            )

    def quantities(self) -> Mapping[str, Quantity]:
        if self.saturating is None:
            return {}
        return {"saturating_producers": Quantity(self.saturating, "producers that saturate R", count)}

    def actions(self) -> tuple[Action, ...]:
        """What would satisfy the bounds, each by itself; to piggyback where they hold."""
        if passes(self.burst, self.predicted):
            return (piggyback(),)
        return (*lengthen(self.burst, self.predicted), *shrink(self.burst, self.predicted))


def estimate_bursts(platform: PlatformProfile, given: GivenBursts) -> GivenBurstsEstimate:
    """The estimate of given bursts: T_RS is T_iss at the gap, what each exposes is dT_iss of equation 4.

    Raises:
        UsageError: the platform has no issue times or no capacity for the store flavour.
    """
    how = "as given"
    burst = burst_terms(
        platform, given.flavour, given.producers, Figure(given.burst_bytes, Basis.DERIVED, how)
    )
    gap = Figure(given.gap_ns, Basis.DERIVED, how)
    span = issue_at(burst, gap)
    predicted = in_steady_state(
        burst,
        gap,
        cover=Figure(0.0, Basis.DERIVED, "no work beside the stores"),
        span=span,
        stall=overhead(burst, span),
        bursts=given.rounds,
        total_bytes=given.rounds * burst.volume_bytes.value,
    )
    saturating = saturating_producers(platform, given.flavour, given.burst_bytes)
    return GivenBurstsEstimate(burst, predicted, saturating)
