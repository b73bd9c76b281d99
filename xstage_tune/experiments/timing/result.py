"""What a profile run found, under the names of its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xstage_tune.base.medians import median_interval95, median_or_none
from xstage_tune.experiments.emulation.result import error_pct
from xstage_tune.experiments.profiling.result import launches_by_value, result_keys
from xstage_tune.experiments.profiling.use import LaunchResult
from xstage_tune.experiments.timing.comparison import Comparisons, alone_and_compared, within_repeats
from xstage_tune.experiments.timing.prediction import Prediction
from xstage_tune.experiments.timing.procedure import implementations, replay_order
from xstage_tune.experiments.timing.request import ProfileRequest
from xstage_tune.families.attention_a2a.check import complaint
from xstage_tune.families.attention_a2a.timing import (
    IMPLEMENTATIONS,
    RECORDING,
    SERIAL,
    Implementation,
    ProfileCase,
    SpanFigures,
)
from xstage_tune.families.profiled import CheckFigures, ReplayFigures
from xstage_tune.launches.device import Verification
from xstage_tune.model import attention
from xstage_tune.model.checks import NS_PER_S

_TERA = 1e12
#: E_res at or below this part of T_FA counts as none.
NO_RESIDUAL = 0.02


@dataclass(frozen=True, slots=True)
class Compared:
    """A quantity as measured and as predicted, in one unit; None where there is no such figure.

    Args:
        completion_coupled: by the equations, of an issuer that waits for visibility.
    """

    measured: float | None
    closed_form: float | None = None
    simulated: float | None = None
    completion_coupled: float | None = None

    def error_pct(self, predicted: float | None) -> float | None:
        """How far a prediction is above what was measured; None where nothing was left to measure."""
        return error_pct(predicted, self.measured)

    def keys(self) -> dict[str, float | None]:
        return {
            **asdict(self),
            "closed_form_error_pct": self.error_pct(self.closed_form),
            "simulated_error_pct": self.error_pct(self.simulated),
        }


@dataclass(frozen=True, slots=True)
class PointResult:
    """One value of the sweep, or the workload's own.

    Args:
        value: tokens of the sweep; None without one.
        asked: what is timed.
        checks, spans: those that were made; an interrupted run has fewer.
        alone: times of replays in ns by implementation; of former runs not of those that ran in blocks.
        comparisons: with its reference, by implementation; one that was never compared may be absent.
        prediction: None where the platform does not speak of the stores.
    """

    value: float | None
    case: ProfileCase
    asked: Sequence[Implementation]
    checks: Mapping[Implementation, tuple[CheckFigures, Verification]]
    alone: Mapping[Implementation, Sequence[float]]
    comparisons: Comparisons
    spans: Mapping[Implementation, SpanFigures]
    prediction: Prediction | None

    def times_ns(self, implementation: Implementation) -> Sequence[float]:
        """Of its replays alone; where there are none, of those compared, of the attention with fused."""
        alone = self.alone.get(implementation)
        if alone:
            return alone
        if implementation == "attention":
            return [time_ns for one in self.comparisons.get("fused", ()) for time_ns in one.reference_ns]
        return [time_ns for one in self.comparisons.get(implementation, ()) for time_ns in one.own_ns]

    def time_ns(self, implementation: Implementation) -> float | None:
        """T: median of the replays."""
        return median_or_none(self.times_ns(implementation))

    def spread(self, implementation: Implementation) -> float | None:
        """Range of the replays over their median."""
        times_ns, middle_ns = self.times_ns(implementation), self.time_ns(implementation)
        return (max(times_ns) - min(times_ns)) / middle_ns if middle_ns else None

    def flop_per_s(self, implementation: Implementation) -> float | None:
        """Of both matrix products; None of the All-to-All alone, which computes nothing."""
        time_ns = self.time_ns(implementation)
        if not time_ns or implementation == "all-to-all":
            return None
        return self.case.flops / time_ns * NS_PER_S

    def beyond_ns(self, implementation: Implementation) -> Sequence[float]:
        """What an implementation takes beyond its reference, by every comparison; of fused E_res."""
        return [one.beyond_ns for one in self.comparisons.get(implementation, ())]

    def residual_ns(self, implementation: Implementation = "fused") -> float | None:
        """The median of that."""
        return median_or_none(self.beyond_ns(implementation))

    def residual_ci95_ns(self, implementation: Implementation = "fused") -> tuple[float, float] | None:
        """At least 95% confidence interval of the median; None of fewer than six comparisons."""
        return median_interval95(self.beyond_ns(implementation))

    @property
    def is_right(self) -> bool:
        """Whether every implementation's output was found right."""
        return all(one in self.checks and not complaint(*self.checks[one]) for one in self.asked)

    def sender_residual_ns(self) -> float | None:
        """E_res until the last store is issued, as the sender sees it, of one recorded launch of either."""
        fused, alone = self.spans.get("fused"), self.spans.get("attention")
        return None if fused is None or alone is None else fused.launch_ns - alone.launch_ns

    def recording_overhead(self, implementation: Implementation) -> float | None:
        """What recording its spans adds to an implementation's time, as a part of it; None if never timed."""
        compared = self.comparisons.get(RECORDING[implementation], ())
        added_ns = self.residual_ns(RECORDING[implementation])
        unrecorded_ns = median_or_none([time_ns for one in compared for time_ns in one.reference_ns])
        return added_ns / unrecorded_ns if added_ns is not None and unrecorded_ns else None

    def hiding_ratio(self, serial: Implementation) -> float | None:
        """Equation 21; None where the serial version takes no longer than the attention alone."""
        fused, whole, alone = self.residual_ns(), self.residual_ns(serial), self.time_ns("attention")
        if fused is None or whole is None or alone is None or whole <= 0:
            return None
        return float(
            attention.hiding_ratio(fused_ns=alone + fused, attention_ns=alone, serial_ns=alone + whole)
        )

    def speedup(self, serial: Implementation, of: Implementation = "fused") -> float | None:
        """Time of a serial version over that of another one, each at its own clocks."""
        whole, fused = self.time_ns(serial), self.time_ns(of)
        return whole / fused if whole and fused else None

    def exceeds_hiding(self, serial: Implementation, of: Implementation = "fused") -> bool:
        """Whether the speedup is more than hiding all but the attention gives: then clocks differed."""
        speedup, hidden = self.speedup(serial, of), self.speedup(serial, "attention")
        return speedup is not None and hidden is not None and speedup > hidden

    def ideal_speedup(self) -> float | None:
        """Fused over serial if all of the All-to-All were hidden: 1 + T_A2A / T_FA."""
        exchange, alone = self.time_ns("all-to-all"), self.time_ns("attention")
        if exchange is None or not alone:
            return None
        return float(attention.ideal_speedup(all_to_all_ns=exchange, attention_ns=alone))

    def compared(self) -> dict[str, Compared]:
        """Predicted beside measured, by quantity.

        ``issue_ns`` is T_RS of a tile with remote rows, the median. ``q_loop_ns`` is G_Qloop, which the model
        knows without backpressure: the attention's alone. ``issue_overhead_ns`` is dt(M): T_RS less that of
        the attention alone, whose stores are local. ``converged_tokens`` is M*_ub, measured as equation 20
        with the measured sigma in place of the platform's. Measured hiding is against direct stores.
        """
        closed = self.prediction.closed if self.prediction else None
        simulated = self.prediction.simulated if self.prediction else None
        issue, control = self._issue_ns("fused"), self._issue_ns("attention")
        overhead = None if issue is None or control is None else issue - control
        return {
            "issue_ns": Compared(
                issue, closed.issue_ns if closed else None, simulated.issue_ns if simulated else None
            ),
            "q_loop_ns": Compared(self._q_loop_ns(), closed.q_loop_ns if closed else None),
            "issue_overhead_ns": Compared(overhead, closed.issue_overhead_ns if closed else None),
            "converged_tokens": Compared(
                self._converged_tokens(), closed.converged_tokens if closed else None
            ),
            "residual_ns": Compared(
                self.residual_ns(),
                closed.residual_ns if closed else None,
                simulated.residual_ns if simulated else None,
                closed.completion_coupled_ns if closed else None,
            ),
            "hiding_ratio": Compared(
                self.hiding_ratio("serial-direct"), closed.hiding_ratio if closed else None
            ),
        }

    def keys(self) -> dict[str, Any]:
        case = self.case
        return {
            "value": self.value,
            "tokens": case.tokens,
            "heads": case.heads,
            "head_dim": case.head_dim,
            "ranks": case.ranks,
            "remote_ranks": case.remote_ranks,
            "flops": case.flops,
            "remote_bytes": case.remote_bytes,
            "implementations": {
                one: self._implementation_keys(one) for one in IMPLEMENTATIONS if self.times_ns(one)
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
            "recording": {
                one: self._recording_keys(one)
                for one, recording in RECORDING.items()
                if self.times_ns(recording)
            },
            "residual_ci95_ns": self.residual_ci95_ns(),
            "residual_of_attention": self.residual_of_attention(),
            "sender_residual_ns": self.sender_residual_ns(),
            "ideal_speedup": self.ideal_speedup(),
            "against": {
                serial: {
                    "hiding_ratio": self.hiding_ratio(serial),
                    "speedup": self.speedup(serial),
                    "speedup_received": self.speedup(serial, "fused-received"),
                    "exceeds_hiding": self.exceeds_hiding(serial),
                }
                for serial in SERIAL
                if self.times_ns(serial)
            },
            "spans": {
                one: {key: found for key, found in asdict(figures).items() if key != "what"}
                for one, figures in self.spans.items()
            },
            "predicted_beside_measured": {name: one.keys() for name, one in self.compared().items()},
        }

    def is_hidden(self) -> bool:
        """Whether E_res is surely at most :data:`NO_RESIDUAL` of T_FA: with the upper end of its interval."""
        interval, alone = self.residual_ci95_ns(), self.time_ns("attention")
        return interval is not None and alone is not None and interval[1] <= NO_RESIDUAL * alone

    def residual_of_attention(self) -> float | None:
        """E_res over T_FA."""
        residual_ns, alone = self.residual_ns(), self.time_ns("attention")
        return residual_ns / alone if residual_ns is not None and alone else None

    def _implementation_keys(self, implementation: Implementation) -> dict[str, Any]:
        flop_per_s, time_ns = self.flop_per_s(implementation), self.time_ns(implementation)
        moved = implementation == "all-to-all" and time_ns
        return {
            "time_ns": time_ns,
            "samples_ns": self.times_ns(implementation),
            "spread": self.spread(implementation),
            "tflop_per_s": flop_per_s / _TERA if flop_per_s else None,
            "remote_bytes_per_s": self.case.remote_bytes / time_ns * NS_PER_S if moved and time_ns else None,
            "beyond_attention_ns": self.residual_ns(implementation),
            "beyond_attention_ci95_ns": self.residual_ci95_ns(implementation),
            "beyond_attention_samples_ns": self.beyond_ns(implementation),
            "compared": [asdict(one) for one in self.comparisons.get(implementation, ())],
        }

    def _recording_keys(self, implementation: Implementation) -> dict[str, Any]:
        recording = RECORDING[implementation]
        return {
            "time_ns": self.time_ns(recording),
            "overhead": self.recording_overhead(implementation),
            "overhead_ns": self.residual_ns(recording),
            "overhead_ci95_ns": self.residual_ci95_ns(recording),
            "overhead_samples_ns": self.beyond_ns(recording),
            "compared": [asdict(one) for one in self.comparisons.get(recording, ())],
        }

    def _issue_ns(self, implementation: Implementation) -> float | None:
        figures = self.spans.get(implementation)
        return figures.issue.p50_ns if figures and figures.issue else None

    def _q_loop_ns(self) -> float | None:
        figures = self.spans.get("attention")
        return figures.q_loop.p50_ns if figures and figures.q_loop else None

    def _converged_tokens(self) -> float | None:
        q_loop_ns = self._q_loop_ns()
        if self.prediction is None or not q_loop_ns:
            return None
        config = self.case.config
        kv_tiles = attention.q_loop_kv_tiles(
            tokens=self.case.tokens, block_n=config.block_n, kv_splits=config.kv_splits
        )
        closed = self.prediction.closed
        return float(
            attention.converged_tokens(
                recovery_gap_ns=closed.recovery_gap_ns,
                block_n=config.block_n,
                # The exchange alone cannot be measured.
                kv_tile_ns=max(1.0, q_loop_ns - closed.exchange_ns) / kv_tiles,
                kv_splits=config.kv_splits,
                exchange_ns=closed.exchange_ns,
            )
        )


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """The answer of a profile run.

    Args:
        run_id: in the store.
        device: what ran the kernels.
        device_name: the GPU.
        points: in the order of the sweep; those of an interrupted run that were begun.
        throttled_launches: during which the GPU's clocks were held down, of ``launches``.
    """

    run_id: str
    request: ProfileRequest
    device: str
    device_name: str
    points: tuple[PointResult, ...]
    throttled_launches: int = 0
    launches: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether fused and attention were compared at every value, as often as was asked."""
        asked = len(self.request.values()) * self.request.repeats
        return sum(len(point.beyond_ns("fused")) for point in self.points) == asked

    def residual_ends_tokens(self) -> int | None:
        """The fewest tokens of the sweep from which on E_res is surely at most :data:`NO_RESIDUAL` of T_FA.

        None where there are none, or where the sweep did not come to its end.
        """
        if not self.is_whole:
            return None
        ends: int | None = None
        for point in sorted(self.points, key=lambda one: one.case.tokens, reverse=True):
            if not point.is_hidden():
                break
            ends = point.case.tokens
        return ends if self.request.sweep else None

    def keys(self) -> dict[str, Any]:
        """As plain keys, stable and sorted by the writer."""
        return result_keys(self) | {"residual_ends_tokens": self.residual_ends_tokens()}


def conclude(
    request: ProfileRequest,
    outcomes: Sequence[LaunchResult],
    predictions: Mapping[float | None, Prediction | None],
    *,
    run_id: str,
    device: str,
    device_name: str,
    throttled_launches: int = 0,
) -> ProfileResult:
    """Put what was measured beside what was predicted.

    Args:
        predictions: by value of the sweep.

    Raises:
        UsageError: a value does not fit the workload.
    """
    points = tuple(
        _point(value, case, own, request, predictions[value])
        for value, case, own in launches_by_value(request, outcomes)
    )
    return ProfileResult(run_id, request, device, device_name, points, throttled_launches, len(outcomes))


def _point(
    value: float | None,
    case: ProfileCase,
    own: Sequence[LaunchResult],
    request: ProfileRequest,
    prediction: Prediction | None,
) -> PointResult:
    checks: dict[Implementation, tuple[CheckFigures, Verification]] = {}
    replays: list[tuple[Implementation, float]] = []
    spans: dict[Implementation, SpanFigures] = {}
    for one in own:
        match one.figures:
            case CheckFigures():
                checks[one.implementation] = one.figures, one.verification
            case ReplayFigures():
                replays.append((one.implementation, one.figures.time_ns))
            case SpanFigures():
                spans[one.implementation] = one.figures
    alone, comparisons = alone_and_compared(replay_order(request), replays)
    if request.replays == "balanced":
        comparisons = within_repeats(alone)
    return PointResult(value, case, implementations(request), checks, alone, comparisons, spans, prediction)
