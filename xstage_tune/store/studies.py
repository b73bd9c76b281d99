"""Studies and their trials: each trial is committed by itself, since resuming relies on it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, update

from xstage_tune.errors import StoreError, UsageError
from xstage_tune.store.database import Database
from xstage_tune.store.models import Export, Study, Trial
from xstage_tune.store.provenance import new_id, utc_now


class Studies:
    """The searches of one store. Every method raises ``StoreError`` when the database fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        *,
        workload: str,
        workload_sha256: str,
        platform: str,
        platform_sha256: str,
        space: dict[str, Any],
        device: str,
        objective: str,
        sampler: str,
        seed: int,
    ) -> str:
        """Begin a study and return its id."""
        study = Study(
            id=new_id("study"),
            status="running",
            created_at=utc_now(),
            workload=workload,
            workload_sha256=workload_sha256,
            platform=platform,
            platform_sha256=platform_sha256,
            space=space,
            device=device,
            objective=objective,
            sampler=sampler,
            seed=seed,
        )
        with self._database.writing() as session:
            session.add(study)
        return study.id

    def set_status(self, study_id: str, status: str) -> None:
        """Mark a study finished, failed or interrupted; or running again, when it is resumed."""
        finished_at = None if status == "running" else utc_now()
        with self._database.writing() as session:
            session.execute(
                update(Study).where(Study.id == study_id).values(status=status, finished_at=finished_at)
            )

    def get(self, study_id: str = "latest") -> Study:
        """One study; ``latest`` is the last one begun.

        Raises:
            UsageError: there is no such study.
        """
        query = select(Study).order_by(Study.created_at.desc(), Study.id).limit(1)
        if study_id != "latest":
            query = query.where(Study.id == study_id)
        with self._database.reading() as session:
            study = session.scalar(query)
        if study is None:
            raise UsageError(f"store {self._database.location} has no study '{study_id}'", "--store PATH")
        return study

    def all(self) -> list[Study]:
        """All studies, newest first."""
        with self._database.reading() as session:
            return list(session.scalars(select(Study).order_by(Study.created_at.desc(), Study.id)))

    def add_trial(
        self,
        study_id: str,
        *,
        number: int,
        state: str,
        params: dict[str, Any],
        objective_ns: float | None = None,
        bound_ns: float | None = None,
        reason: str = "",
        verification: dict[str, Any] | None = None,
        run_id: str | None = None,
    ) -> None:
        """Keep one trial; ``state`` is complete, pruned, failed or cut.

        Raises:
            StoreError: the number is taken, the study or run is unknown, or the database failed.
        """
        trial = Trial(
            study_id=study_id,
            run_id=run_id,
            number=number,
            state=state,
            params=params,
            objective_ns=objective_ns,
            bound_ns=bound_ns,
            reason=reason,
            verification=verification,
            created_at=utc_now(),
        )
        taken = select(Trial.id).where(Trial.study_id == study_id, Trial.number == number)
        with self._database.writing() as session:
            if session.scalar(taken) is not None:
                raise StoreError(
                    f"study {study_id} has a trial {number} already: another process goes on with it",
                    "wait for that one to end, or begin a new study",
                )
            session.add(trial)

    def trials(self, study_id: str) -> list[Trial]:
        """The trials of a study by number."""
        with self._database.reading() as session:
            query = select(Trial).where(Trial.study_id == study_id).order_by(Trial.number)
            return list(session.scalars(query))

    def add_export(self, study_id: str, *, format: str, path: str, sha256: str) -> None:
        """Record a file that a study's winner was written to."""
        export = Export(study_id=study_id, format=format, path=path, sha256=sha256, created_at=utc_now())
        with self._database.writing() as session:
            session.add(export)

    def exports(self, study_id: str) -> list[Export]:
        """The files that a study's winner was written to, oldest first."""
        with self._database.reading() as session:
            query = select(Export).where(Export.study_id == study_id).order_by(Export.id)
            return list(session.scalars(query))
