"""The paper's 84 MegaMoE configurations: interleaved, tuned and today's heuristics against expert waves.

Seven models, w4a8 and w8a8, balanced and skewed routing, three sizes (Figure 8). The paper publishes neither
its sizes nor its skew, nor its DiT-MoE: here the sizes are half, once and twice those of Table 2, the skew is
Zipf's law with exponent 1, and a public DiT-MoE stands in. Nothing is tuned to meet the published ratios.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import geometric_mean, median
from typing import Any, cast

from xstage_tune.base.errors import RunInterrupted
from xstage_tune.base.progress import NoProgress, Progress
from xstage_tune.families.kernel_launch import KernelLaunch
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.family import FAMILY
from xstage_tune.families.megamoe.paper import PAPER_MOE_MODELS, PAPER_TOKENS_PER_RANK
from xstage_tune.families.megamoe.workload import MoeWorkload, Precision, Routing
from xstage_tune.families.workload_files import load_workload
from xstage_tune.launches.device import Device
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.search.driver import run_search
from xstage_tune.search.evaluation import Evaluation, evaluate
from xstage_tune.search.journal import begin_study
from xstage_tune.search.request import SearchOptions, SearchRequest
from xstage_tune.search.result import Outcome, SearchResult
from xstage_tune.search.space import build_space
from xstage_tune.store.facade import Store
from xstage_tune.store.provenance import new_id

_PRECISIONS: tuple[Precision, ...] = ("w4a8", "w8a8")
_ROUTINGS = {"balanced": Routing(), "skewed": Routing(kind="zipf", alpha=1.0, seed=0)}
_TOKENS_PER_RANK = (PAPER_TOKENS_PER_RANK // 2, PAPER_TOKENS_PER_RANK, 2 * PAPER_TOKENS_PER_RANK)
PAPER_84 = "paper-84"
_REPEATS = 5
#: Evaluations of each search, unless said otherwise: enough for the ranking's best, in three minutes for all.
DEFAULT_TRIALS = 24


@dataclass(frozen=True, slots=True)
class Ratios:
    """Of speedups; None where there are none."""

    geomean: float | None = None
    median: float | None = None
    max: float | None = None
    min: float | None = None

    @classmethod
    def of(cls, speedups: Sequence[float | None]) -> Ratios:
        """Of those that are known."""
        values = [speedup for speedup in speedups if speedup is not None]
        if not values:
            return cls()
        return cls(geometric_mean(values), median(values), max(values), min(values))


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """One configuration; times are medians, None of what failed. ``study_id`` is its search, in the store."""

    study_id: str
    model: str
    workload: str
    precision: str
    routing: str
    tokens_per_rank: int
    wave_ns: float | None
    interleaved_ns: float | None
    heuristics_ns: float | None  # the faster of today's two
    tuned_ns: float
    bound_ns: float
    tuned: str
    evaluations: int
    wave_local_ns: float | None  # with nothing stored remotely: a path that costs nothing
    interleaved_local_ns: float | None

    @property
    def interleaved_over_wave(self) -> float | None:
        return _speedup(self.wave_ns, self.interleaved_ns)

    @property
    def interleaved_over_wave_local(self) -> float | None:
        """What the order of the tiles gains by itself, without any remote stores."""
        return _speedup(self.wave_local_ns, self.interleaved_local_ns)

    @property
    def tuned_over_wave(self) -> float | None:
        return _speedup(self.wave_ns, self.tuned_ns)

    @property
    def tuned_over_heuristics(self) -> float | None:
        return _speedup(self.heuristics_ns, self.tuned_ns)

    def keys(self) -> dict[str, Any]:
        ratios = (
            "interleaved_over_wave",
            "interleaved_over_wave_local",
            "tuned_over_wave",
            "tuned_over_heuristics",
        )
        return {f.name: getattr(self, f.name) for f in fields(self)} | {
            name: getattr(self, name) for name in ratios
        }


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """All rows of a suite on one platform and device; ``suite_id`` names it in the store."""

    suite: str
    suite_id: str
    platform: str
    device: str
    rows: tuple[SuiteRow, ...]

    @property
    def evaluations(self) -> int:
        return sum(row.evaluations for row in self.rows)

    @property
    def interleaved_over_wave(self) -> Ratios:
        return Ratios.of([row.interleaved_over_wave for row in self.rows])

    @property
    def interleaved_over_wave_local(self) -> Ratios:
        return Ratios.of([row.interleaved_over_wave_local for row in self.rows])

    @property
    def tuned_over_wave(self) -> Ratios:
        return Ratios.of([row.tuned_over_wave for row in self.rows])

    @property
    def tuned_over_heuristics(self) -> Ratios:
        return Ratios.of([row.tuned_over_heuristics for row in self.rows])

    def keys(self) -> dict[str, Any]:
        """As plain keys for JSON."""
        return {
            "suite": self.suite,
            "suite_id": self.suite_id,
            "platform": self.platform,
            "device": self.device,
            "rows": [row.keys() for row in self.rows],
            "summary": {
                "interleaved_over_wave": asdict(self.interleaved_over_wave),
                "interleaved_over_wave_local": asdict(self.interleaved_over_wave_local),
                "tuned_over_wave": asdict(self.tuned_over_wave),
                "tuned_over_heuristics": asdict(self.tuned_over_heuristics),
            },
        }


def _speedup(slower_ns: float | None, faster_ns: float | None) -> float | None:
    return None if slower_ns is None or faster_ns is None else slower_ns / faster_ns


def paper_84_workloads() -> Iterator[tuple[str, str, MoeWorkload]]:
    """Model, routing and workload of each of the 84 configurations."""
    for model, name in PAPER_MOE_MODELS.items():
        layer = cast(MoeWorkload, load_workload(name))
        for precision, (routing, law), tokens in itertools.product(
            _PRECISIONS, _ROUTINGS.items(), _TOKENS_PER_RANK
        ):
            changes = {"precision": precision, "routing": law, "tokens_per_rank": tokens}
            yield model, routing, layer.model_copy(update=changes)


def run_paper_84(
    platform: PlatformProfile, device: Device, options: SearchOptions, store: Store, progress: Progress
) -> SuiteResult:
    """Search every configuration, each as a study of the store.

    Args:
        options: of each search; ``trials`` are :data:`DEFAULT_TRIALS` where none are named.

    Raises:
        UsageError: the platform lacks compute figures, T0 or Q.
        RunInterrupted: the user stopped it; the studies are kept.
    """
    cases = list(paper_84_workloads())
    asked = vars(options) | {"trials": options.trials or DEFAULT_TRIALS}
    suite_id = new_id("suite")
    suite = {"name": PAPER_84, "id": suite_id, "searches": len(cases)}
    progress.planned(len(cases))
    rows: list[SuiteRow] = []
    studies: list[str] = []
    try:
        for model, routing, workload in cases:
            request = SearchRequest(workload=workload, platform=platform, **asked)
            space = build_space(workload, platform)
            journal = begin_study(store, request, space, device.identity, suite)
            studies.append(journal.study_id)
            result = run_search(request, space, device, journal, NoProgress())
            rows.append(_row(model, routing, workload, platform, device, result))
            progress.advance(f"{model}, {workload.precision}, {routing}, {workload.tokens_per_rank} tokens")
    except (KeyboardInterrupt, RunInterrupted):
        raise suite_interrupted(suite_id, studies, len(cases), store) from None
    return SuiteResult(PAPER_84, suite_id, platform.name, device.identity, tuple(rows))


def suite_interrupted(suite_id: str, studies: Sequence[str], planned: int, store: Store) -> RunInterrupted:
    """What to say of a suite that was stopped: which of its searches are kept."""
    finished = sum(store.studies.get(study_id).status == "finished" for study_id in studies)
    message = (
        f"suite interrupted: {finished} of {planned} searches are finished and kept in store {store.location}"
    )
    if finished < len(studies):
        hint = f"xstage-tune search --resume {studies[-1]} goes on with the one begun; the suite begins anew"
    else:
        hint = f"the suite begins anew; xstage-tune export --suite {suite_id} -o FOLDER takes the results"
    return RunInterrupted(message, hint)


def _row(
    model: str,
    routing: str,
    workload: MoeWorkload,
    platform: PlatformProfile,
    device: Device,
    result: SearchResult,
) -> SuiteRow:
    family = FAMILY.bind(workload, platform)
    wave, config = family.default(), family.with_schedule("interleaved")
    local = workload.model_copy(update={"remote_fraction": 0.0})

    def run(layer: MoeWorkload, of: MegaMoeConfig) -> Outcome | None:
        """Of a config; None of one that fails."""
        found = evaluate(device, KernelLaunch(layer, of, platform.path, _REPEATS))
        if not isinstance(found, Evaluation):
            return None
        return Outcome(of, found.run.latency_ns, found.run.latency_ns)

    interleaved = run(workload, config)
    wave_local, interleaved_local = run(local, wave), run(local, config)
    # A search of few trials may not have come to what the suite compares it with.
    evaluated = (*result.named, *(() if interleaved is None else (interleaved,)))
    tuned = min(evaluated, key=lambda outcome: outcome.objective_ns)
    heuristics_ns = (outcome.objective_ns for outcome in result.heuristics.values())
    return SuiteRow(
        study_id=result.study_id,
        model=model,
        workload=workload.name,
        precision=workload.precision,
        routing=routing,
        tokens_per_rank=workload.tokens_per_rank,
        wave_ns=result.default.objective_ns if result.default else None,
        interleaved_ns=interleaved.objective_ns if interleaved else None,
        heuristics_ns=min(heuristics_ns, default=None),
        tuned_ns=tuned.objective_ns,
        bound_ns=min(result.bound_ns, tuned.objective_ns),
        tuned=tuned.config.label,
        evaluations=result.evaluations,
        wave_local_ns=wave_local.objective_ns if wave_local else None,
        interleaved_local_ns=interleaved_local.objective_ns if interleaved_local else None,
    )
