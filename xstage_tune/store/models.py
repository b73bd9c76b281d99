"""Tables of the store. Schema changes go through a migration in ``store/versions``.

Rows handed out by the facade are detached: read them, do not change them.
"""

from __future__ import annotations

from typing import Annotated, Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from xstage_tune.store.checksums import Checked
from xstage_tune.store.process import ProcessIdentity
from xstage_tune.store.types import ANY_FLOAT, ExplicitJson

NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

RUN_STATUSES = ("running", "finished", "failed", "interrupted", "stale")
STUDY_STATUSES = ("running", "finished", "failed", "interrupted")
TRIAL_STATES = ("complete", "pruned", "failed", "cut")
CHUNK_KINDS = ("spans", "lanes")

RowId = Annotated[int, mapped_column(Integer, primary_key=True)]
Utc = Annotated[str, "ISO 8601 in UTC with microseconds, so that text order is time order"]


def _one_of(column: str, values: tuple[str, ...]) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


class Base(DeclarativeBase):
    """Declarative base: every constraint has a name, so that migrations can change it."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)
    type_annotation_map = {  # noqa: RUF012 - read by SQLAlchemy on the class
        str: String(),
        Utc: String(),
        int: BigInteger(),
        float: ANY_FLOAT,
        bytes: LargeBinary(),
        dict[str, Any]: ExplicitJson(),
        list[str]: ExplicitJson(),
    }


class OfProcess:
    """Columns of a row that one process writes: which it is, so that its death can be noticed."""

    host: Mapped[str]
    pid: Mapped[int]
    boot_id: Mapped[str]
    pid_namespace: Mapped[str]
    process_start_ticks: Mapped[int]

    @property
    def process(self) -> ProcessIdentity:
        """The process of these columns."""
        return ProcessIdentity(
            self.host, self.pid, self.boot_id, self.pid_namespace, self.process_start_ticks
        )

    @staticmethod
    def columns_of(process: ProcessIdentity) -> dict[str, str | int]:
        """These columns for a process."""
        return {
            "host": process.host,
            "pid": process.pid,
            "boot_id": process.boot_id,
            "pid_namespace": process.pid_namespace,
            "process_start_ticks": process.start_ticks,
        }


class Environment(Checked, Base):
    """Where runs were made: a host, its software and one device; one row for each that differs."""

    __tablename__ = "environment"

    id: Mapped[RowId]
    identity_sha256: Mapped[str] = mapped_column(unique=True)  # of all columns below
    host: Mapped[str]
    system: Mapped[str]  # operating system and Python
    device_kind: Mapped[str]
    gpu_name: Mapped[str]
    gpu_uuid: Mapped[str]
    driver: Mapped[str]
    cuda: Mapped[str]
    nvrtc: Mapped[str]
    torch: Mapped[str]  # empty when not installed
    device: Mapped[dict[str, Any]]  # the whole DeviceDescription, with its link and topology


class Run(OfProcess, Checked, Base):
    """One command that measured, searched or simulated."""

    __tablename__ = "run"
    __table_args__ = (_one_of("status", RUN_STATUSES), Index(None, "kind", "started_at"))

    id: Mapped[str] = mapped_column(primary_key=True)
    environment_id: Mapped[int] = mapped_column(Integer, ForeignKey("environment.id"))
    kind: Mapped[str]
    status: Mapped[str]
    started_at: Mapped[Utc]
    finished_at: Mapped[Utc | None]
    error: Mapped[str | None]
    argv: Mapped[list[str]]
    tool_version: Mapped[str]
    git_state: Mapped[str]  # commit of the tool's checkout, "-dirty" when changed; empty when installed
    seed: Mapped[int | None]
    parameters: Mapped[dict[str, Any]]
    path: Mapped[str]  # of the remote stores; empty when none or several
    kernel_sha256: Mapped[str]
    profile_sha256: Mapped[str]

    environment: Mapped[Environment] = relationship(lazy="joined", innerjoin=True)


class Launch(Checked, Base):
    """One launch of a run: what was asked, how it ran, and whether the owner's data were right."""

    __tablename__ = "launch"
    __table_args__ = (
        UniqueConstraint("run_id", "sequence"),
        Index("ix_launch_point", "mode", "path", "flavour", "producers", "burst_bytes", "gap_ns"),
    )

    id: Mapped[RowId]
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    sequence: Mapped[int]
    mode: Mapped[str]
    path: Mapped[str]
    flavour: Mapped[str]
    producers: Mapped[int]
    burst_bytes: Mapped[int]
    gap_ns: Mapped[int]
    point: Mapped[dict[str, Any]]  # what was asked, as the launch's kind writes it
    kernel: Mapped[str]
    kernel_sha256: Mapped[str]
    registers: Mapped[int]
    spill_bytes: Mapped[int]
    shared_bytes: Mapped[int]
    timer_tick_ns: Mapped[int]
    elapsed_ns: Mapped[int]
    started_at: Mapped[Utc]
    gpu_before: Mapped[dict[str, Any] | None]
    gpu_after: Mapped[dict[str, Any] | None]
    checked_bytes: Mapped[int]
    mismatched_bytes: Mapped[int]
    measured: Mapped[dict[str, Any] | None]  # figures of the launch's kind; a burst's are in its spans


class Chunk(Base):
    """The spans or the lanes of one launch on one rank, packed (see :mod:`xstage_tune.base.chunks`)."""

    __tablename__ = "chunk"
    __table_args__ = (UniqueConstraint("launch_id", "rank", "kind"), _one_of("kind", CHUNK_KINDS))

    id: Mapped[RowId]
    launch_id: Mapped[int] = mapped_column(Integer, ForeignKey("launch.id", ondelete="CASCADE"))
    rank: Mapped[int]
    kind: Mapped[str]
    codec: Mapped[str]
    n: Mapped[int]  # rows in the array
    sha256: Mapped[str]  # of the blob
    blob: Mapped[bytes]


class Fit(Checked, Base):
    """What was concluded from a run."""

    __tablename__ = "fit"

    id: Mapped[RowId]
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), index=True)
    kind: Mapped[str]
    created_at: Mapped[Utc]
    payload: Mapped[dict[str, Any]]


class Study(Checked, Base):
    """One search over the configs of a workload; several runs may continue it."""

    __tablename__ = "study"
    __table_args__ = (_one_of("status", STUDY_STATUSES),)

    id: Mapped[str] = mapped_column(primary_key=True)
    status: Mapped[str]
    created_at: Mapped[Utc]
    finished_at: Mapped[Utc | None]
    workload: Mapped[str]
    workload_sha256: Mapped[str] = mapped_column(index=True)
    platform: Mapped[str]
    platform_sha256: Mapped[str]
    space: Mapped[dict[str, Any]]
    device: Mapped[str]
    objective: Mapped[str]
    sampler: Mapped[str]
    seed: Mapped[int]


class StudyHolder(OfProcess, Checked, Base):
    """The process that searches a study; none where nobody does. A process that died leaves its row."""

    __tablename__ = "study_holder"

    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"), primary_key=True)
    since: Mapped[Utc]
    seen_at: Mapped[Utc]  # when it began, or last kept a trial


class Trial(Checked, Base):
    """One config of a study: measured, pruned, failed, or cut before it ran."""

    __tablename__ = "trial"
    __table_args__ = (UniqueConstraint("study_id", "number"), _one_of("state", TRIAL_STATES))

    id: Mapped[RowId]
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"))
    run_id: Mapped[str | None] = mapped_column(ForeignKey("run.id", ondelete="SET NULL"), index=True)
    number: Mapped[int]
    state: Mapped[str]
    params: Mapped[dict[str, Any]]
    objective_ns: Mapped[float | None]
    bound_ns: Mapped[float | None]
    latency_ns: Mapped[float | None]  # of the launch, whatever the objective; NULL in trials of before 0004
    reason: Mapped[str]  # why it was cut, pruned or failed; empty otherwise
    verification: Mapped[dict[str, Any] | None]
    created_at: Mapped[Utc]
    fault: Mapped[str | None]  # what a failure comes under; NULL in trials of before 0006, and of others
    measured: Mapped[dict[str, Any] | None]  # samples and the GPU's states; NULL as fault, and of no run


class Export(Checked, Base):
    """A file that a study's winner was written to."""

    __tablename__ = "export"

    id: Mapped[RowId]
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"), index=True)
    format: Mapped[str]
    path: Mapped[str]
    sha256: Mapped[str]
    created_at: Mapped[Utc]
