"""What a search found, under the names of its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from xstage_tune.base.errors import UsageError
from xstage_tune.base.limits import Objective
from xstage_tune.base.number_format import duration
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.config_files import config_from_keys, config_keys
from xstage_tune.families.kernel_launch import KernelRun
from xstage_tune.launches.in_turn import Interval, ratio_of, ratio_of_ratios
from xstage_tune.search.evaluation import FailureGroup

#: How wide the interval of a time may be, as a part of its lower end, before a user is warned.
_STEADY = 0.2


@dataclass(frozen=True, slots=True)
class Outcome:
    """A config as measured at the end, all candidates with the same number of repeats.

    Args:
        config: what ran.
        samples_ns: its repeats, of the objective.
        latency_samples_ns: the same repeats' latency; empty in results of earlier versions by another
            objective.
        in_turn: whether each sample was taken in turn with one of the same reference, and is its ratio to
            that, times the reference's time.
        cold_ns: median latency with an empty L2; None where that was not measured.
        exposed_ns: E_res; None where that was not measured.
        throttled: what slowed the GPU down meanwhile.
    """

    config: KernelConfig
    samples_ns: tuple[float, ...]
    latency_samples_ns: tuple[float, ...] = ()
    in_turn: bool = False
    cold_ns: float | None = None
    exposed_ns: float | None = None
    throttled: tuple[str, ...] = ()

    @property
    def objective_ns(self) -> float:
        return median(self.samples_ns)

    @property
    def latency_ns(self) -> float | None:
        """Of the launch, whatever the objective; None where it was not kept."""
        return median(self.latency_samples_ns) if self.latency_samples_ns else None

    def over(self, other: Outcome) -> Interval:
        """Its objective over another's, each of which was taken in turn with the same reference."""
        return ratio_of_ratios(self.samples_ns, other.samples_ns)

    def surely_better_than(self, other: Outcome, by: float = 0.0) -> bool:
        """Whether even the worst repeat is better than the other's best one.

        Args:
            by: of samples that were taken in turn, where the interval of the ratio says so: what fraction
                better.
        """
        if self.in_turn and other.in_turn:
            return self.over(other).high < 1 - by
        return max(self.samples_ns) < min(other.samples_ns)

    @property
    def range_ns(self) -> tuple[float, float]:
        """Least and most of the repeats; of samples that were taken in turn, the interval of their mean."""
        if not self.in_turn:
            return min(self.samples_ns), max(self.samples_ns)
        ratio = ratio_of(self.samples_ns, [self.objective_ns] * len(self.samples_ns))
        return ratio.low * self.objective_ns, ratio.high * self.objective_ns

    @property
    def is_steady(self) -> bool:
        """Whether its samples, if they were taken in turn, tell its time to within a fifth."""
        low_ns, high_ns = self.range_ns
        return not self.in_turn or high_ns <= low_ns * (1 + _STEADY)

    def keys(self) -> dict[str, Any]:
        return {
            "config": config_keys(self.config),
            "objective_ns": self.objective_ns,
            "samples_ns": list(self.samples_ns),
            "latency_ns": self.latency_ns,
            "latency_samples_ns": list(self.latency_samples_ns),
            "in_turn": self.in_turn,
            "cold_ns": self.cold_ns,
            "exposed_ns": self.exposed_ns,
            "throttled": list(self.throttled),
        }


def final_outcome(
    config: KernelConfig, run: KernelRun, objective: Objective, reference_ns: float | None
) -> Outcome:
    """What the last comparison measured of a config.

    Args:
        reference_ns: time of what all were timed against; None of a device that does not time in turn.
    """
    latency_ns = run.latency_ns
    if run.against_ns and reference_ns is not None:
        pairs = zip(run.latency_ns, run.against_ns, strict=True)
        latency_ns = tuple(reference_ns * own / against for own, against in pairs)
    latency = objective == "latency"
    return Outcome(
        config,
        latency_ns if latency else run.samples_ns(objective),
        latency_ns,
        in_turn=latency and bool(run.against_ns),
        cold_ns=median(run.cold_ns) if run.cold_ns else None,
        exposed_ns=run.exposed_ns,
        throttled=run.throttled,
    )


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """The model beside what was measured, of a search that measures.

    Args:
        closed_form_error: median of how far objectives were from the closed forms', as a fraction; None
            without any.
        first_half_error, second_half_error: the same from what was expected at the time, measurements of
            configs like it taken into account, over the first and the last half of the trials.
        checked: configs that were measured though the model would have left them out.
        checked_bounded: of them, those that a bound had cut.
        checked_best_over_best: the best of them over the best of the others; None without any.
    """

    closed_form_error: float | None
    first_half_error: float | None
    second_half_error: float | None
    checked: int
    checked_bounded: int
    checked_best_over_best: float | None


@dataclass(frozen=True, slots=True)
class Cut:
    """Configs that were not evaluated for one reason.

    Args:
        reason: ``infeasible: <limit>``, ``bounded`` or ``ranked last``.
        configs: how many.
        detail: the numbers behind it.
    """

    reason: str
    configs: int
    detail: str


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer of a search, and what it rests on.

    Args:
        study_id: in the store; empty when nothing was kept.
        workload, platform: names.
        device: what ran the configs.
        objective: ``latency`` or ``stall``.
        sampler, seed: of the search.
        best: the answer: the baseline where nothing surely beats it.
        default: what the answer has to beat, always evaluated; None where it failed or none fits.
        heuristics: today's choices by name, as far as the trials reached and they ran.
        ties: configs that the repeats cannot tell from ``best``.
        bound_ns: no config that was not evaluated is below it; at most the best one's objective.
        evaluations: distinct configs that were run.
        failed: of them, those that failed or returned times that are none.
        cuts: what was not evaluated, and why.
        stopped: why the search ended.
        assumed: what the answer's time rests on that nobody measured; None for nothing.
        no_default: why there is no default to compare with; empty where there is one.
        failures: of those that failed, grouped by reason; empty in results of earlier versions.
        below_bound: configs whose launch took less than its lower bound: the platform's figures are too low
            for this device, and the bound does not hold.
        least_part_of_bound: the least measured part of such a bound; None where there is none.
        hides_more: the config that ties with the answer and is faster by its median, but exposes more; None
            where the answer is the fastest.
        model: how near the model came; None of a search that does not measure.
        busy_s, elapsed_s: what the GPU ran for in this run of the search, and how long that took; None where
            the device does not tell.
        slower: configs that could not be the answer because their launch takes longer than the baseline's.
        unfinished: why this is only the best so far of a search that has not ended; empty where it has.
    """

    study_id: str
    workload: str
    platform: str
    device: str
    objective: str
    sampler: str
    seed: int
    best: Outcome
    default: Outcome | None
    heuristics: Mapping[str, Outcome]
    ties: tuple[Outcome, ...]
    bound_ns: float
    evaluations: int
    failed: int
    cuts: tuple[Cut, ...]
    stopped: str
    assumed: str | None = None
    no_default: str = ""
    failures: tuple[FailureGroup, ...] = ()
    below_bound: int = 0
    least_part_of_bound: float | None = None
    slower: int = 0
    unfinished: str = ""
    hides_more: KernelConfig | None = None
    model: ModelCheck | None = None
    busy_s: float | None = None
    elapsed_s: float | None = None

    @property
    def faults(self) -> int:
        """Configs that a fault ruled out: neither what is not worth a launch, nor of an earlier version."""
        return sum(group.configs for group in self.failures if group.fault not in ("", "unusable"))

    @property
    def baseline(self) -> Outcome | None:
        """What the answer is compared with: the default, else the best heuristic that ran."""
        if self.default is not None:
            return self.default
        return min(self.heuristics.values(), key=lambda one: one.objective_ns, default=None)

    @property
    def named(self) -> tuple[Outcome, ...]:
        """The answer, the default where there is one, and the heuristics."""
        default = () if self.default is None else (self.default,)
        return (self.best, *default, *self.heuristics.values())

    @property
    def beats_baseline(self) -> bool:
        """Whether the answer is surely better than what it is compared with; True without any."""
        return self.baseline is None or self.best.surely_better_than(self.baseline)

    @property
    def beats_default(self) -> bool:
        """Whether the answer is surely better than the default; False without one."""
        return self.default is not None and self.best.surely_better_than(self.default)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user must know before the answer is used, each in one line."""
        found = []
        if self.unfinished:
            found.append(
                f"unfinished: {self.unfinished}; this is the best so far, each config measured once, and no "
                "last comparison was made"
            )
        if self.no_default:
            compared = "the best of today's heuristics" if self.heuristics else "nothing"
            found.append(f"{self.no_default}; the answer was compared with {compared}")
        for name, outcome in {"answer": self.best, "baseline": self.baseline}.items():
            if outcome is not None and not outcome.is_steady:
                low, high = map(duration, outcome.range_ns)
                found.append(
                    f"times did not hold still: that of the {name} is only known to be {low} to {high}; "
                    "something else uses the GPU or its link, or the launch itself varies; do not deploy this"
                )
        if self.least_part_of_bound is not None:
            part = 100 * self.least_part_of_bound
            found.append(
                f"{self.below_bound} configs ran faster than their lower bound, one in {part:.1f}% of it: "
                f"the bound does not hold, since the figures of platform {self.platform} are too low for "
                f"{self.device}"
            )
        return tuple(found)

    @property
    def above_bound(self) -> float | None:
        """How far the answer is above the bound, as a fraction; None where the bound is 0."""
        return self.best.objective_ns / self.bound_ns - 1.0 if self.bound_ns > 0 else None

    def keys(self) -> dict[str, Any]:
        """As plain keys, stable and sorted by the writer; :func:`result_from_keys` reads them back."""
        return {
            "study_id": self.study_id,
            "workload": self.workload,
            "platform": self.platform,
            "device": self.device,
            "objective": self.objective,
            "sampler": self.sampler,
            "seed": self.seed,
            "best": self.best.keys(),
            "default": None if self.default is None else self.default.keys(),
            "heuristics": {name: outcome.keys() for name, outcome in self.heuristics.items()},
            "ties": [outcome.keys() for outcome in self.ties],
            "beats_default": self.beats_default,
            "bound_ns": self.bound_ns,
            "above_bound": self.above_bound,
            "evaluations": self.evaluations,
            "failed": self.failed,
            "cuts": {cut.reason: cut.configs for cut in self.cuts},
            "cut_details": [asdict(cut) for cut in self.cuts],
            "stopped": self.stopped,
            "assumed": self.assumed,
            "no_default": self.no_default,
            "failures": [asdict(group) for group in self.failures],
            "below_bound": self.below_bound,
            "least_part_of_bound": self.least_part_of_bound,
            "slower": self.slower,
            "faults": self.faults,
            "hides_more_than": None if self.hides_more is None else config_keys(self.hides_more),
            "model": None if self.model is None else asdict(self.model),
            "busy_s": self.busy_s,
            "elapsed_s": self.elapsed_s,
            "warnings": list(self.warnings),
        }


def result_from_keys(keys: Mapping[str, Any], origin: str) -> SearchResult:
    """Keys of :meth:`SearchResult.keys` as a result.

    Raises:
        UsageError: a key is missing, or a config breaks the schema.
    """

    def outcome(data: Mapping[str, Any]) -> Outcome:
        samples_ns = tuple(data["samples_ns"])
        earlier = samples_ns if keys["objective"] == "latency" else ()
        latency_ns = tuple(data.get("latency_samples_ns", earlier))
        return Outcome(
            config_from_keys(data["config"], origin),
            samples_ns,
            latency_ns,
            in_turn=data.get("in_turn", False),
            cold_ns=data.get("cold_ns"),
            exposed_ns=data.get("exposed_ns"),
            throttled=tuple(data.get("throttled", ())),
        )

    plain = ("study_id", "workload", "platform", "device", "objective", "sampler", "seed", "bound_ns",
             "evaluations", "failed", "stopped")  # fmt: skip
    hidden = keys.get("hides_more_than")
    try:
        return SearchResult(
            **{name: keys[name] for name in plain},
            best=outcome(keys["best"]),
            default=None if keys["default"] is None else outcome(keys["default"]),
            heuristics={name: outcome(data) for name, data in keys["heuristics"].items()},
            ties=tuple(outcome(data) for data in keys["ties"]),
            cuts=tuple(Cut(**cut) for cut in keys["cut_details"]),
            # Studies of earlier versions do not say the rest.
            assumed=keys.get("assumed"),
            no_default=keys.get("no_default", ""),
            failures=tuple(FailureGroup(**group) for group in keys.get("failures", ())),
            below_bound=keys.get("below_bound", 0),
            least_part_of_bound=keys.get("least_part_of_bound"),
            slower=keys.get("slower", 0),
            hides_more=hidden and config_from_keys(hidden, origin),
            model=ModelCheck(**model) if (model := keys.get("model")) else None,
            busy_s=keys.get("busy_s"),
            elapsed_s=keys.get("elapsed_s"),
        )
    except (KeyError, TypeError) as error:
        raise UsageError(f"{origin}: not the result of a search: {error}") from None
