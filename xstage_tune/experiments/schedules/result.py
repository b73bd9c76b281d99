"""What a profile of a MoE layer found, under the names of its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xstage_tune.base.medians import median_interval95, median_or_none
from xstage_tune.experiments.emulation.result import error_pct
from xstage_tune.experiments.profiling.result import launches_by_value, result_keys
from xstage_tune.experiments.profiling.use import LaunchResult
from xstage_tune.experiments.schedules.prediction import Prediction
from xstage_tune.experiments.schedules.request import LayerRequest
from xstage_tune.families.megamoe.routing import busiest_tokens
from xstage_tune.families.megamoe.timing import (
    AT_ONCE,
    LOCAL,
    RECORDING,
    LayerCase,
    LayerSpans,
)
from xstage_tune.families.profiled import CheckFigures, Distribution, ReplayFigures
from xstage_tune.launches.device import Verification
from xstage_tune.launches.in_turn import Interval, ratio_of
from xstage_tune.model.checks import NS_PER_S

_TERA = 1e12


@dataclass(frozen=True, slots=True)
class Stall:
    """What a schedule's stores hold up: one line of the paper's Table 2; medians of parts, times in ns.

    Of stores that leave at once. None where nothing of that kind was recorded or predicted.

    Args:
        issue_ns: T_RS.
        l1_ns, l2_ns: mainloops.
        expected_ns: equation 15 of each part with its own T_RS and its own successor.
        measured_ns: how long the slot was waited for.
        expected_mean_ns, measured_mean_ns: means of the same.
    """

    issue_ns: float | None
    l1_ns: float | None
    l2_ns: float | None
    expected_ns: float | None
    measured_ns: float | None
    expected_mean_ns: float | None
    measured_mean_ns: float | None


@dataclass(frozen=True, slots=True)
class PointResult:
    """One value of the sweep, or the workload's own.

    Args:
        value: of the sweep; None without one.
        checks, spans: those that were made; an interrupted run has fewer.
        samples_ns: of each implementation the time of every repeat, in which all ran in turn.
        predictions: by schedule; empty where the platform does not speak of the stores.
    """

    value: float | None
    case: LayerCase
    checks: Mapping[str, tuple[CheckFigures, Verification]]
    samples_ns: Mapping[str, Sequence[float]]
    spans: Mapping[str, LayerSpans]
    predictions: Mapping[str, Prediction]

    @property
    def flops(self) -> int:
        """Of the products of all rows that the rank receives."""
        workload = self.case.workload
        return 6 * int(busiest_tokens(workload).sum()) * workload.hidden * workload.intermediate

    def time_ns(self, implementation: str) -> float | None:
        """T: median of the repeats."""
        return median_or_none(self.samples_ns.get(implementation, ()))

    def spread(self, implementation: str) -> float | None:
        """Range of the repeats over their median."""
        samples, middle_ns = self.samples_ns.get(implementation, ()), self.time_ns(implementation)
        return (max(samples) - min(samples)) / middle_ns if middle_ns else None

    def flop_per_s(self, implementation: str) -> float | None:
        """Of the layer's products."""
        time_ns = self.time_ns(implementation)
        return self.flops / time_ns * NS_PER_S if time_ns else None

    def over(self, other: str, implementation: str) -> Interval | None:
        """Time of another over an implementation's, of repeats in turn: above 1 this one is faster."""
        mine, others = self.samples_ns.get(implementation, ()), self.samples_ns.get(other, ())
        count = min(len(mine), len(others))
        return ratio_of(others[:count], mine[:count]) if count else None

    def beyond_ns(self, other: str, implementation: str) -> Sequence[float]:
        """What an implementation takes beyond another, in each repeat."""
        mine, others = self.samples_ns.get(implementation, ()), self.samples_ns.get(other, ())
        return [own - alone for own, alone in zip(mine, others, strict=False)]

    @property
    def control_name(self) -> str:
        """The schedule that :data:`LOCAL` runs."""
        return next(name for name, config in self.case.schedules if config == self.case.control)

    def recording_overhead_ns(self) -> Sequence[float]:
        """What recording adds to the first schedule, in each repeat."""
        first = self.case.names[0]
        return self.beyond_ns(first, first + RECORDING)

    def stall(self, schedule: str) -> Stall | None:
        """Of stores that leave at once; None where no spans of them were recorded."""
        spans = self.spans.get(schedule if schedule == LOCAL else schedule + AT_ONCE)
        if spans is None:
            return None
        return Stall(
            issue_ns=_p50(spans.issue),
            l1_ns=_p50(spans.l1),
            l2_ns=_p50(spans.l2),
            expected_ns=_p50(spans.expected_stall),
            measured_ns=_p50(spans.stall),
            expected_mean_ns=spans.expected_stall.mean_ns if spans.expected_stall else None,
            measured_mean_ns=spans.stall.mean_ns if spans.stall else None,
        )

    def interleaved_over_wave(self) -> dict[str, float | None]:
        """Wave's time over interleaved's, measured and as predicted: above 1 interleaving is faster."""
        names = {config.schedule.kind: name for name, config in self.case.schedules}
        wave, interleaved = names.get("wave"), names.get("interleaved")
        if wave is None or interleaved is None:
            return {"measured": None, "simulated": None, "closed_form": None}
        ratio = self.over(wave, interleaved)
        both = [self.predictions.get(name) for name in (wave, interleaved)]
        found: dict[str, float | None] = {"measured": ratio.value if ratio else None}
        above, below = both
        if above is None or below is None:
            return found | {"simulated": None, "closed_form": None}
        return found | {
            "simulated": above.simulated.latency_ns / below.simulated.latency_ns,
            "closed_form": above.closed.latency_ns / below.closed.latency_ns,
        }

    def keys(self) -> dict[str, Any]:
        """As plain keys."""
        case = self.case
        first = case.names[0]
        return {
            "value": self.value,
            "tokens_per_rank": case.workload.tokens_per_rank,
            "flops": self.flops,
            "implementations": {
                one: self._implementation_keys(one, first) for one in case.timed if self.time_ns(one)
            },
            "checks": {
                one: {
                    "checked_bytes": found.checked_bytes,
                    "mismatched_bytes": found.mismatched_bytes,
                    "relative_error": figures.relative_error,
                    "place": figures.place,
                }
                for one, (figures, found) in self.checks.items()
            },
            "interleaved_over_wave": self.interleaved_over_wave(),
            "recording_overhead_ns": median_or_none(self.recording_overhead_ns()),
            "recording_overhead_ci95_ns": median_interval95(self.recording_overhead_ns()),
            "exposed_ns": median_or_none(self.beyond_ns(LOCAL, self.control_name)),
            "exposed_ci95_ns": median_interval95(self.beyond_ns(LOCAL, self.control_name)),
            "stalls": {
                one: asdict(found) for one in (*case.names, LOCAL) if (found := self.stall(one)) is not None
            },
            "spans": {
                one: {key: value for key, value in asdict(figures).items() if key != "what"}
                for one, figures in self.spans.items()
            },
            "predicted": {one: self._predicted_keys(one, found) for one, found in self.predictions.items()},
        }

    def _implementation_keys(self, implementation: str, first: str) -> dict[str, Any]:
        flop_per_s, ratio = self.flop_per_s(implementation), self.over(first, implementation)
        return {
            "time_ns": self.time_ns(implementation),
            "samples_ns": list(self.samples_ns[implementation]),
            "spread": self.spread(implementation),
            "tflop_per_s": flop_per_s / _TERA if flop_per_s else None,
            "first_over_it": asdict(ratio) if ratio and len(self.samples_ns[implementation]) > 1 else None,
        }

    def _predicted_keys(self, schedule: str, found: Prediction) -> dict[str, Any]:
        measured_ns = self.time_ns(schedule)
        return {
            "closed_form": asdict(found.closed),
            "simulated": asdict(found.simulated),
            "latency_error_pct": {
                "closed_form": error_pct(found.closed.latency_ns, measured_ns),
                "simulated": error_pct(found.simulated.latency_ns, measured_ns),
            },
        }


@dataclass(frozen=True, slots=True)
class LayerResult:
    """The answer of a profile of a layer; see :class:`~xstage_tune.experiments.timing.result.ProfileResult`.

    Args:
        points: in the order of the sweep; those of an interrupted run that were begun.
        throttled_launches: during which the GPU's clocks were held down, of ``launches``.
    """

    run_id: str
    request: LayerRequest
    device: str
    device_name: str
    points: tuple[PointResult, ...]
    throttled_launches: int = 0
    launches: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether all schedules were timed at every value, as often as was asked."""
        asked = len(self.request.values()) * self.request.repeats
        fewest = [
            min((len(point.samples_ns.get(one, ())) for one in point.case.names), default=0)
            for point in self.points
        ]
        return sum(fewest) == asked

    def keys(self) -> dict[str, Any]:
        """As plain keys, stable and sorted by the writer."""
        return result_keys(self) | {"schedules": list(self.request.schedules)}


def conclude(
    request: LayerRequest,
    outcomes: Sequence[LaunchResult],
    predictions: Mapping[float | None, Mapping[str, Prediction] | None],
    *,
    run_id: str,
    device: str,
    device_name: str,
    throttled_launches: int = 0,
) -> LayerResult:
    """Put what was measured beside what was predicted.

    Args:
        predictions: by value of the sweep.

    Raises:
        UsageError: a value does not fit the workload.
    """
    points = tuple(
        _point(value, case, own, predictions[value] or {})
        for value, case, own in launches_by_value(request, outcomes)
    )
    return LayerResult(run_id, request, device, device_name, points, throttled_launches, len(outcomes))


def _point(
    value: float | None,
    case: LayerCase,
    own: Sequence[LaunchResult],
    predictions: Mapping[str, Prediction],
) -> PointResult:
    checks: dict[str, tuple[CheckFigures, Verification]] = {}
    samples_ns: dict[str, list[float]] = {}
    spans: dict[str, LayerSpans] = {}
    for one in own:
        match one.figures:
            case CheckFigures():
                checks[one.implementation] = one.figures, one.verification
            case ReplayFigures():
                samples_ns.setdefault(one.implementation, []).append(one.figures.time_ns)
            case LayerSpans():
                spans[one.implementation] = one.figures
    return PointResult(value, case, checks, samples_ns, spans, predictions)


def _p50(found: Distribution | None) -> float | None:
    return found.p50_ns if found else None
