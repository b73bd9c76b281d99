"""Launches in the store: rows and chunks from a measured run, and back."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import func, select

from xstage_tune.base import chunks
from xstage_tune.base.chunks import ChunkError
from xstage_tune.base.errors import StoreError
from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.base.spans import SpanTable
from xstage_tune.families.attention_a2a.budget import staged_rows
from xstage_tune.families.attention_a2a.timing import STORE_LOCALLY, Implementation, ProfileLaunch
from xstage_tune.families.config_files import config_keys
from xstage_tune.launches.device import BurstPoint, BurstRun, GpuState, LaunchInfo, Verification
from xstage_tune.launches.skeletons import SkeletonRun
from xstage_tune.store.database import Database
from xstage_tune.store.models import Chunk, Launch

_DECODERS = {chunks.SPAN_CODEC: chunks.decode_spans, chunks.LANE_CODEC: chunks.decode_lanes}


@dataclass(frozen=True, slots=True)
class SkeletonPoint:
    """What a launch of a skeleton was asked to do.

    Args:
        label: of the skeleton.
        remote_tile_bytes: the most that one tile stores remotely.
        config: keys of the kernel's config.
        repeat: how many launches of the label came before.
        kept_fraction: part of the tiles whose spans are kept.
    """

    label: str
    path: StorePath
    flavour: StoreFlavour
    producers: int
    tiles: int
    remote_bytes: int
    remote_tile_bytes: int
    staging_slots: int
    completion_coupled: bool
    config: dict[str, Any]
    repeat: int
    kept_fraction: float = 1.0
    mode: Literal["skeleton"] = "skeleton"


def skeleton_point(run: SkeletonRun, config: dict[str, Any], repeat: int) -> SkeletonPoint:
    """The point of a launched skeleton."""
    skeleton = run.skeleton
    remote_bytes = skeleton.streams.remote_bytes
    return SkeletonPoint(
        label=skeleton.label,
        path=skeleton.path,
        flavour=skeleton.flavour,
        producers=skeleton.streams.sms,
        tiles=skeleton.streams.tiles,
        remote_bytes=int(remote_bytes.sum()),
        remote_tile_bytes=int(remote_bytes.max(initial=0.0)),
        staging_slots=skeleton.staging_slots,
        completion_coupled=skeleton.completion_coupled,
        config=config,
        repeat=repeat,
        kept_fraction=run.kept_fraction,
    )


@dataclass(frozen=True, slots=True)
class ProfilePoint:
    """What a launch of a profiled attention was asked to do.

    Args:
        label: of the case; empty for a run's only one.
        what: kind of the launch, as its figures name it.
        producers: CTAs of the attention, SMs of an All-to-All.
        remote_tile_bytes: that a CTA of the fused kernel stores of an output tile; 0 where none has remote
            bytes.
        config: keys of the attention's config.
    """

    label: str
    implementation: Implementation
    what: Literal["check", "replay", "spans"]
    path: StorePath
    flavour: StoreFlavour
    producers: int
    tokens: int
    heads: int
    head_dim: int
    ranks: int
    remote_ranks: int
    remote_bytes: int
    remote_tile_bytes: int
    config: dict[str, Any]
    mode: Literal["profile"] = "profile"


Point = BurstPoint | SkeletonPoint | ProfilePoint


def profile_point(done: ProfileLaunch) -> ProfilePoint:
    """The point of a launch of a profiled attention."""
    case = done.case
    remote = 0 if done.implementation in STORE_LOCALLY else case.remote_bytes
    rows = min(staged_rows(case.config), case.tokens)
    return ProfilePoint(
        label=case.label,
        implementation=done.implementation,
        what=done.figures.what,
        path=case.path if remote else "local",
        flavour=case.config.store_flavour,
        producers=done.producers,
        tokens=case.tokens,
        heads=case.heads,
        head_dim=case.head_dim,
        ranks=case.ranks,
        remote_ranks=case.remote_ranks,
        remote_bytes=remote,
        remote_tile_bytes=case.output_bytes // case.tokens // case.heads * rows if remote else 0,
        config=config_keys(case.config),
    )


@dataclass(frozen=True, slots=True)
class StoredLaunch:
    """One launch of a run; its spans are read, and checked, when they are asked for."""

    run_id: str
    sequence: int
    point: Point
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

    def burst_run(self, rank: int = 0) -> BurstRun:
        """A launch of bursts as the device returned it.

        Raises:
            ChunkError, StoreError: as :meth:`table`; or the launch was of no bursts.
        """
        if not isinstance(self.point, BurstPoint):
            place = launch_place(self.run_id, self.sequence, rank)
            raise StoreError(
                f"store {self.database.location}: {place} is of a {self.point.mode}, not of bursts"
            )
        return BurstRun(self.point, self.table(rank), self.verification, self.info)


def launch_place(run_id: str, sequence: int, rank: int) -> str:
    """How errors name a launch of one rank."""
    return f"run {run_id}, launch {sequence}, rank {rank}"


def launch_row(run_id: str, sequence: int, burst: BurstRun) -> Launch:
    """The row of one launch of bursts, without its chunks."""
    return Launch(
        run_id=run_id,
        sequence=sequence,
        burst_bytes=burst.point.burst_bytes,
        gap_ns=burst.point.gap_ns,
        **_launch_values(burst.point, burst.launch, burst.verification),
    )


def skeleton_row(
    run_id: str, sequence: int, run: SkeletonRun, point: SkeletonPoint, measured: dict[str, Any]
) -> Launch:
    """The row of one launch of a skeleton, without its chunks; its gaps are many, so it has none."""
    return Launch(
        run_id=run_id,
        sequence=sequence,
        burst_bytes=point.remote_tile_bytes,
        gap_ns=0,
        measured=measured,
        **_launch_values(point, run.launch, run.verification),
    )


def profile_row(run_id: str, sequence: int, done: ProfileLaunch) -> Launch:
    """The row of one launch of a profiled attention, without its chunks."""
    point = profile_point(done)
    return Launch(
        run_id=run_id,
        sequence=sequence,
        burst_bytes=point.remote_tile_bytes,
        gap_ns=0,
        measured=asdict(done.figures),
        **_launch_values(point, done.launch, done.verification),
    )


def _launch_values(point: Point, info: LaunchInfo, verification: Verification) -> dict[str, Any]:
    """The columns that launches of every kind fill alike."""
    return {
        "mode": point.mode,
        "path": point.path,
        "flavour": point.flavour,
        "producers": point.producers,
        "point": point_values(point),
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
    )
    verification = Verification(row.checked_bytes, row.mismatched_bytes)
    return StoredLaunch(
        run_id=row.run_id,
        sequence=row.sequence,
        point=_point(row.point),
        measured=row.measured,
        verification=verification,
        info=info,
        launch_id=row.id,
        database=database,
    )


def point_values(point: Point) -> dict[str, Any]:
    """A point as the store keeps it, in JSON's types."""
    values = asdict(point)
    return {**values, "idle_sms": list(point.idle_sms)} if isinstance(point, BurstPoint) else values


def _point(stored: dict[str, Any]) -> Point:
    if stored["mode"] == "skeleton":
        return SkeletonPoint(**stored)
    if stored["mode"] == "profile":
        return ProfilePoint(**stored)
    return BurstPoint(**{**stored, "idle_sms": tuple(stored.get("idle_sms", ()))})


def chunk_rows(table: SpanTable, rank: int) -> list[Chunk]:
    """The two chunks of one rank's spans, not yet tied to a launch."""
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


def _chunk(rank: int, kind: str, codec: str, n: int, blob: bytes) -> Chunk:
    digest = hashlib.sha256(blob).hexdigest()
    return Chunk(rank=rank, kind=kind, codec=codec, n=n, sha256=digest, blob=blob)


def _gpu_state(stored: dict[str, Any] | None) -> GpuState | None:
    if stored is None:
        return None
    return GpuState(**{**stored, "throttle_reasons": tuple(stored["throttle_reasons"])})
