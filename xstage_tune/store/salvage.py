"""What is whole of a damaged SQLite store, copied to a new one."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, and_, delete, func, insert, literal_column, select, update
from sqlalchemy.exc import SQLAlchemyError

from xstage_tune.base.chunks import ChunkError
from xstage_tune.base.errors import StoreError, UsageError
from xstage_tune.store.checksums import COLUMN, checksum_of, is_whole, row_id
from xstage_tune.store.database import Database, no_store
from xstage_tune.store.launches import decode_chunk
from xstage_tune.store.location import Location, file_location
from xstage_tune.store.migrate import HEAD_REVISION, ensure_file, stored_revision
from xstage_tune.store.models import CHUNK_KINDS, Base, Chunk

#: Parents before what refers to them. Who holds a study is not copied: nobody holds the copy's.
_TABLES = ("environment", "run", "fit", "launch", "chunk", "study", "trial", "export")
_ROWS_AT_ONCE = 50
#: Rows that are looked for one by one between two that can be read in order.
_MOST_LOOKED_FOR = 2_000
#: Behind the ids of rows that were read to the end.
_ALL_READ = -1
_ROWID: Any = literal_column("rowid")


@dataclass(frozen=True, slots=True)
class Salvage:
    """What was copied, as counts by table, and what was not: damaged, or a part of something damaged."""

    location: str
    copied: dict[str, int]
    lost: tuple[str, ...]


def salvage(source: Location, target: Path) -> Salvage:
    """Copy the whole rows of a store to a new one.

    A damaged run or study is left out with all that is kept of it, a launch that lacks spans likewise.
    A finished study whose answer is lost counts as interrupted: resuming it finds the answer again.

    Raises:
        UsageError: there is something at the target.
        StoreError: the store is a server's, of another schema, or nothing of it can be read.
    """
    if source.path is None:
        raise StoreError(f"store {source} is a server's, which looks after its own files")
    if not source.path.exists():
        raise no_store(source)
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target} exists", "name a new file")
    place = file_location(target)
    with closing(Database(source, create=False)) as damaged:
        _require_schema(damaged)
        ensure_file(place)
        with closing(Database(place)) as whole, whole.writing() as session, damaged.reading() as reading:
            return _Copy(reading.connection(), session.connection()).made(str(place))


def _require_schema(damaged: Database) -> None:
    """Refuse tables of another version; one that cannot be read is taken for this one's."""
    try:
        with damaged.reading() as session:
            found = stored_revision(session.connection())
    except StoreError as error:
        if "no such table" not in error.message and "malformed" not in error.message:
            raise
        return
    if found is not None and found != HEAD_REVISION:
        raise StoreError(
            f"store {damaged.location} has schema revision {found}; salvage reads {HEAD_REVISION}",
            "any command that opens it brings it up to date, unless it is too damaged for that",
        )


class _Copy:
    """The rows of one store on their way to another."""

    def __init__(self, damaged: Connection, whole: Connection) -> None:
        self._damaged, self._whole = damaged, whole
        self._kept: dict[str, set[object]] = {}
        self._lost: list[str] = []

    def made(self, place: str) -> Salvage:
        """Copy all tables."""
        for name in _TABLES:
            self._copy(Base.metadata.tables[name])
        self._drop_launches_without_spans()
        self._reopen_studies_without_answer()
        tables = (Base.metadata.tables[name] for name in _TABLES)
        copied = {
            table.name: self._whole.scalar(select(func.count()).select_from(table)) or 0 for table in tables
        }
        return Salvage(place, copied, tuple(self._lost))

    def _copy(self, table: Table) -> None:
        kept = self._kept[table.name] = set()
        for row in self._rows(table):
            if row_id(table, row) in kept:
                continue  # come upon from both ends
            problem = self._problem(table, row)
            if problem:
                self._lost.append(f"table {table.name}, row {row_id(table, row)}: {problem}")
                continue
            self._whole.execute(insert(table), {column.name: row[column.name] for column in table.columns})
            kept.add(row_id(table, row))

    def _problem(self, table: Table, row: dict[str, Any]) -> str:
        """Why a row cannot be copied; empty where it can. A reference that may be missing is cleared."""
        if table.name == "chunk":
            try:
                decode_chunk(Chunk(**{column.name: row[column.name] for column in table.columns}), "damaged")
            except (ChunkError, TypeError) as error:
                return str(error)
        elif not is_whole(table, row):
            return "damaged"
        for key in table.foreign_keys:
            parent, name = key.column.table.name, key.parent.name
            if row[name] is None or row[name] in self._kept[parent]:
                continue
            if key.ondelete != "SET NULL":
                return f"its {parent} is lost"
            row[name] = None
        return ""

    def _rows(self, table: Table) -> Iterator[dict[str, Any]]:
        """All rows that can be read: from both ends, and one by one in between."""
        read: list[int] = []
        yield from self._in_order(table, read, _ROWID)
        if read[-1:] == [_ALL_READ]:
            return
        low = max(read, default=0)
        behind: list[int] = []
        yield from self._in_order(table, behind, _ROWID.desc(), low < _ROWID)
        high = min((one for one in behind if one != _ALL_READ), default=low + _MOST_LOOKED_FOR)
        unread = 0
        for rowid in range(low + 1, min(high, low + _MOST_LOOKED_FOR)):
            rows = self._read(select(_ROWID, *table.columns).where(rowid == _ROWID))
            if rows is None:
                unread += 1
            else:
                yield from rows
        self._lost.append(f"table {table.name}: {unread or 'some'} rows behind row {low} cannot be read")

    def _in_order(
        self, table: Table, read: list[int], order: Any, where: Any = None
    ) -> Iterator[dict[str, Any]]:
        """Rows from one end on, until the other or a damaged page; their ids are noted in ``read``."""
        beyond = operator.lt if order is not _ROWID else operator.gt
        while True:
            query = select(_ROWID, *table.columns).order_by(order).limit(_ROWS_AT_ONCE)
            if where is not None:
                query = query.where(where)
            if read:
                query = query.where(beyond(_ROWID, read[-1]))
            rows = self._read(query)
            if not rows:
                if rows is not None:
                    read.append(_ALL_READ)
                return
            for row in rows:
                if read and not beyond(row["rowid"], read[-1]):
                    return  # a damaged page leads back: it would never end
                read.append(row["rowid"])
                yield row

    def _read(self, query: Any) -> list[dict[str, Any]] | None:
        """None where a page on the way is damaged."""
        try:
            return [dict(row) for row in self._damaged.execute(query).mappings()]
        except SQLAlchemyError:
            return None

    def _drop_launches_without_spans(self) -> None:
        launch, chunk = Base.metadata.tables["launch"], Base.metadata.tables["chunk"]
        kinds = (
            select(launch.c.id, launch.c.run_id, launch.c.sequence, func.count(chunk.c.id).label("found"))
            .outerjoin(chunk, chunk.c.launch_id == launch.c.id)
            .group_by(launch.c.id, chunk.c.rank)
        )
        for launch_id, run_id, sequence, found in self._whole.execute(kinds).all():
            if found != len(CHUNK_KINDS):
                self._lost.append(f"run {run_id}, launch {sequence}: spans are lost")
                self._whole.execute(delete(launch).where(launch.c.id == launch_id))

    def _reopen_studies_without_answer(self) -> None:
        study, trial = Base.metadata.tables["study"], Base.metadata.tables["trial"]
        answered = select(trial.c.study_id).where(trial.c.verification.is_not(None))
        query = select(study).where(and_(study.c.status == "finished", study.c.id.not_in(answered)))
        for row in self._whole.execute(query).mappings().all():
            self._lost.append(f"study {row['id']}: its answer is lost; resumed, it is found again")
            values: Mapping[str, Any] = {**row, "status": "interrupted"}
            changed = {"status": "interrupted", COLUMN: checksum_of(study, values)}
            self._whole.execute(update(study).where(study.c.id == row["id"]).values(changed))
