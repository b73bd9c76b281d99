"""A checksum in each row, so that damage is told from data; passwords go from command lines."""

import sqlalchemy as sa
from alembic import op

from xstage_tune.base.redaction import redacted, redacted_arguments
from xstage_tune.store.checksums import checksum_of
from xstage_tune.store.models import Base
from xstage_tune.store.types import is_decodable

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLES = ("environment", "run", "launch", "fit", "study", "study_holder", "trial", "export")
ROWS_AT_ONCE = 500


def upgrade() -> None:
    for table in TABLES:
        op.add_column(table, sa.Column("checksum", sa.String(), nullable=True))
        _fill(op.get_bind(), table)


def _fill(connection: sa.Connection, name: str) -> None:
    """A checksum for each row of before; a row that cannot be decoded gets none, and counts as damaged."""
    there = {column["name"] for column in sa.inspect(connection).get_columns(name)}
    whole = Base.metadata.tables[name]  # later migrations may have given it columns that are not there yet
    columns = [column for column in whole.columns if column.name in there]
    (key,) = whole.primary_key.columns
    ids = connection.scalars(sa.select(key)).all()
    for first in range(0, len(ids), ROWS_AT_ONCE):
        some = sa.select(*columns).where(key.in_(ids[first : first + ROWS_AT_ONCE]))
        for row in connection.execute(some).mappings().all():
            values = dict(row)
            if not all(map(is_decodable, values.values())):
                continue
            changed = _without_passwords(name, values)
            changed["checksum"] = checksum_of(whole, values | changed)
            connection.execute(sa.update(whole).where(key == values[key.name]).values(changed))


def _without_passwords(table: str, values: dict) -> dict:
    if table == "run":
        return {
            "argv": list(redacted_arguments(values["argv"])),
            "error": values["error"] and redacted(values["error"]),
        }
    if table != "study" or "argv" not in values["space"].get("platform", {}).get("provenance", {}):
        return {}
    platform = values["space"]["platform"]
    origin = platform["provenance"]
    hidden = {**origin, "argv": list(redacted_arguments(origin["argv"]))}
    return {"space": {**values["space"], "platform": {**platform, "provenance": hidden}}}
