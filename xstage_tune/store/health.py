"""What a store holds, and whether all of it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from xstage_tune.base.chunks import ChunkError
from xstage_tune.base.errors import StoreError
from xstage_tune.store.checksums import COLUMN, is_whole, row_id
from xstage_tune.store.database import Database
from xstage_tune.store.dialects import integrity_problems, size_bytes
from xstage_tune.store.launches import decode_chunk, launch_place
from xstage_tune.store.migrate import stored_revision
from xstage_tune.store.models import CHUNK_KINDS, Base, Chunk, Launch, Run, Study

_CHUNKS_A_FETCH = 32
_ROWS_A_FETCH = 500


@dataclass(frozen=True, slots=True)
class StoreSummary:
    """What a store holds."""

    location: str
    revision: str
    size_bytes: int
    runs: dict[str, int]  # by status
    launches: int
    spans: int
    studies: int
    latest_run: str | None


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Outcome of :func:`check`: healthy when ``problems`` is empty."""

    location: str
    launches: int
    chunks: int
    problems: tuple[str, ...]  # each names what is damaged


def summarise(database: Database) -> StoreSummary:
    """Count what the store holds.

    Raises:
        StoreError: the database failed.
    """
    with database.reading() as session:
        spans = select(func.sum(Chunk.n)).where(Chunk.kind == "spans")
        statuses = session.execute(select(Run.status, func.count()).group_by(Run.status))
        return StoreSummary(
            location=str(database.location),
            revision=stored_revision(session.connection()) or "",
            size_bytes=size_bytes(session.connection()),
            runs=dict(sorted((status, count) for status, count in statuses)),
            launches=_count(session, Launch),
            spans=int(session.scalar(spans) or 0),  # PostgreSQL sums to a decimal
            studies=_count(session, Study),
            latest_run=session.scalar(select(Run.id).order_by(Run.started_at.desc()).limit(1)),
        )


def check(database: Database) -> CheckReport:
    """Run the database's own checks, verify every row, look for missing chunks, and decode every chunk.

    Damage that stops the reading is itself a problem, so this raises nothing of its own.
    """
    problems: list[str] = []
    launches = chunks = 0
    try:
        with database.reading() as session:
            problems += integrity_problems(session.connection())
            launches = _count(session, Launch)
            problems += _damaged_rows(session)
            problems += _incomplete_launches(session)
            for problem in _chunk_problems(session):
                chunks += 1
                problems += [problem] if problem else []
    except StoreError as error:
        problems.append(error.message)
    return CheckReport(str(database.location), launches, chunks, tuple(problems))


def _damaged_rows(session: Session) -> Iterator[str]:
    """Rows that are not what was written."""
    for table in Base.metadata.sorted_tables:
        if COLUMN not in table.columns:
            continue  # a chunk has its own
        for row in session.execute(select(table).execution_options(yield_per=_ROWS_A_FETCH)).mappings():
            if not is_whole(table, row):
                yield f"table {table.name}, row {row_id(table, row)}: damaged"


def _count(session: Session, table: type[Launch] | type[Study]) -> int:
    return session.scalar(select(func.count()).select_from(table)) or 0


def _incomplete_launches(session: Session) -> Iterator[str]:
    """Launches without both chunks of every rank that recorded."""
    kinds = select(Launch.run_id, Launch.sequence, Chunk.rank, func.count(Chunk.id))
    grouped = kinds.outerjoin(Chunk).group_by(Launch.run_id, Launch.sequence, Chunk.rank)
    for run_id, sequence, rank, found in session.execute(grouped):
        if found != len(CHUNK_KINDS):
            yield f"{launch_place(run_id, sequence, rank or 0)}: {found} of {len(CHUNK_KINDS)} chunks"


def _chunk_problems(session: Session) -> Iterator[str | None]:
    """For each chunk in the order of its writing: what is wrong with it, or None."""
    rows = select(Launch.run_id, Launch.sequence, Chunk).join(Launch, Launch.id == Chunk.launch_id)
    fetched = rows.order_by(Chunk.id).execution_options(yield_per=_CHUNKS_A_FETCH)
    for run_id, sequence, chunk in session.execute(fetched):
        try:
            decode_chunk(chunk, f"{launch_place(run_id, sequence, chunk.rank)}, {chunk.kind}")
        except ChunkError as error:
            yield error.message
        else:
            yield None
        session.expunge(chunk)
