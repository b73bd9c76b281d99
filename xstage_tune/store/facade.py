"""The store as the rest of the tool sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from sqlalchemy import select

from xstage_tune.base.errors import UsageError
from xstage_tune.launches.device import DeviceDescription
from xstage_tune.store import catalogue, health, removal
from xstage_tune.store.database import Database
from xstage_tune.store.launches import StoredLaunch, stored_launch
from xstage_tune.store.location import resolve_location
from xstage_tune.store.migrate import ensure_file, ensure_schema
from xstage_tune.store.models import Fit, Launch, Run
from xstage_tune.store.runs import RunWriter, mark_stale_runs, writing_run
from xstage_tune.store.studies import LATEST, LATEST_ANY, Studies

_ALL = catalogue.Wanted()


class Store:
    """An open store. Several processes may have the same one open and write to it.

    Every method raises ``StoreError``, naming the store, when the database fails.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.studies = Studies(database)

    @classmethod
    def open(cls, location: str | Path | None = None, *, create: bool = True) -> Self:
        """Open a store, making or migrating it first, and mark runs whose process died as stale.

        An SQLite file that may only be read opens as it is; writing to it fails.

        Args:
            location: SQLite file or database URL; None for ``$XSTAGE_STORE``, else the user's own.
            create: make the store if there is none; unset by what only reads.

        Raises:
            StoreError: the place cannot be used, the store is damaged, a newer version made it, it is another
                application's file, or there is none and ``create`` is not set.
        """
        place = resolve_location(location)
        if create:
            ensure_file(place)
        database = Database(place, create=create)
        try:
            ensure_schema(database, create=create)
            if not database.read_only:
                mark_stale_runs(database)
        except BaseException:
            database.close()
            raise
        return cls(database)

    @property
    def location(self) -> str:
        """The file or URL of the store, without a password."""
        return str(self._database.location)

    @property
    def read_only(self) -> bool:
        """Whether this is a file that may only be read: every method that records something fails."""
        return self._database.read_only

    def close(self) -> None:
        """Close the connections; safe to call twice."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin_run(
        self,
        *,
        kind: str,
        argv: Sequence[str],
        device: DeviceDescription,
        seed: int | None = None,
        parameters: dict[str, Any] | None = None,
        path: str = "",
        kernel_sha256: str = "",
        profile_sha256: str = "",
    ) -> AbstractContextManager[RunWriter]:
        """A block that writes one run.

        The block's end decides the run's status: finished; interrupted on KeyboardInterrupt; failed,
        with the message, on any other exception, which goes on. What was written before stays.
        """
        return writing_run(
            self._database,
            kind=kind,
            argv=argv,
            device=device,
            seed=seed,
            parameters=parameters or {},
            path=path,
            kernel_sha256=kernel_sha256,
            profile_sha256=profile_sha256,
        )

    def runs(self, kind: str | None = None) -> list[Run]:
        """All runs, or those of one kind, newest first."""
        self._database.require_whole("run")
        query = select(Run).order_by(Run.started_at.desc(), Run.id)
        if kind is not None:
            query = query.where(Run.kind == kind)
        with self._database.reading() as session:
            return list(session.scalars(query))

    def run(self, run_id: str = LATEST_ANY, fits: Callable[[Run], bool] | None = None) -> Run:
        """One run; ``latest`` is the last one finished, ``latest-any`` the last one begun.

        Args:
            fits: which runs those two may name; default: all.

        Raises:
            UsageError: there is no such run; the hint names another.
        """
        if run_id not in (LATEST, LATEST_ANY):
            with self._database.reading() as session:
                named = session.get(Run, run_id)
            if named is None:
                raise UsageError(f"store {self.location} has no run '{run_id}'", "xstage-tune store list")
            return named
        begun = [run for run in self.runs() if fits is None or fits(run)]
        finished = [run for run in begun if run.status == "finished"]
        if run_id == LATEST_ANY and begun:
            return begun[0]
        if run_id == LATEST and finished:
            return max(finished, key=lambda run: run.finished_at or "")
        what, hint = "run to show", "xstage-tune calibrate --device replay makes one"
        if begun:
            what = f"finished {what}"
            hint = f"the latest begun is {begun[0].id}, which is {begun[0].status}: {LATEST_ANY} takes it"
        raise UsageError(f"store {self.location} has no {what}", hint)

    def launches(self, run_id: str) -> list[StoredLaunch]:
        """The launches of a run in sequence; their spans are read when asked for."""
        self._database.require_whole("launch")
        query = select(Launch).where(Launch.run_id == run_id).order_by(Launch.sequence)
        with self._database.reading() as session:
            return [stored_launch(row, self._database) for row in session.scalars(query)]

    def fits(self, run_id: str) -> list[Fit]:
        """What was concluded from a run, oldest first."""
        self._database.require_whole("fit")
        with self._database.reading() as session:
            return list(session.scalars(select(Fit).where(Fit.run_id == run_id).order_by(Fit.id)))

    def entries(self, wanted: catalogue.Wanted = _ALL) -> list[catalogue.Entry]:
        """Runs and studies with what they hold, newest first."""
        return catalogue.entries(self._database, wanted)

    def details(self, entry_id: str) -> catalogue.Details:
        """All of one run or study.

        Raises:
            UsageError: there is none of that id.
        """
        return catalogue.details(self._database, entry_id)

    def remove(self, ids: Sequence[str]) -> None:
        """Remove runs and studies with all that is kept of them: all of them or none.

        Raises:
            UsageError: an id is neither a run's nor a study's.
            StoreError: a process that may still live writes one of them.
        """
        removal.remove(self._database, ids)

    def summary(self) -> health.StoreSummary:
        """What the store holds."""
        return health.summarise(self._database)

    def check(self) -> health.CheckReport:
        """Whether all of it is whole: the database's own checks, every row verified, every chunk decoded."""
        return health.check(self._database)
