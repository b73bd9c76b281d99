"""A recorded emulation: what a real GPU made of skeletons, in one small file, for replay.

``emulation.json`` in the archive names the device, the request and the launches with their exact figures.
Spans are a sample: of the first launch of each skeleton, whole lanes spread over the SMs. The totals of every
launch are kept for each SM.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from xstage_tune.base.spans import SpanTable
from xstage_tune.launches.archive import Archive, ArchiveKind, ArchiveWriter
from xstage_tune.launches.device import LaunchInfo, Verification
from xstage_tune.launches.launch_recording import LaunchManifest
from xstage_tune.launches.skeleton_figures import LaunchFigures
from xstage_tune.launches.skeletons import LANE_TOTALS_DTYPE, Skeleton, SkeletonRun

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


EMULATION = ArchiveKind(".xsemu", "emulation.json", "emulate", TypeAdapter(LaunchManifest[RecordedLaunch]))


def record_launch(
    recording: ArchiveWriter[LaunchManifest[RecordedLaunch]], run: SkeletonRun, figures: LaunchFigures
) -> None:
    """Keep a launch.

    Raises:
        UsageError: the file cannot be written (a full disk, say).
    """
    launches, label = recording.manifest.launches, run.skeleton.label
    number = len(launches)
    first = all(launch.label != label for launch in launches)
    table = sampled(run.table, _MOST_SPANS if first else 0)
    part = len(table.spans) / len(run.table.spans) if len(run.table.spans) else 0.0
    recording.add_table(number, table)
    recording.add_member(_totals_member(number), _packed(run.totals))
    launches.append(
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


def recorded_totals(recording: Archive[LaunchManifest[RecordedLaunch]], number: int) -> NDArray[np.void]:
    """What each SM did in launch ``number``, ``[SMs]`` of LANE_TOTALS_DTYPE.

    Raises:
        UsageError: its member is damaged.
    """
    packed = io.BytesIO(recording.member(_totals_member(number)))
    try:
        totals: NDArray[np.void] = np.load(packed, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise recording.damaged(f"totals of launch {number}: {error}") from None
    if totals.dtype != LANE_TOTALS_DTYPE:
        raise recording.damaged(f"totals of launch {number} are of another version")
    return totals


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
