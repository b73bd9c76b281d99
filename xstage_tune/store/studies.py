"""Studies and their trials: each trial is committed by itself, since resuming relies on it.

One process at a time holds a study and may add to it. A holder that died is known by its process number where
that can be looked up. Where it cannot (another host, another container), it is taken for dead after a long
silence, and should it live after all, its next trial is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from xstage_tune.base.errors import StoreError, UsageError
from xstage_tune.store.database import Database
from xstage_tune.store.models import Export, Study, StudyHolder, Trial
from xstage_tune.store.process import can_be_seen, current_process, has_ended
from xstage_tune.store.provenance import new_id, utc_now

#: Many times what one trial takes, with the compilation of its kernel, and what clocks of hosts are apart.
_SILENCE_OF_THE_DEAD = timedelta(minutes=5)

#: Names of studies, and of runs, in place of an id.
LATEST, LATEST_ANY = "latest", "latest-any"

_BEGUN_LAST = select(Study).order_by(Study.created_at.desc(), Study.id)
_FINISHED_LAST = select(Study).where(Study.status == "finished").order_by(Study.finished_at.desc(), Study.id)


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
        """Begin a study, held by this process, and return its id."""
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
        with self._left_if_interrupted(study.id), self._database.writing() as session:
            session.add(study)
            session.flush()
            session.add(_new_holder(study.id))
        return study.id

    def take(self, study_id: str, *, over: bool = False) -> None:
        """Hold a study that nobody holds, or whose holder died, and mark it running.

        Args:
            over: take it too from a process on another host, or in another container, that was heard of a
                short while ago; the user knows that it is gone.

        Raises:
            StoreError: another process holds it; says which, since when, and what to do. Or the database
                failed.
        """
        with self._left_if_interrupted(study_id), self._database.writing() as session:
            # Two that come at once: SQLite's write lock makes one wait, on PostgreSQL the study's row does.
            session.execute(select(Study.id).where(Study.id == study_id).with_for_update())
            holder = session.get(StudyHolder, study_id)
            if holder is not None:
                require_left(holder, over=over)
                session.delete(holder)
                session.flush()
            session.add(_new_holder(study_id))
            study = session.get_one(Study, study_id)
            study.status, study.finished_at = "running", None

    def end(self, study_id: str, status: str) -> None:
        """Mark a study finished, failed or interrupted, and hold it no longer.

        Nothing is changed where another process has taken it for abandoned, and holds it now.
        """

        def end(session: Session) -> None:
            holder = _held_here(session, study_id)
            if holder is None:
                return
            session.delete(holder)
            study = session.get_one(Study, study_id)
            study.status, study.finished_at = status, utc_now()

        self._database.write(end)

    @contextmanager
    def _left_if_interrupted(self, study_id: str) -> Iterator[None]:
        """A transaction that takes a study, behind which the user may already have stopped the program."""
        try:
            yield
        except KeyboardInterrupt:
            with suppress(StoreError):
                self.end(study_id, "interrupted")
            raise

    def get(self, study_id: str = LATEST_ANY) -> Study:
        """One study; ``latest`` is the last one finished, ``latest-any`` the last one begun.

        Raises:
            UsageError: there is no such study; the hint names others.
        """
        self._database.require_whole("study")
        with self._database.reading() as session:
            if study_id == LATEST:
                study = session.scalar(_FINISHED_LAST.limit(1))
            elif study_id == LATEST_ANY:
                study = session.scalar(_BEGUN_LAST.limit(1))
            else:
                study = session.get(Study, study_id)
        if study is None:
            raise self._none(study_id)
        return study

    def to_resume(self, study_id: str) -> Study:
        """The study to go on with.

        ``latest`` is the last one begun of those that are unfinished and that nobody searches; else of those
        that are unfinished; else the last one finished, which may be given more trials.

        Raises:
            UsageError: there is no such study; the hint names others.
        """
        if study_id != LATEST:
            return self.get(study_id)
        unfinished = _BEGUN_LAST.where(Study.status != "finished").add_columns(StudyHolder)
        self._database.require_whole("study", "study_holder")
        with self._database.reading() as session:
            query = unfinished.outerjoin(StudyHolder, StudyHolder.study_id == Study.id)
            found = [(study, holder is None or is_left(holder)) for study, holder in session.execute(query)]
        left = [study for study, is_left in found if is_left]
        return next(iter([*left, *(study for study, _ in found)]), None) or self.get(LATEST)

    def _none(self, study_id: str) -> UsageError:
        """What to say of a study that is not there; names those that may have been meant."""
        place = self._database.location
        with self._database.reading() as session:
            finished = session.scalar(_FINISHED_LAST.limit(1))
            begun = session.scalar(_BEGUN_LAST.limit(1))
        elsewhere = "--store PATH reads another store"
        if begun is None:
            return UsageError(
                f"store {place} has no study '{study_id}'", f"xstage-tune search begins one; {elsewhere}"
            )
        if study_id == LATEST:
            return UsageError(
                f"store {place} has no finished study; the latest begun is {begun.id}: {self.state(begun)}",
                f"{self.next_step(begun)}; --study {LATEST_ANY} --unfinished takes its best so far",
            )
        latest = f"the latest finished is {finished.id}" if finished else f"the latest begun is {begun.id}"
        return UsageError(f"store {place} has no study '{study_id}'", f"{latest}; {elsewhere}")

    def state(self, study: Study) -> str:
        """How far a study is, in words: its status, or that the process which searched it is dead."""
        if study.status != "running":
            return f"it is {study.status}"
        holder = self._holder(study)
        if holder is None or has_ended(holder.process):
            return "the process that searched it ended without finishing it"
        if _is_given_up(holder):
            return f"nothing was heard of process {holder.pid} on {holder.host} since {_last_seen(holder)}"
        return f"it is running, in process {holder.pid} on {holder.host}"

    def next_step(self, study: Study) -> str:
        """What to do about a study without a result: resume it, or wait where a process searches it."""
        holder = self._holder(study) if study.status == "running" else None
        if holder is None or is_left(holder):
            return f"xstage-tune search --resume {study.id} goes on with it"
        return "wait until it ends"

    def _holder(self, study: Study) -> StudyHolder | None:
        with self._database.reading() as session:
            return session.get(StudyHolder, study.id)

    def all(self) -> list[Study]:
        """All studies, newest first."""
        self._database.require_whole("study")
        with self._database.reading() as session:
            return list(session.scalars(select(Study).order_by(Study.created_at.desc(), Study.id)))

    def of_suite(self, suite: str) -> list[Study]:
        """The studies of a suite in the order of their beginning.

        Args:
            suite: its id; ``latest`` is the last one finished, ``latest-any`` the last one begun.

        Raises:
            UsageError: there is no such suite; the hint names others.
        """
        suites: dict[str, list[Study]] = {}  # the last begun first
        for study in self.all():
            suites.setdefault(suite_of(study), []).insert(0, study)
        suites.pop("", None)
        whole = [name for name, studies in suites.items() if _is_whole(studies)]
        latest, latest_any = next(iter(whole), ""), next(iter(suites), "")
        found = suites.get({LATEST: latest, LATEST_ANY: latest_any}.get(suite, suite))
        if not found:
            hint = f"the latest is {latest}" if latest else "xstage-tune search --suite searches one"
            if latest_any and not latest:
                begun = suites[latest_any]
                done = sum(study.status == "finished" for study in begun)
                hint = f"{LATEST_ANY} is {latest_any}, of which {done} searches are finished"
            raise UsageError(
                f"store {self._database.location} has no suite '{suite}'",
                f"{hint}; --store PATH reads another store",
            )
        return found

    def add_trial(
        self,
        study_id: str,
        *,
        number: int,
        state: str,
        params: dict[str, Any],
        objective_ns: float | None = None,
        bound_ns: float | None = None,
        latency_ns: float | None = None,
        reason: str = "",
        verification: dict[str, Any] | None = None,
        run_id: str | None = None,
        fault: str | None = None,
        measured: dict[str, Any] | None = None,
    ) -> None:
        """Keep one trial; ``state`` is complete, pruned, failed or cut.

        Raises:
            StoreError: this process does not hold the study, the number is taken, the run is unknown, or the
                database failed.
        """
        trial = Trial(
            study_id=study_id,
            run_id=run_id,
            number=number,
            state=state,
            params=params,
            objective_ns=objective_ns,
            bound_ns=bound_ns,
            latency_ns=latency_ns,
            reason=reason,
            verification=verification,
            fault=fault,
            measured=measured,
            created_at=utc_now(),
        )

        def add(session: Session) -> None:
            holder = _held_here(session, study_id)
            if holder is None:
                raise StoreError(
                    f"study {study_id} is not this process's any more: another has taken it up, or ended it",
                    "see how far that one comes before you resume it",
                )
            holder.seen_at = utc_now()
            session.add(trial)

        self._database.write(add)

    def trials(self, study_id: str) -> list[Trial]:
        """The trials of a study by number."""
        self._database.require_whole("trial")
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


def _new_holder(study_id: str) -> StudyHolder:
    now = utc_now()
    columns = StudyHolder.columns_of(current_process())
    return StudyHolder(study_id=study_id, since=now, seen_at=now, **columns)


def _held_here(session: Session, study_id: str) -> StudyHolder | None:
    """This process's row as the holder of a study, locked until the transaction ends; None if it is not."""
    holder = session.get(StudyHolder, study_id, with_for_update=True)
    return holder if holder and holder.process == current_process() else None


def is_left(holder: StudyHolder) -> bool:
    """Whether a study's holder is dead, or counts as dead."""
    return has_ended(holder.process) or _is_given_up(holder)


def require_left(holder: StudyHolder, *, over: bool = False) -> None:
    """Refuse to take a study from a process that may still search it.

    Args:
        over: the user vouches for the end of one that cannot be looked up.
    """
    visible = can_be_seen(holder.process)
    if is_left(holder) or (over and not visible):
        return
    hint = "wait until it ends, or stop it by Ctrl-C; a new search beside it leaves out --resume"
    if not visible:
        hint = (
            f"wait until it ends; if it died there, resume by --take-over, or after "
            f"{_to_the_second(_given_up_at(holder))}"
        )
    raise StoreError(
        f"study {holder.study_id} is being searched by process {holder.pid} on {holder.host} since "
        f"{_to_the_second(datetime.fromisoformat(holder.since))}, last seen {_last_seen(holder)}",
        hint,
    )


def suite_of(study: Study) -> str:
    """Id of the suite that a study was searched for; empty for none."""
    suite = study.space.get("suite") or {}
    return str(suite.get("id", ""))


def _is_whole(studies: list[Study]) -> bool:
    """Whether a suite was searched to its end; of older ones it is not known how many searches they have."""
    planned = studies[0].space["suite"].get("searches", len(studies))
    return len(studies) >= planned and all(study.status == "finished" for study in studies)


def _is_given_up(holder: StudyHolder) -> bool:
    """Whether a holder that cannot be looked up has been silent for so long that it counts as dead."""
    return not can_be_seen(holder.process) and datetime.now(UTC) > _given_up_at(holder)


def _given_up_at(holder: StudyHolder) -> datetime:
    return datetime.fromisoformat(holder.seen_at) + _SILENCE_OF_THE_DEAD


def _last_seen(holder: StudyHolder) -> str:
    return _to_the_second(datetime.fromisoformat(holder.seen_at))


def _to_the_second(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
