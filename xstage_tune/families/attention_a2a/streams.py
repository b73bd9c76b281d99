"""FlashAttention with the fused post-attention All-to-All as tile streams for the pipeline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xstage_tune.families.attention_a2a.order import AttentionGrid, AttentionOrder
from xstage_tune.launches.streams import Floats, Streams, independent_streams
from xstage_tune.model.attention import q_loop_kv_tiles


@dataclass(frozen=True, slots=True)
class QLoop:
    """Time of an output tile's Q-loop: ``fixed_ns + kv_tile_ns * KV tiles + exchange_ns``.

    Args:
        block_n: KV rows of an inner tile.
        kv_tile_ns: sigma, time of a KV tile.
        fixed_ns: prologue, first loads, final rescale.
        cover_ns: how far the next Q-loop gets before it needs the output buffer, G_QK of equation 19:
            about one QK^T tile.
        kv_splits: CTAs that share the KV tiles of an output tile.
        exchange_ns: of merging their outputs.
    """

    block_n: int
    kv_tile_ns: float
    fixed_ns: float = 0.0
    cover_ns: float = 0.0
    kv_splits: int = 1
    exchange_ns: float = 0.0

    def gap_ns(self, tokens: int) -> float:
        """G_Qloop(M)."""
        kv_tiles = q_loop_kv_tiles(tokens=tokens, block_n=self.block_n, kv_splits=self.kv_splits)
        return self.fixed_ns + self.kv_tile_ns * kv_tiles + self.exchange_ns


@dataclass(frozen=True, slots=True)
class OutputStores:
    """How an output tile is stored.

    Args:
        row_bytes: of one query row, ``head_dim * element size``.
        local_bytes_per_ns: rate of one SM's local stores.
        fixed_ns: of the issue role for every tile.
        remote_row_part: what of a row that counts as remote is so; the rest of it is stored locally.
    """

    row_bytes: float
    local_bytes_per_ns: float
    fixed_ns: float = 0.0
    remote_row_part: float = 1.0


def attention_streams(
    grid: AttentionGrid, order: AttentionOrder, loop: QLoop, stores: OutputStores
) -> Streams:
    """Streams of a launch. A partial tile takes a full Q-loop but stores only the rows that it has."""
    gap_ns = loop.gap_ns(grid.tokens)
    local_bytes, remote_bytes = output_store_bytes(order, stores)
    return independent_streams(
        order.first,
        np.full(order.head.size, gap_ns),
        staging_ns=stores.fixed_ns + local_bytes / stores.local_bytes_per_ns,
        remote_bytes=remote_bytes,
        slot_offset_ns=min(loop.cover_ns, gap_ns),
    )


def output_store_bytes(order: AttentionOrder, stores: OutputStores) -> tuple[Floats, Floats]:
    """What each tile stores locally and remotely, ``[n]`` each, in bytes."""
    remote: Floats = order.remote_rows * np.float64(stores.row_bytes * stores.remote_row_part)
    local: Floats = order.rows * np.float64(stores.row_bytes) - remote
    return local, remote
