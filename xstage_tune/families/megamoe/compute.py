"""Tile times from a GPU's peak, and what weights missing from L2 add to them.

A tile's mainloop takes ``fill + max(compute, memory)``. Compute is the tile's own work at its SM's part of
peak times efficiency. The memory floor belongs to a *step*, the tiles that the SMs run at the same place of
their orders: the bytes that the step loads from memory over the whole GPU's bandwidth. What L2 delivers is
in the efficiency.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xstage_tune.base.errors import UsageError
from xstage_tune.families.megamoe.order import LINEAR1, MoeGrid, MoeOrder
from xstage_tune.launches.streams import Floats, Ints
from xstage_tune.model.locality import load_ns, lost_fraction
from xstage_tune.platforms.schema import PlatformProfile


@dataclass(frozen=True, slots=True)
class ComputeModel:
    """What a GPU computes and loads.

    Args:
        flop_per_s: peak of the whole GPU for the operands.
        efficiency: fraction of peak that the mainloop of a full tile reaches.
        fill_ns: of a tile outside its steady mainloop.
        memory_bytes_per_s: bandwidth of the whole GPU.
        l2_bytes: L2 cache.
        row_granularity: tokens of a row are computed in multiples of this.

    Raises:
        UsageError: a figure is out of range.
    """

    flop_per_s: float
    efficiency: float
    fill_ns: float
    memory_bytes_per_s: float
    l2_bytes: float
    row_granularity: int = 16

    def __post_init__(self) -> None:
        figures = (self.flop_per_s, self.memory_bytes_per_s, self.l2_bytes, self.row_granularity)
        if not all(figure > 0 for figure in figures):
            raise UsageError("compute model: rates, L2 and the row granularity must be positive")
        if not 0 < self.efficiency <= 1 or self.fill_ns < 0:
            raise UsageError("compute model: the efficiency must be in (0, 1], the fill not negative")

    def tile_ns(self, flop: Floats, sms: int) -> Floats:
        """Steady compute time of tiles of ``flop`` operations on one of ``sms`` SMs."""
        time: Floats = flop / (self.flop_per_s * self.efficiency / sms) * 1e9
        return time


def compute_model(platform: PlatformProfile, dtype: str) -> ComputeModel:
    """The compute model of a platform for one operand type.

    Raises:
        UsageError: the profile has no compute section, or no rate for the type.
    """
    compute = platform.compute
    rate = next((rate for rate in compute.tensor if rate.dtype == dtype), None) if compute else None
    if compute is None or rate is None:
        raise UsageError(
            f"platform '{platform.name}' has no compute.tensor rate for '{dtype}'",
            "add [[compute.tensor]] to the profile, or give the tile times",
        )
    return ComputeModel(
        flop_per_s=rate.peak_flop_per_s,
        efficiency=rate.tile_efficiency,
        fill_ns=compute.tile_fill_ns,
        memory_bytes_per_s=compute.memory_bytes_per_s,
        l2_bytes=platform.gpu.l2_bytes,
    )


@dataclass(frozen=True, slots=True)
class MoeShape:
    """A layer's matrices. ``weight_bytes`` and ``activation_bytes`` are of one element, scales included.

    Depths are computed in steps of ``block_k``.
    """

    hidden: int
    intermediate: int
    block_n: int
    weight_bytes: float
    activation_bytes: float
    block_k: int = 1


def moe_mainloop_ns(model: ComputeModel, shape: MoeShape, grid: MoeGrid, order: MoeOrder) -> Floats:
    """Mainloop of each tile ``[n]``.

    Cache locality: an expert's weight tile is loaded from memory by the expert's first row, and by each
    later step that uses it with the probability that it has left L2 meanwhile
    (:func:`~xstage_tune.model.locality.lost_fraction`). The working set of a step is the weights of the
    experts and layers in it, and the Linear-1 outputs that wait for Linear-2: it grows with the experts in
    flight, so with the lead D.
    """
    linear1 = order.layer == LINEAR1
    reduction = np.where(linear1, shape.hidden, shape.intermediate)
    blocks = -(-grid.row_tokens[order.row] // model.row_granularity)
    padded = (blocks * model.row_granularity).astype(np.float64)
    depth = -(-reduction // shape.block_k) * shape.block_k
    compute = model.tile_ns(2.0 * padded * shape.block_n * depth, grid.sms)

    lengths = np.diff(order.first)
    step = np.arange(order.layer.size) - np.repeat(order.first[:-1], lengths)
    steps = int(lengths.max(initial=0))
    weight_tile = order.filled(grid) * shape.block_n * reduction * shape.weight_bytes
    missing = lost_fraction(
        cache_bytes=model.l2_bytes, working_set_bytes=_working_set_bytes(shape, grid, order, step, steps)
    )
    loaded = _loaded_bytes(grid, order, step, steps, weight_tile, missing)
    memory_ns = load_ns(loaded_bytes=loaded, memory_bytes_per_s=model.memory_bytes_per_s)
    mainloop: Floats = model.fill_ns + np.maximum(compute, memory_ns[step])
    return mainloop


def _working_set_bytes(shape: MoeShape, grid: MoeGrid, order: MoeOrder, step: Ints, steps: int) -> Floats:
    """``[steps]``: weights of the distinct (layer, expert) in a step, and Linear-1 outputs in flight."""
    experts = len(grid.tokens_per_expert)
    expert = grid.expert_of_row[order.row]
    in_use = np.unique((step * 3 + order.layer) * experts + expert)
    layer = in_use // experts % 3
    weights = np.where(layer == LINEAR1, 2, 1) * shape.hidden * shape.intermediate * shape.weight_bytes
    set_bytes = np.bincount(in_use // (3 * experts), weights, steps)
    row_share = np.where(order.layer == LINEAR1, 1.0 / grid.l1_tiles, -1.0 / grid.l2_tiles)
    rows_in_flight = np.cumsum(np.bincount(step, row_share, steps))
    row_bytes = grid.block_m * shape.intermediate * shape.activation_bytes
    total: Floats = set_bytes + np.maximum(rows_in_flight, 0.0) * row_bytes
    return total


def _loaded_bytes(
    grid: MoeGrid, order: MoeOrder, step: Ints, steps: int, weight_tile: Floats, missing: Floats
) -> Floats:
    """``[steps]`` weight bytes from memory: each distinct weight tile of a step once, if new or lost."""
    experts = len(grid.tokens_per_expert)
    columns = max(grid.l1_tiles, grid.l2_tiles)
    expert = grid.expert_of_row[order.row]
    key = ((step * 3 + order.layer) * experts + expert) * columns + order.n_tile
    # Sorted by key, then row: the first of equal keys tells whether the expert's first row is in the step.
    by_key = np.lexsort((order.row, key))
    chosen = by_key[np.flatnonzero(np.diff(key[by_key], prepend=-1))]
    is_new = order.row[chosen] == grid.first_row[expert[chosen]]
    probability = np.where(is_new, 1.0, missing[step[chosen]])
    loaded = np.bincount(step[chosen], weight_tile[chosen] * probability, steps)
    return loaded.astype(np.float64)
