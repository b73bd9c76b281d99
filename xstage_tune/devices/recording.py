"""A recorded calibration: real spans of a real GPU in one file, for replay.

``recording.json`` in the archive names the device, the request and the runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from pydantic import TypeAdapter

from xstage_tune import __version__
from xstage_tune.devices.archive import Archive, ArchiveWriter
from xstage_tune.devices.base import (
    BurstPoint,
    BurstRun,
    CopyRate,
    DeviceDescription,
    LaunchInfo,
    StoreFlavour,
    StorePath,
    Verification,
)
from xstage_tune.spans import SpanTable

MANIFEST = "recording.json"
SUFFIX = ".xsrec"


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

    version: Literal[1]
    tool_version: str
    created_at: str
    device: DeviceDescription
    request: RecordedRequest
    copy_rates: tuple[CopyRate, ...] = ()
    runs: tuple[RecordedRun, ...] = field(default=())


_MANIFEST = TypeAdapter(Manifest)


class RecordingWriter:
    """Writes a recording, which takes its name when all of it is whole.

    Raises:
        UsageError: the file exists and ``force`` is off, or cannot be written.
    """

    def __init__(
        self, file: Path, device: DeviceDescription, request: RecordedRequest, *, force: bool = False
    ) -> None:
        created_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._manifest = Manifest(1, __version__, created_at, device, request)
        self._runs: list[RecordedRun] = []
        self._archive = ArchiveWriter(file, (MANIFEST, self._text), force=force)

    def add_copy_rate(self, rate: CopyRate) -> None:
        """Keep the copy engine's rate on a path."""
        self._manifest = replace(self._manifest, copy_rates=(*self._manifest.copy_rates, rate))

    def add_run(self, run: BurstRun) -> None:
        """Keep a run.

        Raises:
            UsageError: the file cannot be written (a full disk, say).
        """
        self._archive.add_table(len(self._runs), run.table)
        self._runs.append(RecordedRun(run.point, run.verification, run.launch))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._archive.__exit__(kind, error, trace)

    def _text(self) -> bytes:
        return _MANIFEST.dump_json(replace(self._manifest, runs=tuple(self._runs)))


class Recording:
    """A recording opened for replay; spans are decoded run by run.

    Raises:
        UsageError: the file is missing, truncated, damaged, or of another version.
    """

    def __init__(self, file: Path) -> None:
        self._archive = Archive(file, "calibrate")
        self.manifest = self._archive.manifest(MANIFEST, _MANIFEST)

    def table(self, number: int) -> SpanTable:
        """Spans and lanes of run ``number``.

        Raises:
            UsageError: its members are damaged.
        """
        return self._archive.table(number)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._archive.close()
