"""Alembic environment of the store.

The application passes its own connection, inside a transaction that it commits. A developer's
``alembic -c store/alembic.ini`` works on the store that ``XSTAGE_STORE`` names. Stores only move
forward: migrations have no downgrade.
"""

from alembic import context
from sqlalchemy import Connection

from xstage_tune.store.database import Database
from xstage_tune.store.location import resolve_location
from xstage_tune.store.migrate import VERSION_TABLE
from xstage_tune.store.models import Base


def migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        version_table=VERSION_TABLE,
        render_as_batch=True,  # SQLite changes a table by copying it
    )
    with context.begin_transaction():
        context.run_migrations()


shared = context.config.attributes.get("connection")
if shared is not None:
    migrate(shared)
else:
    with Database(resolve_location(None)).writing() as session:
        migrate(session.connection())
