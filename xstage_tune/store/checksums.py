"""A checksum in each row: what the database hands out is what was written, or an error that names the row.

A flipped bit in a page makes another number of a number, and neither SQLite nor its drivers notice. The
checksum is over the row's columns by name, but for those that are NULL, so that a column which a later
migration adds without values changes none. It is written and verified by SQLAlchemy's events: whoever adds or
changes rows does so through the session, or takes :func:`checksum_of` himself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Column, Float, Integer, Table, event, inspect
from sqlalchemy.orm import Mapped

from xstage_tune.base.errors import StoreError
from xstage_tune.store.types import ExplicitJson, json_form

COLUMN = "checksum"
#: What to do about a damaged store.
SALVAGE = "xstage-tune store salvage TO.db copies out what is whole"


class DamagedRowError(StoreError):
    """A row is not what was written."""

    def __init__(self, table: str, row_id: object) -> None:
        super().__init__(f"table {table}, row {row_id} is damaged: it does not match its checksum", SALVAGE)


class Checked:
    """Mapped classes whose rows carry a checksum; NULL in a row that was undecodable when it was migrated."""

    checksum: Mapped[str | None]


def checksum_of(table: Table, values: Mapping[Any, Any]) -> str:
    """Checksum of a row, whether it is to be written or was read.

    Args:
        values: by column; columns that are missing count as NULL.

    Raises:
        StoreError: a value to be written is no JSON.
    """
    try:
        counted = {
            column.name: _plain(column, values[column.name])
            for column in table.columns
            if _is_counted(column) and values.get(column.name) is not None
        }
    except ValueError as error:
        raise StoreError(f"table {table.name}: {error}") from error
    text = json.dumps(counted, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def is_whole(table: Table, values: Mapping[Any, Any]) -> bool:
    """Whether a row that was read is what was written."""
    return bool(values[COLUMN] == checksum_of(table, values))


def _is_counted(column: Column[Any]) -> bool:
    """Not a number that the database chooses, nor a reference that it may clear by itself."""
    numbered = column.primary_key and isinstance(column.type, Integer)
    cleared = any(key.ondelete == "SET NULL" for key in column.foreign_keys)
    return column.name != COLUMN and not numbered and not cleared


def _plain(column: Column[Any], value: Any) -> Any:
    """A value as it comes back from the database."""
    if isinstance(column.type, ExplicitJson):
        return json.loads(json.dumps(json_form(value), default=repr))
    if isinstance(column.type, Float) and isinstance(value, int):
        return float(value)
    return value


@event.listens_for(Checked, "before_insert", propagate=True)
@event.listens_for(Checked, "before_update", propagate=True)
def _set_checksum(mapper: Any, _connection: object, row: Any) -> None:
    row.checksum = checksum_of(mapper.local_table, _values(row, mapper.local_table))


@event.listens_for(Checked, "load", propagate=True)
def _verify_loaded(row: Any, _context: object) -> None:
    _verify(row)


@event.listens_for(Checked, "refresh", propagate=True)
def _verify_refreshed(row: Any, _context: object, _attributes: object) -> None:
    _verify(row)


def _verify(row: Any) -> None:
    mapper = inspect(type(row))
    if not is_whole(mapper.local_table, _values(row, mapper.local_table)):
        raise DamagedRowError(mapper.local_table.name, row_id(mapper.local_table, vars(row)))


def row_id(table: Table, values: Mapping[Any, Any]) -> object:
    """What names a row: its primary key."""
    (key,) = table.primary_key.columns
    return values.get(key.name)


def _values(row: Any, table: Table) -> dict[str, Any]:
    return {column.name: getattr(row, column.name) for column in table.columns}
