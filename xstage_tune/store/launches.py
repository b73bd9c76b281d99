"""Launches in the store: rows and chunks from a measured run, and back."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import func, select

from xstage_tune.base import chunks
from xstage_tune.base.chunks import ChunkError
from xstage_tune.base.errors import StoreError, UsageError
from xstage_tune.base.spans import SpanTable
from xstage_tune.launches.device import (
    FiguresT,
    GpuState,
    LaunchInfo,
    LaunchKind,
    Outcome,
    Point,
    PointT,
    Verification,
)
from xstage_tune.store.checksums import COLUMN as CHECKSUM
from xstage_tune.store.checksums import checksum_of
from xstage_tune.store.database import Database
from xstage_tune.store.models import Base, Chunk, Launch

Read = TypeVar("Read")

#: Their tables, to write to without the mapper.
LAUNCHES, CHUNKS = Base.metadata.tables["launch"], Base.metadata.tables["chunk"]

_DECODERS = {chunks.SPAN_CODEC: chunks.decode_spans, chunks.LANE_CODEC: chunks.decode_lanes}


@dataclass(frozen=True, slots=True)
class StoredLaunch:
    """One launch of a run; its spans are read, and checked, when they are asked for.

    Args:
        point: what was asked, as its kind writes it; see :meth:`point_as`.
        measured: figures as their kind writes them; None where all is in the spans.
    """

    run_id: str
    sequence: int
    mode: str
    path: str
    flavour: str
    point: dict[str, Any]
    measured: dict[str, Any] | None
    verification: Verification
    info: LaunchInfo
    launch_id: int
    database: Database

    def ranks(self) -> tuple[int, ...]:
        """The ranks that recorded spans, ascending.

        Raises:
            StoreError: the database failed.
        """
        ranks = select(Chunk.rank).where(Chunk.launch_id == self.launch_id).distinct().order_by(Chunk.rank)
        with self.database.reading() as session:
            return tuple(session.scalars(ranks))

    def span_count(self) -> int:
        """Spans of all ranks together, without reading them.

        Raises:
            StoreError: the database failed.
        """
        spans = select(func.sum(Chunk.n)).where(Chunk.launch_id == self.launch_id, Chunk.kind == "spans")
        with self.database.reading() as session:
            return int(session.scalar(spans) or 0)  # PostgreSQL sums integers to decimals

    def table(self, rank: int = 0) -> SpanTable:
        """The spans and lanes that ``rank`` recorded.

        Raises:
            ChunkError: a chunk is damaged.
            StoreError: nothing was recorded for ``rank``, or the database failed.
        """
        of_rank = select(Chunk).where(Chunk.launch_id == self.launch_id, Chunk.rank == rank)
        with self.database.reading() as session:
            found = {chunk.kind: chunk for chunk in session.scalars(of_rank)}
        place = launch_place(self.run_id, self.sequence, rank)
        if found.keys() != {"spans", "lanes"}:
            raise StoreError(
                f"store {self.database.location}: {place} has no spans", "xstage-tune store check"
            )
        return SpanTable(*(decode_chunk(found[kind], f"{place}, {kind}") for kind in ("spans", "lanes")))

    def is_of(self, kind: LaunchKind[Any, Any, Any]) -> bool:
        """Whether it is a launch of that kind."""
        return self.mode in kind.modes

    def point_as(self, kind: LaunchKind[Any, Any, PointT]) -> PointT:
        """What was asked.

        Raises:
            StoreError: it is a launch of another kind.
            UsageError: it is of a version that this one does not read.
        """
        if not self.is_of(kind):
            place = launch_place(self.run_id, self.sequence, 0)
            raise StoreError(
                f"store {self.database.location}: {place} is of mode '{self.mode}', not of {kind.name}"
            )
        return self._read(kind.points, self.point, "its keys")

    def figures_as(self, kind: LaunchKind[Any, FiguresT, Any]) -> FiguresT:
        """What was measured.

        Raises:
            UsageError: it is of a version that this one does not read.
        """
        return self._read(kind.figures, self.measured, "its figures")

    def _read(self, adapter: TypeAdapter[Read], stored: dict[str, Any] | None, what: str) -> Read:
        try:
            return adapter.validate_python(stored)
        except ValidationError:
            raise UsageError(
                f"run {self.run_id}, launch {self.sequence}: {what} are of another version", "measure again"
            ) from None


def launch_place(run_id: str, sequence: int, rank: int) -> str:
    """How errors name a launch of one rank."""
    return f"run {run_id}, launch {sequence}, rank {rank}"


def launch_values(run_id: str, sequence: int, outcome: Outcome[Any, Any]) -> dict[str, Any]:
    """The columns of one launch's row, but for its id."""
    kind = outcome.launch.kind
    point: Point = kind.point(outcome)
    info, verification = outcome.info, outcome.verification
    values = {
        "run_id": run_id,
        "sequence": sequence,
        "mode": point.mode,
        "path": point.path,
        "flavour": point.flavour,
        "producers": info.producers,
        "burst_bytes": point.burst_bytes,
        "gap_ns": point.gap_ns,
        "point": kind.points.dump_python(point, mode="json"),
        "measured": asdict(outcome.figures) if outcome.figures is not None else None,
        "kernel": info.kernel,
        "kernel_sha256": info.kernel_sha256,
        "registers": info.registers,
        "spill_bytes": info.spill_bytes,
        "shared_bytes": info.shared_bytes,
        "timer_tick_ns": info.timer_tick_ns,
        "elapsed_ns": info.elapsed_ns,
        "started_at": info.started_at,
        "gpu_before": asdict(info.before) if info.before else None,
        "gpu_after": asdict(info.after) if info.after else None,
        "checked_bytes": verification.checked_bytes,
        "mismatched_bytes": verification.mismatched_bytes,
    }
    return {**values, CHECKSUM: checksum_of(LAUNCHES, values)}


def stored_launch(row: Launch, database: Database) -> StoredLaunch:
    """The launch of a row."""
    info = LaunchInfo(
        kernel=row.kernel,
        kernel_sha256=row.kernel_sha256,
        registers=row.registers,
        spill_bytes=row.spill_bytes,
        shared_bytes=row.shared_bytes,
        timer_tick_ns=row.timer_tick_ns,
        elapsed_ns=row.elapsed_ns,
        started_at=row.started_at,
        before=_gpu_state(row.gpu_before),
        after=_gpu_state(row.gpu_after),
        producers=row.producers,
    )
    verification = Verification(row.checked_bytes, row.mismatched_bytes)
    return StoredLaunch(
        run_id=row.run_id,
        sequence=row.sequence,
        mode=row.mode,
        path=row.path,
        flavour=row.flavour,
        point=row.point,
        measured=row.measured,
        verification=verification,
        info=info,
        launch_id=row.id,
        database=database,
    )


def chunk_values(table: SpanTable, rank: int) -> list[dict[str, Any]]:
    """The columns of the two chunks of one rank's spans, but for their ids and their launch's."""
    spans, lanes = chunks.encode_spans(table.spans), chunks.encode_lanes(table.lanes)
    return [
        _chunk(rank, "spans", chunks.SPAN_CODEC, len(table.spans), spans),
        _chunk(rank, "lanes", chunks.LANE_CODEC, len(table.lanes), lanes),
    ]


def decode_chunk(chunk: Chunk, place: str) -> NDArray[np.void]:
    """The array in a chunk, after checking its hash and row count.

    Raises:
        ChunkError: the chunk is damaged or of an unknown codec; ``place`` says which.
    """
    if hashlib.sha256(chunk.blob).hexdigest() != chunk.sha256:
        raise ChunkError(f"{place}: damaged, its {len(chunk.blob)} bytes do not match their sha256")
    if chunk.codec not in _DECODERS:
        raise ChunkError(f"{place}: unknown codec '{chunk.codec}'", "pip install --upgrade xstage-tune")
    try:
        rows = _DECODERS[chunk.codec](chunk.blob)
    except ChunkError as error:
        raise ChunkError(f"{place}: {error.message}") from error
    if len(rows) != chunk.n:
        raise ChunkError(f"{place}: damaged, {len(rows)} rows where {chunk.n} were written")
    return rows


def _chunk(rank: int, kind: str, codec: str, n: int, blob: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(blob).hexdigest()
    return {"rank": rank, "kind": kind, "codec": codec, "n": n, "sha256": digest, "blob": blob}


def _gpu_state(stored: dict[str, Any] | None) -> GpuState | None:
    if stored is None:
        return None
    return GpuState(**{**stored, "throttle_reasons": tuple(stored["throttle_reasons"])})
