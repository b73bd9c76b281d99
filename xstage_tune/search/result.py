"""What a search found, under the names of its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from xstage_tune.configs.loader import config_from_keys, config_keys
from xstage_tune.configs.schema import KernelConfig
from xstage_tune.errors import UsageError


@dataclass(frozen=True, slots=True)
class Outcome:
    """A config as measured at the end, all candidates with the same number of repeats.

    Args:
        config: what ran.
        samples_ns: its repeats.
    """

    config: KernelConfig
    samples_ns: tuple[float, ...]

    @property
    def objective_ns(self) -> float:
        return median(self.samples_ns)

    def surely_better_than(self, other: Outcome) -> bool:
        """Whether even the worst repeat is better than the other's best one."""
        return max(self.samples_ns) < min(other.samples_ns)

    def keys(self) -> dict[str, Any]:
        return {
            "config": config_keys(self.config),
            "objective_ns": self.objective_ns,
            "samples_ns": list(self.samples_ns),
        }


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
        best: the answer: the default where nothing surely beats it.
        default: the baseline, always evaluated.
        heuristics: today's choices by name, always evaluated.
        ties: configs that the repeats cannot tell from ``best``.
        bound_ns: no config that was not evaluated is below it; at most the best one's objective.
        evaluations: distinct configs that ran.
        failed: of them, those that the device could not run.
        cuts: what was not evaluated, and why.
        stopped: why the search ended.
        assumed: what the answer's time rests on that nobody measured; None for nothing.
    """

    study_id: str
    workload: str
    platform: str
    device: str
    objective: str
    sampler: str
    seed: int
    best: Outcome
    default: Outcome
    heuristics: Mapping[str, Outcome]
    ties: tuple[Outcome, ...]
    bound_ns: float
    evaluations: int
    failed: int
    cuts: tuple[Cut, ...]
    stopped: str
    assumed: str | None = None

    @property
    def beats_default(self) -> bool:
        return self.best.surely_better_than(self.default)

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
            "default": self.default.keys(),
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
        }


def result_from_keys(keys: Mapping[str, Any], origin: str) -> SearchResult:
    """Keys of :meth:`SearchResult.keys` as a result.

    Raises:
        UsageError: a key is missing, or a config breaks the schema.
    """

    def outcome(data: Mapping[str, Any]) -> Outcome:
        return Outcome(config_from_keys(data["config"], origin), tuple(data["samples_ns"]))

    plain = ("study_id", "workload", "platform", "device", "objective", "sampler", "seed", "bound_ns",
             "evaluations", "failed", "stopped")  # fmt: skip
    try:
        return SearchResult(
            **{name: keys[name] for name in plain},
            best=outcome(keys["best"]),
            default=outcome(keys["default"]),
            heuristics={name: outcome(data) for name, data in keys["heuristics"].items()},
            ties=tuple(outcome(data) for data in keys["ties"]),
            cuts=tuple(Cut(**cut) for cut in keys["cut_details"]),
            assumed=keys.get("assumed"),  # studies of earlier versions do not say
        )
    except (KeyError, TypeError) as error:
        raise UsageError(f"{origin}: not the result of a search: {error}") from None
