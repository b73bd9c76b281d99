"""Schema of a store: created and brought up to date when it is opened."""

from __future__ import annotations

from sqlalchemy import Column, Connection, MetaData, String, Table, inspect, select

from xstage_tune.base import assets
from xstage_tune.base.errors import StoreError
from xstage_tune.store.database import Database, no_store
from xstage_tune.store.dialects import VERSION_TABLE as VERSION_TABLE  # the migrations take it from here
from xstage_tune.store.dialects import lock_schema
from xstage_tune.store.location import Location

#: The newest migration in ``store/versions``.
HEAD_REVISION = "0004"

_version = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32), primary_key=True))


def ensure_schema(database: Database, *, create: bool = True) -> None:
    """Bring the store to :data:`HEAD_REVISION`, one process at a time; quick when it is there.

    Args:
        create: make a schema where there is none.

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
