"""Engine and sessions of one store; every database error leaves here as a ``StoreError``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from xstage_tune.errors import StoreError
from xstage_tune.store.dialects import WRITE_OPTION, configure_sqlite, explain
from xstage_tune.store.location import Location


class Database:
    """The connections to one location. Creates the folder of an SQLite file.

    Raises:
        StoreError: the location is a directory, its folder cannot be made, or the driver is missing.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        if location.path:
            _prepare_folder(location.path)
        try:
            self._engine = create_engine(location.url)
        except ImportError as error:
            raise StoreError(
                f"no driver for store {location}: {error}", "pip install 'psycopg[binary]'"
            ) from error
        if location.path:
            configure_sqlite(self._engine, location.path)
        self._writing_engine = self._engine.execution_options(**{WRITE_OPTION: True})

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """One read transaction: all queries in it see the same state.

        Raises:
            StoreError: the database failed.
        """
        with self._translated(), Session(self._engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """One write transaction, committed at the end of the block, undone if the block fails.

        Raises:
            StoreError: the database failed, or a constraint was violated.
        """
        new_session = Session(self._writing_engine, expire_on_commit=False)
        with self._translated(), new_session as session, session.begin():
            yield session

    def close(self) -> None:
        """Close all connections; safe to call twice."""
        self._engine.dispose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise self._store_error(error) from error

    def _store_error(self, error: SQLAlchemyError) -> StoreError:
        origin = error.orig if isinstance(error, DBAPIError) else None
        meaning, hint = explain(origin)
        if isinstance(error, OperationalError) and not self.location.path:
            meaning, hint = "the server cannot be used", "check the URL and the server, or use --store PATH"
        detail = str(origin or error).strip().partition("\n")[0]
        return StoreError(f"store {self.location}: {meaning or 'the database failed'} ({detail})", hint)


def _prepare_folder(path: Path) -> None:
    try:
        if path.is_dir():
            raise StoreError(f"store {path} is a directory", f"--store {path}/store.db")
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StoreError(f"store {path}: its folder cannot be used ({reason})", "--store PATH") from error
