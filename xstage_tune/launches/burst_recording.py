"""A recorded calibration: real spans of a real GPU in one file, for replay.

``recording.json`` in the archive names the device, the request and the runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from pydantic import TypeAdapter

from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.base.version import __version__
from xstage_tune.launches.archive import ArchiveKind, ArchiveWriter
from xstage_tune.launches.device import (
    BurstPoint,
    BurstRun,
    CopyRate,
    DeviceDescription,
    LaunchInfo,
    Verification,
)


@dataclass(frozen=True)
class RecordedRequest:
    """What was asked of the calibration: only the same request replays."""

    path: StorePath
    flavours: tuple[StoreFlavour, ...]
    budget: Literal["quick", "full"]
    seed: int


@dataclass(frozen=True)
class RecordedRun:
    """One run without its spans, which lie in the archive under its number."""

    point: BurstPoint
    verification: Verification
    launch: LaunchInfo


@dataclass(frozen=True)
class Manifest:
    """The content of ``recording.json``."""

    version: Literal[2]
    tool_version: str
    created_at: str
    device: DeviceDescription
    request: RecordedRequest
    copy_rates: list[CopyRate] = field(default_factory=list)
    runs: list[RecordedRun] = field(default_factory=list)


CALIBRATION = ArchiveKind(".xsrec", "recording.json", "calibrate", TypeAdapter(Manifest))


def new_manifest(device: DeviceDescription, request: RecordedRequest) -> Manifest:
    """Of a recording that begins now."""
    return Manifest(2, __version__, datetime.now(UTC).isoformat(timespec="seconds"), device, request)


def record_run(recording: ArchiveWriter[Manifest], run: BurstRun) -> None:
    """Keep a run.

    Raises:
        UsageError: the file cannot be written (a full disk, say).
    """
    runs = recording.manifest.runs
    recording.add_table(len(runs), run.table)
    runs.append(RecordedRun(run.point, run.verification, run.launch))
