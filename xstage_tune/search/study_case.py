"""A finished study: its profiles, its answer, and the configs worth showing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xstage_tune.families.config import KernelConfig
from xstage_tune.families.config_files import config_from_keys
from xstage_tune.families.workload import Workload
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.search.journal import studied_platform, studied_workload
from xstage_tune.search.result import SearchResult
from xstage_tune.search.unfinished import answer_of
from xstage_tune.store.facade import Store
from xstage_tune.store.models import Study

WINNER = "winner"
DEFAULT = "default"
#: Places of the answer, of the default, and of the heuristics and what else is shown, in order.
WINNER_PLACE, DEFAULT_PLACE = 0, 1
_OTHER_PLACES = (2, 3, 4, 5)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One config that ran, in the order of the search."""

    config: KernelConfig
    objective_ns: float


@dataclass(frozen=True, slots=True)
class Chosen:
    """A config under the name and the place that it has wherever the study is shown."""

    name: str
    place: int
    config: KernelConfig
    answer: bool

    @property
    def title(self) -> str:
        """Its name, and whether it is the answer though it is a baseline."""
        return f"{self.name}, the answer" if self.answer and self.name != WINNER else self.name

    @property
    def label(self) -> str:
        """Title and schedule, as legends call it."""
        schedule = self.config.schedule_label
        return f"{self.title}: {schedule}" if schedule not in ("", self.name) else self.title

    @property
    def hands_stores_over(self) -> bool:
        """Whether others store what the role that computes has staged."""
        return self.config.hands_stores_over

    @property
    def paces_stores(self) -> bool:
        """Whether those spread a tile's stores over the next mainloop."""
        return self.config.paces_stores


@dataclass(frozen=True, slots=True)
class StudyCase:
    """A finished study.

    Args:
        created_at: when it began, ISO 8601 in UTC.
        evaluations: in the order in which they ran.
    """

    workload: Workload
    platform: PlatformProfile
    result: SearchResult
    created_at: str
    evaluations: tuple[Evaluation, ...]

    @property
    def answer(self) -> Chosen:
        return next(one for one in self.chosen() if one.answer)

    def chosen(self) -> tuple[Chosen, ...]:
        """The default, the heuristics, the best that is no wave where the answer is one, and the answer.

        Each config once: an answer that is a baseline keeps that name.
        """
        best = self.result.best.config
        default = self.result.default
        names = {} if default is None else {default.config: DEFAULT}
        for name, outcome in self.result.heuristics.items():
            names.setdefault(outcome.config, name)
        if best.is_wave and (other := self._best_without_waves()):
            names.setdefault(other, "best without waves")
        names.setdefault(best, WINNER)
        spare = iter(_OTHER_PLACES)
        own = {DEFAULT: DEFAULT_PLACE, WINNER: WINNER_PLACE}
        return tuple(
            Chosen(name, own[name] if name in own else next(spare), config, config == best)
            for config, name in names.items()
        )

    def contrast(self) -> tuple[Chosen, Chosen] | None:
        """Two configs to show side by side, the answer among them; None for attention that keeps the default.

        Of MoE a wave and the best of the other schedules, of attention the default and the answer.
        """
        chosen, answer = self.chosen(), self.answer
        if answer.config.is_wave:
            others = [one for one in chosen if not one.config.is_wave]
            return answer, min(others, key=lambda one: self.objective_ns(one.config))
        return (chosen[0], answer) if chosen[0] != answer else None

    def objective_ns(self, config: KernelConfig) -> float:
        """As measured at the end where it was, else as evaluated."""
        for outcome in self.result.named:
            if outcome.config == config:
                return outcome.objective_ns
        return next(one.objective_ns for one in self.evaluations if one.config == config)

    def _best_without_waves(self) -> KernelConfig | None:
        others = [one for one in self.evaluations if not one.config.is_wave]
        return min(others, key=lambda one: one.objective_ns).config if others else None


def load_study(
    store: Store, study_id: str, platform: str | None = None, *, unfinished: bool = False
) -> StudyCase:
    """A study from the store.

    Args:
        study_id: or ``latest``, ``latest-any``.
        platform: a profile in place of the one kept with the study.
        unfinished: take the best so far of a study that has not ended.

    Raises:
        UsageError: no such study, it has no result, or the profile is not found or not the one searched on.
        StoreError: the database failed.
    """
    study = store.studies.get(study_id)
    profile = studied_platform(study, platform)
    result = answer_of(store, study, profile, unfinished=unfinished)
    return StudyCase(
        workload=studied_workload(study),
        platform=profile,
        result=result,
        created_at=study.created_at,
        evaluations=tuple(_evaluations(store, study)),
    )


def _evaluations(store: Store, study: Study) -> Iterator[Evaluation]:
    for trial in store.studies.trials(study.id):
        # The answer is kept a second time, with the result as its verification.
        if trial.state == "complete" and trial.objective_ns is not None and not trial.verification:
            config = config_from_keys(trial.params, f"study {study.id}, trial {trial.number}")
            yield Evaluation(config, trial.objective_ns)
