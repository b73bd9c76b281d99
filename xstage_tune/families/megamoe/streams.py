"""A MegaMoE layer as tile streams for the pipeline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError
from xstage_tune.families.megamoe.order import LINEAR1, LINEAR2, MoeGrid, MoeOrder
from xstage_tune.launches.streams import NO_COUNTER, Floats, Streams


@dataclass(frozen=True, slots=True)
class MoeStores:
    """What the epilogues store, for one token of a full tile, and at what cost.

    Args:
        l1_bytes_per_token: activations of a Linear-1 tile, all local.
        l2_bytes_per_token: Combine output of a Linear-2 tile, ``block_n`` elements.
        remote_fraction: part of the Combine output whose tokens belong to other ranks.
        local_bytes_per_ns: rate of one SM's local stores.
        fixed_ns: of the issue role for every tile (barriers, the staging copy).
    """

    l1_bytes_per_token: float
    l2_bytes_per_token: float
    remote_fraction: float
    local_bytes_per_ns: float
    fixed_ns: float = 0.0


def given_mainloop_ns(order: MoeOrder, *, l1_ns: float, l2_ns: float) -> Floats:
    """Mainloop of each tile ``[n]`` from the time of a full tile of either layer.

    A partial row takes as long as a full one: the tensor cores compute on the padding.
    """
    return np.where(order.layer == LINEAR1, l1_ns, l2_ns)


def megamoe_streams(
    grid: MoeGrid,
    order: MoeOrder,
    mainloop_ns: Floats,
    stores: MoeStores,
    *,
    ring_rows: int | None = None,
    dependencies: bool = True,
) -> Streams:
    """Streams of a layer: Linear-2 waits on its row's Linear-1, and Linear-1 on its ring slot.

    Counters 0 to P - 1 count a row's stored Linear-1 tiles; with a ring, counters P to 2P - 1 its read
    Linear-2 tiles. Mainloops take their slot at entry (accumulators in tensor memory).

    Args:
        grid: the layer's tiles.
        order: of the tiles, by :func:`~.megamoe_order.megamoe_order`.
        mainloop_ns: ``[n]``, in the order of ``order``.
        stores: what the tiles store.
        ring_rows: rows of Linear-1 output that fit; None for no limit.
        dependencies: False runs the tiles as if all inputs were ready, as a plain skeleton does.

    Raises:
        UsageError: the ring is too small for the order, which would deadlock.
    """
    local, remote = moe_store_bytes(grid, order, stores)
    waits_on, signals, counters = _counters(grid, order, ring_rows, dependencies)
    return Streams(
        first=order.first,
        mainloop_ns=np.asarray(mainloop_ns, np.float64),
        staging_ns=stores.fixed_ns + local / stores.local_bytes_per_ns,
        remote_bytes=remote,
        slot_offset_ns=np.zeros(order.layer.size),
        waits_on=waits_on,
        signals=signals,
        signals_at_end=order.layer == LINEAR2,
        counters=counters,
    )


def moe_store_bytes(grid: MoeGrid, order: MoeOrder, stores: MoeStores) -> tuple[Floats, Floats]:
    """What each tile stores locally and remotely, ``[n]`` each, in bytes."""
    linear2 = order.layer == LINEAR2
    tokens = grid.row_tokens[order.row] * order.filled(grid)
    combine = np.where(linear2, tokens * stores.l2_bytes_per_token, 0.0)
    remote = combine * stores.remote_fraction
    return np.where(linear2, combine - remote, tokens * stores.l1_bytes_per_token), remote


def _counters(
    grid: MoeGrid, order: MoeOrder, ring_rows: int | None, dependencies: bool
) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    none = np.full(order.layer.size, NO_COUNTER, np.int32)
    if not dependencies:
        return none, none, 0
    linear2 = order.layer == LINEAR2
    row = order.row.astype(np.int32)
    if ring_rows is None:
        return np.where(linear2, row, none), np.where(linear2, none, row), grid.rows
    needed = order.ring_rows_needed()
    if ring_rows < needed:
        raise UsageError(
            f"a ring of {ring_rows} rows deadlocks: the schedule needs {needed}",
            "give the ring more rows, or choose a smaller lead or wave",
        )
    freed_by = np.where(row >= ring_rows, grid.rows + row - ring_rows, NO_COUNTER)
    waits_on = np.where(linear2, row, freed_by).astype(np.int32)
    signals = np.where(linear2, grid.rows + row, row).astype(np.int32)
    return waits_on, signals, 2 * grid.rows
