"""The seam where a fused kernel's skeleton runs: tiles of every SM in, spans out.

A skeleton is the fused kernel without its arithmetic: the same persistent CTAs, roles, staging slots, tile
order, dependencies, destinations and stores, each mainloop replaced by a spin of the same length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.base.spans import SpanTable
from xstage_tune.launches.device import LaunchKind, Outcome
from xstage_tune.launches.skeleton_figures import LANE_TOTALS_DTYPE, LaunchFigures
from xstage_tune.launches.streams import Floats, Streams

#: In the arrays of an outcome: ``[SMs]`` of LANE_TOTALS_DTYPE, over all tiles.
TOTALS = "totals"
#: Of one launch: about 100 kB.
_MOST_RECORDED_SPANS = 12_000


@dataclass(frozen=True, slots=True)
class SchedulerTables:
    """What a scheduler on the device reads.

    Args:
        parameters: ``[1]`` its struct; the pointers in it are 0.
        arrays: what those point to, by the struct's field; fields that are missing stay 0.
        experts: how many there are, which its share of shared memory grows with.
    """

    parameters: NDArray[np.void]
    arrays: Mapping[str, NDArray[Any]]
    experts: int


class TileScheduling(Protocol):
    """An order that the device finds by itself, from a few numbers, while it runs."""

    def require_streams(self, streams: Streams) -> None:
        """Refuse streams that are not those of this order.

        Raises:
            UsageError: they are another order's.
        """
        ...

    def order_checks(self) -> NDArray[np.uint64]:
        """``[SMs]`` sums over the tiles of each SM, which the device makes too."""
        ...

    def tables(self) -> SchedulerTables:
        """What the scheduler reads."""
        ...


@dataclass(frozen=True, slots=True)
class Skeleton:
    """One launch.

    Args:
        label: names the case in tables, e.g. ``interleaved D=4``.
        streams: what each SM does, in order. ``staging_ns`` is what the issue role spends on a tile beyond
            its stores (a spin); on a device the stores take their own time.
        local_bytes: ``[n]`` what each tile stores to the GPU's own memory, before its remote bytes.
        staging_slots: S.
        flavour: of all stores, but those of a tile that others wait for: these leave as bulk copies.
        path: of the remote stores.
        scheduling: of a device that finds the order, that of ``streams``, by itself; None where it is listed.
        completion_coupled: the issue role waits until a tile's stores are visible to their owner.
        config: keys of the kernel's config, and ``repeat``, how many launches of the label came before: these
            are kept with the launch, and change nothing of it.
    """

    label: str
    streams: Streams
    local_bytes: Floats
    staging_slots: int
    flavour: StoreFlavour
    path: StorePath
    scheduling: TileScheduling | None = None
    completion_coupled: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)
    repeat: int = 0

    @property
    def kind(self) -> LaunchKind[Skeleton, LaunchFigures, SkeletonPoint]:
        """See :class:`~xstage_tune.launches.device.Launch`."""
        return SKELETONS


#: Spans are MAINLOOP (the spin, without the waits: two spans where the slot is taken in the middle of it),
#: STAGING_STALL, DEPENDENCY_WAIT (role 0) and ISSUE (T_RS: the issue role turns to a finished tile until its
#: last store is accepted; role 1); ``index`` is the tile's place on its SM. A launch whose spans do not fit
#: beside its slots keeps those of every so many tiles, evenly spread over each SM's order.
SkeletonRun = Outcome[Skeleton, LaunchFigures]


@dataclass(frozen=True, slots=True)
class SkeletonPoint:
    """A launched skeleton in the store.

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

    @property
    def burst_bytes(self) -> int:
        """See :class:`~xstage_tune.launches.device.Point`."""
        return self.remote_tile_bytes

    @property
    def gap_ns(self) -> int:
        """See :class:`~xstage_tune.launches.device.Point`."""
        return 0


class _Skeletons(LaunchKind[Skeleton, LaunchFigures, SkeletonPoint]):
    """Of the first launch of each skeleton a recording keeps a sample of the spans, of all the totals."""

    name = "skeletons"
    figures = TypeAdapter(LaunchFigures)
    arrays: Mapping[str, np.dtype[Any]] = {TOTALS: LANE_TOTALS_DTYPE}
    modes = ("skeleton",)
    points = TypeAdapter(SkeletonPoint)

    def keys(self, launch: Skeleton) -> dict[str, Any]:
        return {"label": launch.label}

    def sha256(self, launch: Skeleton) -> str:
        """Of what is done on each SM, times to whole ns."""
        streams = launch.streams
        digest = hashlib.sha256(f"{launch.staging_slots} {launch.completion_coupled}".encode())
        columns = (
            streams.first, streams.mainloop_ns, streams.staging_ns, streams.remote_bytes,
            streams.slot_offset_ns, streams.waits_on, launch.local_bytes,
        )  # fmt: skip
        for column in columns:
            digest.update(np.rint(column).astype("<i8").tobytes())
        return digest.hexdigest()

    def rows(self, launch: Skeleton) -> int:
        """One an SM."""
        return launch.streams.sms

    def words(self, launch: Skeleton) -> str:
        return launch.label

    def recorded_spans(self, outcome: SkeletonRun, before: int) -> SpanTable:
        return sampled(outcome.table, 0 if before else _MOST_RECORDED_SPANS)

    def point(self, outcome: SkeletonRun) -> SkeletonPoint:
        launch = outcome.launch
        remote_bytes = launch.streams.remote_bytes
        return SkeletonPoint(
            label=launch.label,
            path=launch.path,
            flavour=launch.flavour,
            producers=launch.streams.sms,
            tiles=launch.streams.tiles,
            remote_bytes=int(remote_bytes.sum()),
            remote_tile_bytes=int(remote_bytes.max(initial=0.0)),
            staging_slots=launch.staging_slots,
            completion_coupled=launch.completion_coupled,
            config=dict(launch.config),
            repeat=launch.repeat,
            kept_fraction=outcome.kept_fraction,
        )


SKELETONS = _Skeletons()


def sampled(table: SpanTable, most_spans: int) -> SpanTable:
    """All spans of lanes spread evenly, about ``most_spans`` in all; of the other lanes only the clocks."""
    chosen = np.zeros(len(table.lanes), np.bool_)
    if most_spans:
        chosen[:: max(1, ceil(len(table.spans) / most_spans))] = True
    lanes = table.lanes.copy()
    lanes["recorded"][~chosen] = 0
    return SpanTable(table.spans[chosen[table.spans["lane"]]], lanes)
