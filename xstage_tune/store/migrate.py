"""Schema of a store: created and brought up to date when it is opened."""

from __future__ import annotations

import os
from contextlib import closing, suppress

from sqlalchemy import Column, Connection, MetaData, String, Table, inspect, select

from xstage_tune.base import assets
from xstage_tune.base.durable import make_folder, name_new, sync_folder, temporary_beside
from xstage_tune.base.errors import StoreError
from xstage_tune.store.database import Database, no_store
from xstage_tune.store.dialects import VERSION_TABLE as VERSION_TABLE  # the migrations take it from here
from xstage_tune.store.dialects import lock_schema
from xstage_tune.store.location import Location, file_location

#: The newest migration in ``store/versions``.
HEAD_REVISION = "0006"

_version = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32), primary_key=True))


def ensure_file(location: Location) -> None:
    """Make an SQLite store where there is no file: whole and on the disk before it has its name.

    Raises:
        StoreError: its folder cannot be written, or the disk is full.
    """
    path = location.path
    if path is None:
        return
    try:
        if os.path.lexists(path):
            if path.is_file() and not path.stat().st_size:
                raise _emptied(location)
            return
        make_folder(path.parent)
        with temporary_beside(path) as (temporary, descriptor):
            with closing(Database(file_location(temporary))) as database:
                ensure_schema(database, fresh=True)
            os.fsync(descriptor)
            with suppress(FileExistsError):  # another process was first
                name_new(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StoreError(f"store {path}: it cannot be made ({reason})", "--store PATH") from error


def _emptied(location: Location) -> StoreError:
    """A store is never without its tables: it is made with them before it has its name."""
    return StoreError(
        f"store {location} holds nothing, not even the tables of an empty store: its content is lost",
        "remove the file to begin a new store there, or use --store PATH",
    )


def ensure_schema(database: Database, *, create: bool = True, fresh: bool = False) -> None:
    """Bring the store to :data:`HEAD_REVISION`, one process at a time; quick when it is there.

    Args:
        create: make a schema where there is none; on a server.
        fresh: an SQLite file is new, and gets one; in one that was there before its absence is damage.

    Raises:
        StoreError: the store has a revision that this version does not know, cannot be migrated, may only be
            read and is not up to date, or has no schema and ``create`` is not set.
    """
    with database.reading() as session:
        found = stored_revision(session.connection())
        if found == HEAD_REVISION:
            return
    if found is None and not create:
        raise no_store(database.location)
    if found is None and database.location.path and not fresh:
        raise _emptied(database.location)
    if database.read_only:
        raise StoreError(
            f"store {database.location} may only be read and has schema revision {found}; this version reads "
            f"{HEAD_REVISION}",
            "copy it to where it may be written: the copy is brought up to date when it is opened",
        )
    with database.writing() as session:
        connection = session.connection()
        lock_schema(connection)
        found = stored_revision(connection)  # another process may just have migrated it
        if found != HEAD_REVISION:
            _upgrade(connection, found, database.location)


def stored_revision(connection: Connection) -> str | None:
    """Revision recorded in the database; None when it has no schema of ours."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(select(_version.c.version_num)).scalar_one_or_none()


def _upgrade(connection: Connection, found: str | None, location: Location) -> None:
    from alembic import command  # costs 0.1 s, and is needed only to migrate
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(assets.data_dir("store")).replace("%", "%%"))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise StoreError(
            f"store {location} has schema revision {found}; this version knows up to {HEAD_REVISION}",
            "pip install --upgrade xstage-tune",
        )
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
