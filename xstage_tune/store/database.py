"""Engine and sessions of one store; every database error leaves here as a ``StoreError``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

from sqlalchemy import URL, Pool, create_engine
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from xstage_tune.base.durable import make_folder
from xstage_tune.base.errors import StoreError, UsageError
from xstage_tune.base.interrupts import held_back
from xstage_tune.store.checksums import SALVAGE, DamagedRowError
from xstage_tune.store.dialects import (
    WRITE_OPTION,
    configure_sqlite,
    explain,
    integrity_problems,
    read_only_url,
)
from xstage_tune.store.location import Location

Done = TypeVar("Done")


class Database:
    """The connections to one location.

    ``read_only`` says that it is an SQLite file which this process may only read.

    Args:
        create: make the folder of an SQLite file, and the file at the first connection.

    Raises:
        StoreError: the location is a directory, its folder cannot be made, the driver is missing, or there
            is no file and ``create`` is not set.
    """

    def __init__(self, location: Location, *, create: bool = True) -> None:
        self.location = location
        read_only = _prepare_file(location.path, create=create) if location.path else None
        self.read_only = read_only is not None
        try:
            # A server drops connections that were idle for long: during a trial of hours, say.
            self._engine = create_engine(read_only or location.url, pool_pre_ping=location.path is None)
        except ImportError as error:
            raise StoreError(
                f"no driver for store {location}: {error}", "pip install 'psycopg[binary]'"
            ) from error
        if location.path:
            configure_sqlite(self._engine, location.path, read_only=self.read_only)
        _log_of(self._engine.pool).addFilter(_is_no_stop)
        self._writing_engine = self._engine.execution_options(**{WRITE_OPTION: True})
        self._known_whole: set[str] = set()

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

        Of an SQLite file, Ctrl-C ends it only behind its end. An exception out of the driver's call that
        begins it would leave a connection that nobody knows to be writing, and whatever is written next, the
        end of the run above all, would wait out the busy timeout.

        Raises:
            StoreError: the database failed, or a constraint was violated.
            KeyboardInterrupt: the user stopped the program meanwhile; of an SQLite file all is committed.
        """
        new_session = Session(self._writing_engine, expire_on_commit=False)
        whole = held_back() if self.location.path else nullcontext()
        with whole, self._translated(), new_session as session, session.begin():
            yield session

    def require_whole(self, *tables: str) -> None:
        """Check once, before anything is concluded from tables, that their rows can all be found.

        A row has a checksum, but a damaged page or index hides rows, and what is left looks like an answer.

        Raises:
            StoreError: a table or an index of it is damaged, or the database failed.
        """
        for table in tables:
            if table in self._known_whole:
                continue
            with self.reading() as session:
                problems = integrity_problems(session.connection(), table)
            if problems:
                raise StoreError(f"store {self.location} is damaged: table {table}: {problems[0]}", SALVAGE)
            self._known_whole.add(table)

    def write(self, work: Callable[[Session], Done]) -> Done:
        """Run ``work`` in a write transaction; once more if the server drops the connection meanwhile.

        Only what failed before its commit runs again: nothing of it is kept. Whether a commit that failed was
        made nobody knows.

        Raises:
            StoreError, KeyboardInterrupt: as :meth:`writing`.
        """
        committing = False
        try:
            with self.writing() as session:
                done = work(session)
                session.flush()
                committing = True
            return done
        except StoreError as error:
            if committing or not _lost_connection(error.__cause__):
                raise
        with self.writing() as session:
            return work(session)

    def close(self) -> None:
        """Close all connections; safe to call twice. Ctrl-C meanwhile comes out behind it."""
        with held_back():
            self._engine.dispose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise self._store_error(error) from error
        except UnicodeEncodeError as error:  # an argument of bytes that are no UTF-8
            raise UsageError(f"'{error.object}' is no text: a store has nothing of that name") from None
        except UnicodeDecodeError as error:  # of the driver, which may name a damaged schema's parts
            raise StoreError(
                f"store {self.location}: it is damaged (its schema is no text)", SALVAGE
            ) from error
        except DamagedRowError as error:
            raise StoreError(f"store {self.location}: {error.message}", error.hint) from error

    def _store_error(self, error: SQLAlchemyError) -> StoreError:
        origin = error.orig if isinstance(error, DBAPIError) else None
        meaning, hint = explain(origin)
        if isinstance(error, OperationalError) and not self.location.path:
            meaning, hint = "the server cannot be used", "check the URL and the server, or use --store PATH"
        detail = str(origin or error).strip().partition("\n")[0]
        return StoreError(f"store {self.location}: {meaning or 'the database failed'} ({detail})", hint)


def _lost_connection(error: BaseException | None) -> bool:
    return isinstance(error, DBAPIError) and error.connection_invalidated


def _log_of(pool: Pool) -> logging.Logger:
    return logging.getLogger(f"{type(pool).__module__}.{type(pool).__qualname__}")


def _is_no_stop(record: logging.LogRecord) -> bool:
    """The pool logs, with a traceback, what comes while it resets a connection, and then raises it too."""
    return not (record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt))


def no_store(location: Location | Path) -> StoreError:
    """What to raise when a store was to be read and is not there."""
    return StoreError(f"no store at {location}", "check --store and XSTAGE_STORE: xstage-tune store path")


def _prepare_file(path: Path, *, create: bool) -> URL | None:
    """Make the folder of an SQLite file; gives the URL to open it by where it can only be read."""
    try:
        if path.is_dir():
            raise StoreError(f"store {path} is a directory", f"--store {path}/store.db")
        if path.exists() and not path.is_file():
            raise StoreError(f"store {path} is a pipe or device, not a file", "--store PATH")
        if create:
            make_folder(path.parent)
        elif not path.exists():
            raise no_store(path)
        return read_only_url(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StoreError(f"store {path}: its folder cannot be used ({reason})", "--store PATH") from error
