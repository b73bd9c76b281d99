"""What a store keeps, one entry a run or study, and all that is known of one of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Text, and_, cast, func, select
from sqlalchemy.orm import Session

from xstage_tune.base.errors import UsageError
from xstage_tune.families.kernel_launch import OTHER_GPU
from xstage_tune.store.database import Database
from xstage_tune.store.models import Chunk, Export, Fit, Launch, Run, Study, StudyHolder, Trial
from xstage_tune.store.process import has_ended
from xstage_tune.store.studies import LATEST, LATEST_ANY, is_left, suite_of

State = Literal["running", "finished", "failed", "interrupted", "stale"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A run or a study.

    Args:
        kind: ``study``, or of a run the command that made it.
        state: ``stale`` is of a process that died.
        workload, platform: names; empty where none was asked for.
        device: GPU, or what stood in for it.
        best_ns: of a study, the answer's objective, or the least so far; None of a run.
        objective: of a study, what ``best_ns`` is of; empty of a run.
        trials: configs that ran or failed, of a study; launches of a run.
        size_bytes: of its spans, or of its trials.
        suite: id of the suite that a study is part of; empty for none.
    """

    kind: str
    id: str
    begun_at: str
    finished_at: str | None
    state: State
    workload: str
    platform: str
    device: str
    best_ns: float | None
    trials: int
    size_bytes: int
    suite: str = ""
    objective: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries are asked for; None and empty ask for all.

    Args:
        workload, platform: part of the name.
        suite: id of a suite.
    """

    kind: str | None = None
    state: str | None = None
    workload: str = ""
    platform: str = ""
    suite: str | None = None

    def fits(self, entry: Entry) -> bool:
        """Whether an entry is asked for."""
        return (
            self.kind in (None, entry.kind, "run" if entry.kind != "study" else "study")
            and self.state in (None, entry.state)
            and self.workload in entry.workload
            and self.platform in entry.platform
            and self.suite in (None, entry.suite)
        )


@dataclass(frozen=True, slots=True)
class Details:
    """All of one entry, as names and values in the order to read them; ``parts`` counts what it holds."""

    entry: Entry
    about: dict[str, Any]
    parts: dict[str, int]
    exports: tuple[dict[str, str], ...] = ()


def entries(database: Database, wanted: Wanted) -> list[Entry]:
    """Runs and studies, newest first.

    Raises:
        StoreError: the database failed.
    """
    database.require_whole("run", "study", "study_holder", "trial")
    with database.reading() as session:
        found = [*_studies(session), *_runs(session)]
    return sorted(filter(wanted.fits, found), key=lambda entry: (entry.begun_at, entry.id), reverse=True)


def details(database: Database, entry_id: str) -> Details:
    """One run or study; ``latest`` is the last one finished of either, ``latest-any`` the last one begun.

    Raises:
        UsageError: there is none of that id.
        StoreError: the database failed.
    """
    if entry_id in (LATEST, LATEST_ANY):
        entry_id = _named(database, entry_id)
    database.require_whole("run", "study", "study_holder", "trial")
    with database.reading() as session:
        if (study := session.get(Study, entry_id)) is not None:
            return _study_details(session, study)
        if (run := session.get(Run, entry_id)) is not None:
            return _run_details(session, run)
    raise no_entry(database, entry_id)


def _named(database: Database, name: str) -> str:
    """Id of the latest run or study; the name itself where there is none."""
    begun = entries(database, Wanted())
    finished = sorted(
        (entry for entry in begun if entry.state == "finished"),
        key=lambda entry: entry.finished_at or "",
        reverse=True,
    )
    return next((entry.id for entry in (finished if name == LATEST else begun)), name)


def no_entry(database: Database, entry_id: str) -> UsageError:
    """What to say of an id that is neither a run's nor a study's."""
    return UsageError(
        f"store {database.location} has no run or study '{entry_id}'", "xstage-tune store list has the ids"
    )


def _studies(session: Session, only: str | None = None) -> list[Entry]:
    answers = Trial.verification.is_not(None)
    ran = and_(Trial.state.in_(("complete", "failed")), Trial.verification.is_(None))
    told = func.length(cast(Trial.params, Text)) + func.length(Trial.reason)
    counted = (
        select(
            Trial.study_id,
            func.count().filter(ran).label("ran"),
            func.min(Trial.objective_ns).filter(Trial.state == "complete").label("least_ns"),
            func.min(Trial.objective_ns).filter(answers).label("answer_ns"),
            func.sum(told + func.coalesce(func.length(cast(Trial.verification, Text)), 0)).label("size"),
        )
        .group_by(Trial.study_id)
        .subquery()
    )
    query = (
        select(Study, StudyHolder, counted)
        .outerjoin(StudyHolder, StudyHolder.study_id == Study.id)
        .outerjoin(counted, counted.c.study_id == Study.id)
    )
    if only is not None:
        query = query.where(Study.id == only)
    return [
        Entry(
            kind="study",
            id=study.id,
            begun_at=study.created_at,
            finished_at=study.finished_at,
            state=_study_state(study, holder),
            workload=study.workload,
            platform=study.platform,
            device=study.device,
            best_ns=least_ns if answer_ns is None else answer_ns,
            trials=ran or 0,
            size_bytes=int(size or 0),
            suite=suite_of(study),
            objective=study.objective,
        )
        for study, holder, _, ran, least_ns, answer_ns, size in session.execute(query)
    ]


def _study_state(study: Study, holder: StudyHolder | None) -> State:
    if study.status == "running" and (holder is None or is_left(holder)):
        return "stale"
    state: State = study.status  # type: ignore[assignment]  # the column is checked
    return state


def _runs(session: Session, only: str | None = None) -> list[Entry]:
    kept = (
        select(Launch.run_id, func.count(Launch.id.distinct()), func.sum(func.length(Chunk.blob)))
        .outerjoin(Chunk, Chunk.launch_id == Launch.id)
        .group_by(Launch.run_id)
    )
    query = select(Run)
    if only is not None:
        kept, query = kept.where(Launch.run_id == only), query.where(Run.id == only)
    sizes = {run_id: (launches, size) for run_id, launches, size in session.execute(kept)}
    found = []
    for run in session.scalars(query):
        launches, size = sizes.get(run.id, (0, 0))
        other_gpu = run.parameters.get("other_gpu")
        state: State = run.status  # type: ignore[assignment]  # the column is checked
        found.append(
            Entry(
                kind=run.kind,
                id=run.id,
                begun_at=run.started_at,
                finished_at=run.finished_at,
                state="stale" if state == "running" and has_ended(run.process) else state,
                workload=_name_in(run.parameters, "workload"),
                platform=_name_in(run.parameters, "platform"),
                device=run.environment.gpu_name + (f"{OTHER_GPU}{other_gpu}" if other_gpu else ""),
                best_ns=None,
                trials=launches,
                size_bytes=int(size or 0),
            )
        )
    return found


def _name_in(parameters: dict[str, Any], key: str) -> str:
    """Name of the profile that a run was asked to take."""
    profile = parameters.get(key)
    return str(profile.get("name", "")) if isinstance(profile, dict) else ""


def _study_details(session: Session, study: Study) -> Details:
    (entry,) = _studies(session, study.id)
    states = session.execute(
        select(Trial.state, func.count())
        .where(Trial.study_id == study.id, Trial.verification.is_(None))
        .group_by(Trial.state)
    )
    exports = session.scalars(select(Export).where(Export.study_id == study.id).order_by(Export.id))
    about = {
        "objective": study.objective,
        "sampler": study.sampler,
        "seed": study.seed,
        "trials asked for": study.space.get("trials"),
        "tolerance": study.space.get("tolerance"),
        "configs in the space": study.space.get("configs"),
        "workload sha256": study.workload_sha256,
        "platform sha256": study.platform_sha256,
    }
    parts = Counter({f"{state} trials": count for state, count in states})
    return Details(
        entry,
        {name: value for name, value in about.items() if value is not None},
        dict(sorted(parts.items())),
        tuple({"format": e.format, "path": e.path, "created_at": e.created_at} for e in exports),
    )


def _run_details(session: Session, run: Run) -> Details:
    (entry,) = _runs(session, run.id)
    spans = select(func.sum(Chunk.n)).join(Launch).where(Launch.run_id == run.id, Chunk.kind == "spans")
    fits = select(func.count()).select_from(Fit).where(Fit.run_id == run.id)
    trials = select(func.count()).select_from(Trial).where(Trial.run_id == run.id)
    about = {
        "command": " ".join(run.argv),
        "error": run.error,
        "path": run.path,
        "seed": run.seed,
        "process": f"{run.pid} on {run.host}",
        "system": run.environment.system,
        "driver": run.environment.driver,
        "tool": f"xstage-tune {run.tool_version}",
        "git": run.git_state,
        "kernel sha256": run.kernel_sha256,
        "platform sha256": run.profile_sha256,
    }
    parts = {
        "launches": entry.trials,
        "spans": int(session.scalar(spans) or 0),
        "fits": session.scalar(fits) or 0,
        "trials of studies": session.scalar(trials) or 0,
    }
    return Details(entry, {name: value for name, value in about.items() if value not in (None, "")}, parts)
