"""The seam where a fused kernel's skeleton runs: tiles of every SM in, spans out.

A skeleton is the fused kernel without its arithmetic: the same persistent CTAs, roles, staging slots, tile
order, dependencies, destinations and stores, each mainloop replaced by a spin of the same length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.base.spans import SpanTable
from xstage_tune.launches.device import DeviceDescription, LaunchInfo, Verification
from xstage_tune.launches.streams import Floats, Streams


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


#: What one SM did in all, exact however few of its spans were kept; times in ns.
LANE_TOTALS_DTYPE = np.dtype(
    [
        ("tiles", "<u4"),
        ("remote_tiles", "<u4"),  # of them, those with remote bytes
        ("mainloop_ns", "<f8"),
        ("staging_stall_ns", "<f8"),
        ("dependency_wait_ns", "<f8"),
        ("issue_ns", "<f8"),  # T_RS of all tiles
        ("remote_issue_ns", "<f8"),  # T_RS of the tiles with remote bytes
        ("completion_ns", "<f8"),  # waits for visibility, after T_RS; completion-coupled only
        ("signal_ns", "<f8"),  # from a tile's last local store accepted to its counter's being raised
        ("finish_ns", "<f8"),  # from the common start until its last store is accepted
    ]
)


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
    """

    label: str
    streams: Streams
    local_bytes: Floats
    staging_slots: int
    flavour: StoreFlavour
    path: StorePath
    scheduling: TileScheduling | None = None
    completion_coupled: bool = False


@dataclass(frozen=True, slots=True)
class SkeletonRun:
    """The outcome of one launch of a :class:`Skeleton`.

    Spans are MAINLOOP (the spin, without the waits: two spans where the slot is taken in the middle of it),
    STAGING_STALL, DEPENDENCY_WAIT (role 0) and ISSUE (T_RS: the issue role turns to a finished tile until its
    last store is accepted; role 1); ``index`` is the tile's place on its SM. A launch whose spans do not fit
    beside its slots keeps those of every so many tiles.

    Args:
        totals: ``[SMs]`` of :data:`LANE_TOTALS_DTYPE`, over all tiles.
        kept_fraction: part of the tiles whose spans are in ``table``, evenly spread over each SM's order.
        makespan_ns: from the common start until the last store of the last SM is accepted.
    """

    skeleton: Skeleton
    table: SpanTable
    totals: NDArray[np.void]
    kept_fraction: float
    makespan_ns: float
    verification: Verification
    launch: LaunchInfo


class SkeletonDevice(Protocol):
    """Where skeletons run."""

    #: What ran them, as results name it: times of different identities are never compared.
    identity: str

    def describe(self) -> DeviceDescription:
        """Identity of the device; cheap."""
        ...

    def label_launches(self, run_id: str) -> None:
        """As :meth:`xstage_tune.launches.device.BurstDevice.label_launches`."""
        ...

    def run_skeletons(self, skeletons: Sequence[Skeleton]) -> Iterator[SkeletonRun]:
        """Run the skeletons in order, yielding each as soon as it is measured.

        Raises:
            UsageError: a skeleton does not fit the device (says how many staging slots would), a mainloop is
                0, or longer than a launch may take.
            DeviceError: the device cannot run one, or a wait inside it ran out (names CTA, role, tile,
                expected and seen).
        """
        ...

    def close(self) -> None:
        """Free what the device holds; safe to call twice."""
        ...
