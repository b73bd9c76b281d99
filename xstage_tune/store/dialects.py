"""All that differs between SQLite and PostgreSQL."""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Dialect, Engine, Float, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection

from xstage_tune.base.errors import StoreError
from xstage_tune.store.location import network_file_system

_log = logging.getLogger(__name__)

_BUSY_TIMEOUT_S = 30.0
_BUSY_RETRY_S = 0.02
#: Most bytes of one value or row: many times the spans of the longest launch.
_MOST_VALUE_BYTES = 256 * 1024 * 1024
#: Marks a database as ours. Not alembic's own name, which optuna takes when it shares the database.
VERSION_TABLE = "xstage_alembic_version"
#: Execution option that makes an SQLite transaction take the write lock at its start.
WRITE_OPTION = "xstage_write"
#: Identifies our schema lock among PostgreSQL's advisory locks ("xstage" in ASCII).
_SCHEMA_LOCK_KEY = 0x787374616765


class SqliteFloat(Float[float]):
    """A float that survives NaN, which SQLite would turn into NULL: NaN is kept as text."""

    def bind_processor(self, dialect: Dialect) -> Callable[[float | None], float | str | None]:  # noqa: ARG002
        return lambda value: "nan" if value is not None and math.isnan(value) else value

    def result_processor(
        self,
        dialect: Dialect,  # noqa: ARG002
        coltype: object,  # noqa: ARG002
    ) -> Callable[[float | str | None], float | None]:
        return _float_or_nan


def _float_or_nan(value: Any) -> float | None:
    """NaN too of what is no number, in a damaged row: its checksum tells."""
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError):
        return math.nan


def read_only_url(path: Path) -> URL | None:
    """How to open an SQLite file that this process may read but not write; None when it may write.

    SQLite keeps its log beside the file even to read. Where the folder cannot be written either, only a
    file declared immutable opens, which is right as long as no log is waiting there.
    """
    if not path.is_file() or (_writable(path) and _writable(path.parent)):
        return None
    log = path.with_name(f"{path.name}-wal")
    settled = not _writable(path.parent) and not (log.exists() and log.stat().st_size)
    query = {"mode": "ro", "uri": "true"} | ({"immutable": "1"} if settled else {})
    return URL.create("sqlite", database=f"file:{quote(os.fsencode(path))}", query=query)


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=True)


def configure_sqlite(engine: Engine, path: Path, *, read_only: bool) -> None:
    """Set the pragmas of every connection, and let transactions begin as we say.

    A connection to another application's file raises ``StoreError`` before it changes anything there.

    The driver would open transactions by itself, deferred; a deferred transaction that turns to
    writing fails at once when another writer is ahead, whatever the busy timeout.
    """
    journal_mode = None if read_only else _journal_mode(path)

    @event.listens_for(engine, "connect")
    def set_pragmas(connection: DBAPIConnection, _record: object) -> None:
        connection.isolation_level = None
        _guard(connection)
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_S * 1000:.0f}")
        if _is_foreign(cursor):
            raise StoreError(f"store {path} is another application's database", "--store PATH")
        if journal_mode is not None:
            _set_journal_mode(cursor, journal_mode)
        # What is committed is reported as kept, so it is on the disk by then: NORMAL would sync the log only
        # when it is written back. A rollback journal's end is also a name that vanishes from a folder.
        cursor.execute(f"PRAGMA synchronous={'EXTRA' if journal_mode == 'delete' else 'FULL'}")
        cursor.execute("PRAGMA fullfsync=ON")  # of macOS, whose own sync leaves data in the disk's cache
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(WRITE_OPTION, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _guard(connection: Any) -> None:
    """Let damage neither raise at a place that cannot name the row, nor ask for all memory."""
    connection.text_factory = lambda stored: stored.decode(errors="surrogateescape")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_VALUE_BYTES)


def _is_foreign(cursor: Any) -> bool:
    """Whether the file holds tables, but not ours."""
    tables = {name for (name,) in cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return bool(tables) and VERSION_TABLE not in tables


def _journal_mode(path: Path) -> str:
    kind = network_file_system(path.parent)
    if kind is None:
        return "wal"
    _log.warning("store %s is on a network file system (%s): writing will be slow", path, kind)
    return "delete"


def _set_journal_mode(cursor: Any, mode: str) -> None:
    """Change the journal mode if it differs, waiting for other openers of a new store.

    The change needs the file to itself, and SQLite does not apply its busy timeout to it.
    """
    deadline = time.monotonic() + _BUSY_TIMEOUT_S
    while cursor.execute("PRAGMA journal_mode").fetchone()[0] != mode:
        try:
            cursor.execute(f"PRAGMA journal_mode={mode}")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_BUSY_RETRY_S)


def lock_schema(connection: Connection) -> None:
    """Keep other processes from migrating until the transaction ends.

    On SQLite a writing transaction is that lock already.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK_KEY})


def size_bytes(connection: Connection) -> int:
    """Bytes that the database takes on disk."""
    query = {
        "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
        "postgresql": "SELECT pg_database_size(current_database())",
    }
    return int(connection.execute(text(query[connection.dialect.name])).scalar_one())


def integrity_problems(connection: Connection, table: str | None = None) -> list[str]:
    """What the database itself finds damaged; a PostgreSQL server looks after its own files.

    Args:
        table: check its pages and indexes alone: whether all of its rows are there to be found.
    """
    if connection.dialect.name != "sqlite":
        return []
    of_table = f"({table})" if table else ""
    rows = connection.execute(text(f"PRAGMA integrity_check{of_table}")).scalars().all()
    problems = [f"SQLite: {line}" for row in rows if row != "ok" for line in str(row).splitlines()]
    if table:
        return problems
    for table, row_id, parent, _ in connection.execute(text("PRAGMA foreign_key_check")):
        problems.append(f"table {table}: row {row_id} refers to a missing row of {parent}")
    return problems


def explain(error: BaseException | None) -> tuple[str, str]:
    """What a driver's error means for the user, and a hint; two empty strings when unknown."""
    name = getattr(error, "sqlite_errorname", "")
    for prefix, meaning, hint in _SQLITE_ERRORS:
        if name.startswith(prefix):
            return meaning, hint
    return "", ""


_SQLITE_ERRORS = (
    ("SQLITE_FULL", "the disk is full; what was committed is kept", "free space, or use --store PATH"),
    ("SQLITE_BUSY", "another process has kept it locked for 30 s", "wait for the other run to end"),
    ("SQLITE_NOTADB", "it is damaged, or no SQLite file", "move it away, or use --store PATH"),
    ("SQLITE_CORRUPT", "it is damaged", "xstage-tune store salvage TO.db copies out what is whole"),
    ("SQLITE_READONLY", "it cannot be written", "check its permissions, or use --store PATH"),
    ("SQLITE_CANTOPEN", "it cannot be opened", "check its permissions, or use --store PATH"),
    ("SQLITE_IOERR", "reading or writing its file failed", "check the disk, or use --store PATH"),
)
