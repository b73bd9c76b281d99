"""The life of a run in the store: begun, written launch by launch, ended, or found dead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from xstage_tune.base.errors import StoreError, XStageError
from xstage_tune.base.interrupts import stopped_by
from xstage_tune.base.provenance import git_state
from xstage_tune.base.redaction import redacted, redacted_arguments
from xstage_tune.base.version import __version__
from xstage_tune.launches.device import DeviceDescription, Outcome
from xstage_tune.store.database import Database
from xstage_tune.store.launches import chunk_values, launch_values, point_values
from xstage_tune.store.models import Chunk, Environment, Fit, Launch, Run
from xstage_tune.store.process import current_process, has_ended
from xstage_tune.store.provenance import environment_values, new_id, utc_now


class RunWriter:
    """Writes the rows of one run; each is committed before the call returns."""

    def __init__(self, database: Database, run_id: str) -> None:
        self._database = database
        self.id = run_id
        #: Launches kept so far.
        self.launches = 0
        self._row_ids: dict[int, int] = {}  # of these, by sequence

    def add_launch(self, sequence: int, outcome: Outcome[Any, Any], rank: int = 0) -> None:
        """Keep one launch, its figures and its spans, in one transaction.

        Further ranks of a launch add their spans to the first one's row.

        Raises:
            StoreError: this rank of the launch is there already, ``sequence`` is another point's,
                or the database failed.
        """

        def add(session: Session) -> int:
            row_id = self._row_ids.get(sequence)
            if row_id is None:
                values = launch_values(self.id, sequence, outcome)
                row_id = session.scalars(insert(Launch).returning(Launch.id), [values]).one()
            elif session.get_one(Launch, row_id).point != point_values(outcome):
                raise StoreError(f"run {self.id}: launch {sequence} was of another point")
            session.execute(insert(Chunk), chunk_values(outcome.table, row_id, rank))
            return row_id

        self._row_ids[sequence] = self._database.write(add)
        self.launches = len(self._row_ids)

    def add_fit(self, kind: str, payload: dict[str, Any]) -> None:
        """Keep what was concluded from the run.

        Raises:
            StoreError: the payload is not JSON, or the database failed.
        """
        values = {"run_id": self.id, "kind": kind, "created_at": utc_now(), "payload": payload}
        self._database.write(lambda session: session.add(Fit(**values)))


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
    try:
        with database.writing() as session:
            run.environment_id = _environment_id(session, environment_values(device, process.host))
            session.add(run)
    except KeyboardInterrupt as stop:  # it may have come behind the transaction
        with suppress(StoreError):
            _end(database, run.id, *_outcome(stop))
        raise
    try:
        yield RunWriter(database, run.id)
    except BaseException as error:  # even an exit must not leave the run open
        with suppress(StoreError):  # the first failure is the one to report
            _end(database, run.id, *_outcome(error))
        raise
    _end(database, run.id, "finished", None)


def mark_stale_runs(database: Database) -> None:
    """Close the runs whose process died without doing so.

    Raises:
        StoreError: the database failed.
    """
    with database.reading() as session:
        running = session.scalars(select(Run).where(Run.status == "running")).all()
    for run in running:
        if has_ended(run.process):
            _end(database, run.id, "stale", f"process {run.pid} on {run.host} ended without closing the run")


def _end(database: Database, run_id: str, status: str, error: str | None) -> None:
    finished_at = None if status == "stale" else utc_now()  # nobody knows when a process died
    still_open = update(Run).where(Run.id == run_id, Run.status.in_(("running", "stale")))
    ended = still_open.values(status=status, finished_at=finished_at, error=error)
    database.write(lambda session: session.execute(ended))


def _outcome(error: BaseException) -> tuple[str, str]:
    if isinstance(error, KeyboardInterrupt):
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
