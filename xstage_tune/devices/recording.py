"""A recorded calibration: real spans of a real GPU in one file, for replay.

A zip file: ``recording.json`` names the device, the request and the runs; each run has a member of spans and
one of lanes, encoded as the store's chunks are. The zip's own checksums and its directory at the end tell a
damaged or truncated file.
"""

from __future__ import annotations

import zipfile
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from pydantic import TypeAdapter, ValidationError

from xstage_tune import __version__
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
from xstage_tune.errors import UsageError
from xstage_tune.files import whole_file
from xstage_tune.spans import SpanTable
from xstage_tune.store.chunks import (
    ChunkError,
    decode_lanes,
    decode_spans,
    encode_lanes,
    encode_spans,
)

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
    """One run without its spans, which lie in members ``<number>.spans`` and ``<number>.lanes``."""

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


def _members(number: int) -> tuple[str, str]:
    return f"{number:05d}.spans", f"{number:05d}.lanes"


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
        self._exits = ExitStack()
        opened = self._exits.enter_context(whole_file(file, force=force))
        self._zip = zipfile.ZipFile(opened, "w", zipfile.ZIP_STORED)
        self._exits.push(self._finish)

    def add_copy_rate(self, rate: CopyRate) -> None:
        """Keep the copy engine's rate on a path."""
        self._manifest = replace(self._manifest, copy_rates=(*self._manifest.copy_rates, rate))

    def add_run(self, run: BurstRun) -> None:
        """Keep a run.

        Raises:
            UsageError: the file cannot be written (a full disk, say).
        """
        spans, lanes = _members(len(self._runs))
        self._zip.writestr(spans, encode_spans(run.table.spans))
        self._zip.writestr(lanes, encode_lanes(run.table.lanes))
        self._runs.append(RecordedRun(run.point, run.verification, run.launch))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exits.__exit__(kind, error, trace)

    def _finish(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        """End the zip; its manifest is written last, and only where nothing went wrong."""
        with self._zip:
            if kind is None:
                manifest = replace(self._manifest, runs=tuple(self._runs))
                # Points, launches and states are small and alike: the one member that is worth deflating.
                self._zip.writestr(MANIFEST, _MANIFEST.dump_json(manifest), zipfile.ZIP_DEFLATED)


class Recording:
    """A recording opened for replay; spans are decoded run by run.

    Raises:
        UsageError: the file is missing, truncated, damaged, or of another version.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self._zip = zipfile.ZipFile(file)
            self.manifest = _MANIFEST.validate_json(self._zip.read(MANIFEST))
        except FileNotFoundError:
            raise UsageError(f"no recording at {file}", "check the path") from None
        except OSError as error:
            raise UsageError(f"cannot read recording {file}: {error.strerror}", "check the path") from None
        except (zipfile.BadZipFile, KeyError) as error:
            raise self._damaged(f"it is truncated or no recording ({error})") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise self._damaged(f"{MANIFEST}: {where}: {first['msg']}") from None

    def table(self, number: int) -> SpanTable:
        """Spans and lanes of run ``number``.

        Raises:
            UsageError: its members are damaged.
        """
        try:
            spans, lanes = (self._zip.read(name) for name in _members(number))
            return SpanTable(decode_spans(spans), decode_lanes(lanes))
        except (zipfile.BadZipFile, KeyError, OSError, ChunkError) as error:
            raise self._damaged(f"run {number}: {error}") from None

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._zip.close()

    def _damaged(self, reason: str) -> UsageError:
        return UsageError(
            f"recording {self._file} cannot be replayed: {reason}",
            "copy the file again, or record anew with: xstage-tune calibrate --record FILE",
        )
