"""A recorded emulation: what a real GPU made of skeletons, in one small file, for replay.

``emulation.json`` in the archive names the device, the request and the launches with their exact figures.
Spans are a sample: of the first launch of each skeleton, whole lanes spread over the SMs. The totals of every
launch are kept for each SM.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from xstage_tune import __version__
from xstage_tune.devices.archive import Archive, ArchiveWriter
from xstage_tune.devices.base import DeviceDescription, LaunchInfo, Verification
from xstage_tune.devices.skeleton_figures import LaunchFigures
from xstage_tune.devices.skeletons import LANE_TOTALS_DTYPE, Skeleton, SkeletonRun
from xstage_tune.spans import SpanTable

MANIFEST = "emulation.json"
SUFFIX = ".xsemu"
#: Of one launch: about 100 kB.
_MOST_SPANS = 12_000


@dataclass(frozen=True)
class RecordedLaunch:
    """One launch; its span sample and totals lie in the archive under its number."""

    label: str
    tiles_sha256: str
    makespan_ns: float
    figures: LaunchFigures
    kept_fraction: float
    verification: Verification
    launch: LaunchInfo


@dataclass(frozen=True)
class Manifest:
    """The content of ``emulation.json``.

    Args:
        identity: of the device, as results name it.
        request: keys of what was asked: only the same request replays.
    """

    version: Literal[1]
    tool_version: str
    created_at: str
    device: DeviceDescription
    identity: str
    request: dict[str, Any]
    launches: tuple[RecordedLaunch, ...] = ()


_MANIFEST = TypeAdapter(Manifest)


class SkeletonRecordingWriter:
    """Writes a recording, which takes its name when all of it is whole.

    Raises:
        UsageError: the file exists and ``force`` is off, or cannot be written.
    """

    def __init__(
        self,
        file: Path,
        device: DeviceDescription,
        identity: str,
        request: Mapping[str, Any],
        *,
        force: bool = False,
    ) -> None:
        created_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._manifest = Manifest(1, __version__, created_at, device, identity, dict(request))
        self._launches: list[RecordedLaunch] = []
        self._seen: Counter[str] = Counter()
        self._archive = ArchiveWriter(file, (MANIFEST, self._text), force=force)

    def add(self, run: SkeletonRun, figures: LaunchFigures) -> None:
        """Keep a launch.

        Raises:
            UsageError: the file cannot be written (a full disk, say).
        """
        number, label = len(self._launches), run.skeleton.label
        table = sampled(run.table, 0 if self._seen[label] else _MOST_SPANS)
        self._seen[label] += 1
        part = len(table.spans) / len(run.table.spans) if len(run.table.spans) else 0.0
        self._archive.add_table(number, table)
        self._archive.add_member(_totals_member(number), _packed(run.totals))
        self._launches.append(
            RecordedLaunch(
                label=label,
                tiles_sha256=tiles_sha256(run.skeleton),
                makespan_ns=run.makespan_ns,
                figures=figures,
                kept_fraction=part * run.kept_fraction,
                verification=run.verification,
                launch=run.launch,
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._archive.__exit__(kind, error, trace)

    def _text(self) -> bytes:
        return _MANIFEST.dump_json(replace(self._manifest, launches=tuple(self._launches)))


class SkeletonRecording:
    """A recording opened for replay.

    Raises:
        UsageError: the file is missing, truncated, damaged, of another version, or no recorded emulation.
    """

    def __init__(self, file: Path) -> None:
        self._archive = Archive(file, "emulate")
        self.manifest = self._archive.manifest(MANIFEST, _MANIFEST)

    def table(self, number: int) -> SpanTable:
        """The span sample of launch ``number``.

        Raises:
            UsageError: its members are damaged.
        """
        return self._archive.table(number)

    def totals(self, number: int) -> NDArray[np.void]:
        """What each SM did in launch ``number``, ``[SMs]`` of LANE_TOTALS_DTYPE.

        Raises:
            UsageError: its member is damaged.
        """
        packed = io.BytesIO(self._archive.member(_totals_member(number)))
        try:
            totals: NDArray[np.void] = np.load(packed, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise self._archive.damaged(f"totals of launch {number}: {error}") from None
        if totals.dtype != LANE_TOTALS_DTYPE:
            raise self._archive.damaged(f"totals of launch {number} are of another version")
        return totals

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._archive.close()


def sampled(table: SpanTable, most_spans: int) -> SpanTable:
    """All spans of lanes spread evenly, about ``most_spans`` in all; of the other lanes only the clocks."""
    chosen = np.zeros(len(table.lanes), np.bool_)
    if most_spans:
        chosen[:: max(1, ceil(len(table.spans) / most_spans))] = True
    lanes = table.lanes.copy()
    lanes["recorded"][~chosen] = 0
    return SpanTable(table.spans[chosen[table.spans["lane"]]], lanes)


def tiles_sha256(skeleton: Skeleton) -> str:
    """Hash of what a skeleton does on each SM, times to whole ns: what a recording of it is of."""
    streams = skeleton.streams
    digest = hashlib.sha256(f"{skeleton.staging_slots} {skeleton.completion_coupled}".encode())
    columns = (
        streams.first, streams.mainloop_ns, streams.staging_ns, streams.remote_bytes, streams.slot_offset_ns,
        streams.waits_on, skeleton.local_bytes,
    )  # fmt: skip
    for column in columns:
        digest.update(np.rint(column).astype("<i8").tobytes())
    return digest.hexdigest()


def _totals_member(number: int) -> str:
    return f"{number:05d}.totals"


def _packed(totals: NDArray[np.void]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, totals, allow_pickle=False)
    return buffer.getvalue()
