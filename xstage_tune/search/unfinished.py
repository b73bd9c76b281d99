"""The best so far of a search that has not ended: all that a lease which ran out has left."""

from __future__ import annotations

from xstage_tune.base.errors import UsageError
from xstage_tune.base.limits import Objective
from xstage_tune.families.binding import bind
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.search.answer import choose_answer
from xstage_tune.search.candidates import Candidates
from xstage_tune.search.cuts import describe_cuts
from xstage_tune.search.evaluation import grouped
from xstage_tune.search.journal import recorded, stored_result, studied_workload
from xstage_tune.search.ranking import rank_configs
from xstage_tune.search.result import Outcome, SearchResult
from xstage_tune.search.space import build_space
from xstage_tune.store.facade import Store
from xstage_tune.store.models import Study


def answer_of(
    store: Store, study: Study, platform: PlatformProfile, *, unfinished: bool = False
) -> SearchResult:
    """The result of a study.

    Args:
        platform: that it was searched on.
        unfinished: give the best so far of a study that has not ended, which says that it is no more.

    Raises:
        UsageError: the study has not ended and ``unfinished`` is not set, or nothing of it ran yet.
    """
    if study.status == "finished" or not unfinished:
        try:
            return stored_result(store, study.id)
        except UsageError as error:
            hint = f"{error.hint}; --unfinished takes its best so far"
            raise UsageError(error.message, hint) from None
    return _best_so_far(store, study, platform)


def _best_so_far(store: Store, study: Study, platform: PlatformProfile) -> SearchResult:
    """The answer of the trials that there are, by the rule of a finished search; nothing is run for it.

    The bound is of the configs that were not measured, in the space as this version makes it.
    """
    state = store.studies.state(study)
    measured, failed = recorded(study, store.studies.trials(study.id))
    if not measured:
        raise UsageError(
            f"study {study.id} has no best so far: {state}, and no config ran",
            store.studies.next_step(study),
        )
    workload = studied_workload(study)
    space = build_space(workload, platform)
    objective: Objective = study.objective  # type: ignore[assignment]  # a search wrote it
    ranking = rank_configs(space.configs, workload, platform, objective)
    candidates = Candidates(space, ranking)
    for config, known in measured.items():
        if config in space.index:
            candidates.record(space.index[config], known.objective_ns, known.latency_ns)
    for config, why in failed.items():
        if config in space.index:
            candidates.record_failure(space.index[config], why)
    outcomes = {
        config: Outcome(config, (known.objective_ns,), (known.latency_ns,))
        for config, known in measured.items()
    }
    default = outcomes.get(space.default) if space.default is not None else None
    heuristics = {name: outcomes[config] for name, config in space.heuristics.items() if config in outcomes}
    answer = choose_answer(default, tuple(heuristics.values()), tuple(outcomes.values()))
    below = candidates.below_bound()
    no_default = space.no_default
    if space.default is not None and default is None:
        no_default = f"the default ({space.default.label}) has not run"
    return SearchResult(
        study_id=study.id,
        workload=study.workload,
        platform=study.platform,
        device=study.device,
        objective=study.objective,
        sampler=study.sampler,
        seed=study.seed,
        best=answer.best,
        default=default,
        heuristics=heuristics,
        ties=answer.ties,
        bound_ns=min(candidates.remaining_bound_ns(), answer.best.objective_ns),
        evaluations=len(measured) + len(failed),
        failed=len(failed),
        cuts=describe_cuts(space, candidates),
        stopped=f"unfinished: {state}",
        assumed=bind(workload, platform).assumed(answer.best.config),
        no_default=no_default,
        failures=grouped(failed.items()),
        below_bound=len(below),
        least_part_of_bound=min(below, default=None),
        slower=len(candidates.too_slow()),
        unfinished=state,
    )
