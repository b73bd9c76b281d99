"""The life of a run in the store: begun, written launch by launch, ended, or found dead."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from xstage_tune.base.errors import StoreError, XStageError
from xstage_tune.base.interrupts import asked_to_stop, held_back, stopped_by
from xstage_tune.base.provenance import git_state
from xstage_tune.base.redaction import redacted, redacted_arguments
from xstage_tune.base.version import __version__
from xstage_tune.launches.device import DeviceDescription, Outcome
from xstage_tune.store.checksums import DamagedRowError
from xstage_tune.store.database import Database
from xstage_tune.store.launches import CHUNKS, LAUNCHES, chunk_values, launch_values
from xstage_tune.store.models import Environment, Fit, Launch, Run
from xstage_tune.store.process import current_process, has_ended
from xstage_tune.store.provenance import environment_values, new_id, utc_now

#: Launches that can be made again are committed together: so many, or what a second brought.
_BATCH_LAUNCHES = 64
_BATCH_S = 1.0


@dataclass(frozen=True, slots=True)
class _NewLaunch:
    """One rank of a launch, encoded: the columns of its row and of its chunks."""

    values: dict[str, Any]
    chunks: list[dict[str, Any]]


class RunWriter:
    """Writes the rows of one run; what a GPU measured is committed, and on the disk, when the call returns.

    Args:
        batched: launches can be made again, as a simulation's, and come by the hundred a second: they are
            committed when 64 are there or a second has passed since the last commit, and at the run's end.
    """

    def __init__(self, database: Database, run_id: str, *, batched: bool = False) -> None:
        self._database = database
        self.id = run_id
        #: Launches handed in so far.
        self.launches = 0
        self._batched = batched
        self._pending: list[_NewLaunch] = []
        self._committed_s = time.monotonic()
        self._row_ids: dict[int, int] = {}  # of what is committed, by sequence

    def add_launch(self, sequence: int, outcome: Outcome[Any, Any], rank: int = 0) -> None:
        """Keep one launch, its figures and its spans.

        Further ranks of a launch add their spans to the first one's row.

        Raises:
            StoreError: this rank of the launch is there already, ``sequence`` is another point's,
                or the database failed.
        """
        new = _NewLaunch(launch_values(self.id, sequence, outcome), chunk_values(outcome.table, rank))
        if rank or sequence in self._row_ids:  # against a row that must be there
            self.flush()
        with held_back():  # what is counted is what is kept
            self._pending.append(new)
            late = time.monotonic() - self._committed_s >= _BATCH_S
            if not self._batched or late or len(self._pending) >= _BATCH_LAUNCHES:
                self._commit()
            self.launches = len(self._row_ids) + len(self._pending)

    def add_fit(self, kind: str, payload: dict[str, Any]) -> None:
        """Keep what was concluded from the run.

        Raises:
            StoreError: the payload is not JSON, or the database failed.
        """
        self.flush()
        values = {"run_id": self.id, "kind": kind, "created_at": utc_now(), "payload": payload}
        self._database.write(lambda session: session.add(Fit(**values)))

    def flush(self) -> None:
        """Commit the launches that wait for more.

        Raises:
            StoreError: the database failed.
        """
        with held_back():
            if self._pending:
                self._commit()

    def _commit(self) -> None:
        pending, self._pending = self._pending, []

        def add(session: Session) -> dict[int, int]:
            row_ids = {new.values["sequence"]: self._launch_id(session, new.values) for new in pending}
            chunks = [
                {"launch_id": row_ids[new.values["sequence"]], **chunk}
                for new in pending
                for chunk in new.chunks
            ]
            session.connection().execute(insert(CHUNKS), chunks)
            return row_ids

        self._row_ids |= self._database.write(add)
        self._committed_s = time.monotonic()

    def _launch_id(self, session: Session, values: dict[str, Any]) -> int:
        """Id of the row of a launch, added where it is new; past the mapper, which costs far more."""
        row_id = self._row_ids.get(values["sequence"])
        if row_id is None:
            added = session.connection().execute(insert(LAUNCHES).returning(LAUNCHES.c.id), values)
            row_id = int(added.scalar_one())
        elif session.get_one(Launch, row_id).point != values["point"]:
            raise StoreError(f"run {self.id}: launch {values['sequence']} was of another point")
        return row_id


@contextmanager
def writing_run(
    database: Database,
    *,
    kind: str,
    argv: Sequence[str],
    device: DeviceDescription,
    seed: int | None,
    parameters: dict[str, Any],
    path: str,
    kernel_sha256: str,
    profile_sha256: str,
) -> Iterator[RunWriter]:
    """Begin a run and end it with the block's outcome; rows written before a failure stay."""
    process = current_process()
    run = Run(
        id=new_id(kind),
        kind=kind,
        status="running",
        started_at=utc_now(),
        argv=list(redacted_arguments(argv)),
        tool_version=__version__,
        git_state=git_state(),
        seed=seed,
        parameters=parameters,
        path=path,
        kernel_sha256=kernel_sha256,
        profile_sha256=profile_sha256,
        **Run.columns_of(process),
    )
    writer = RunWriter(database, run.id, batched=device.kind != "cuda")
    begun = False
    try:
        with held_back():  # a stop comes behind the row, which is then to be closed
            with database.writing() as session:
                run.environment_id = _environment_id(session, environment_values(device, process.host))
                session.add(run)
            begun = True
        yield writer
        with held_back():  # a stop from here on comes behind a run that is whole
            writer.flush()
            _end(database, run.id, "finished", None)
    except BaseException as error:  # even an exit must not leave the run open
        if begun:
            _close_after(writer, database, error)
        raise


def _close_after(writer: RunWriter, database: Database, error: BaseException) -> None:
    """Keep what was measured and end the run, whatever fails; the first failure is the one to report."""
    with held_back():
        with suppress(StoreError):
            writer.flush()
        with suppress(StoreError):
            _end(database, writer.id, *_outcome(error))


def mark_stale_runs(database: Database) -> None:
    """Close the runs whose process died without doing so.

    Raises:
        StoreError: the database failed.
    """
    with database.reading() as session:
        running = session.scalars(select(Run.id).where(Run.status == "running")).all()
    for run_id in running:
        run = _undamaged(database, run_id)
        if run is not None and has_ended(run.process):
            why = f"process {run.pid} on {run.host} ended without closing the run"
            _end(database, run.id, "stale", why)


def _undamaged(database: Database, run_id: str) -> Run | None:
    """A run; None where its row is damaged, which is for those to say who ask for it."""
    try:
        with database.reading() as session:
            return session.get(Run, run_id)
    except StoreError as error:
        if isinstance(error.__cause__, DamagedRowError):
            return None
        raise


def _end(database: Database, run_id: str, status: str, error: str | None) -> None:
    finished_at = None if status == "stale" else utc_now()  # nobody knows when a process died

    def end(session: Session) -> None:
        run = session.get(Run, run_id, with_for_update={"of": Run})
        if run is not None and run.status in ("running", "stale"):
            run.status, run.finished_at, run.error = status, finished_at, error

    database.write(end)


def _outcome(error: BaseException) -> tuple[str, str]:
    if isinstance(error, KeyboardInterrupt) or (isinstance(error, GeneratorExit) and asked_to_stop()):
        return "interrupted", f"interrupted by {stopped_by()}"
    if isinstance(error, XStageError):
        return "failed", error.message
    return "failed", redacted(f"{type(error).__name__}: {error}")


def _environment_id(session: Session, values: dict[str, Any]) -> int:
    """Row of this environment, added when it is new."""
    known = select(Environment.id).where(Environment.identity_sha256 == values["identity_sha256"])
    found = session.scalar(known)
    if found is not None:
        return found
    environment = Environment(**values)
    try:
        with session.begin_nested():
            session.add(environment)
    except IntegrityError:  # another process was first
        return session.scalars(known).one()
    return environment.id
