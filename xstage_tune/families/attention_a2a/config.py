"""Configs of the fused FlashAttention: what a search chooses and a deployment compiles.

Strict, as profiles are. A config alone is only well formed; whether it fits a workload and a platform is
:func:`xstage_tune.families.resources.check_config`'s question.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.base.field_types import Count
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.config_fields import STORES

#: CTAs that share an attention tile.
KvSplits = Annotated[Count, Field(le=2)]
#: Where a finished attention tile waits for its stores: in the buffer of Q or of V, or in its own.
OutputStaging = Literal["alias-q", "alias-v", "dedicated-x1", "dedicated-x2"]
#: ``sequential``: heads in turn, each from token 0. ``rotated``: heads in turn, each from the first tile of
#: the next rank's tokens, so that ranks do not all send to the same one and a head ends with own tokens.
#: ``spread``: neighbouring tiles go to different ranks, beginning at the next rank. ``own-last``: the tiles
#: of other ranks, heads in turn, each from the next rank's first one; then those of this rank, so that few
#: stores are left to drain when no Q-loop follows. A tile belongs to the rank of its first row.
TileOrder = Literal["sequential", "rotated", "spread", "own-last"]


class AttentionConfig(KernelConfig):
    """One variant of the fused FlashAttention.

    A tile is ``block_m`` query rows, which meet ``block_n`` KV rows at a time, held in ``kv_stages`` buffers.
    With ``kv_splits`` 2 two CTAs share a tile: each takes half of the KV rows, then both merge their outputs,
    and each stores half of the query rows. Tiles are then there in half the time, and half as many at once:
    what the last round leaves to drain is half as much.
    """

    kind: Literal["attention"] = Field("attention", description="A fused FlashAttention")
    block_m: Count = Field(description="Query rows of a tile")
    block_n: Count = Field(description="KV rows that a tile meets at a time")
    kv_stages: Count = Field(description="Buffers of so many KV rows")
    output_staging: OutputStaging = Field(
        description="Where a finished tile waits for its stores: in the buffer of Q or V, or in one or two "
        "of its own"
    )
    tile_order: TileOrder = Field(
        description="Heads from token 0 (sequential) or from the next rank's tokens (rotated), neighbours to "
        "different ranks (spread), or this rank's tiles last (own-last)"
    )
    store_flavour: StoreFlavour = Field(description=STORES)
    kv_splits: KvSplits = Field(1, description="CTAs that share a tile, each with its part of the KV rows")

    @property
    def hands_stores_over(self) -> bool:
        """Whether a consumer goes on when its rows are staged: other warps, or copies, store them."""
        return self.output_staging in ("dedicated-x1", "dedicated-x2")

    @property
    def paces_stores(self) -> bool:
        """Whether those warps spread a tile's stores over the Q-loop behind it; copies leave at once."""
        return self.hands_stores_over and self.store_flavour == "st.v4"

    @property
    def split_label(self) -> str:
        """Behind a tile: that CTAs share it; empty where they do not."""
        return f", KV in {self.kv_splits} parts" if self.kv_splits > 1 else ""

    @property
    def label(self) -> str:
        """In one line, for tables."""
        tile = f"{self.block_m}x{self.block_n}{self.split_label}, {self.kv_stages} KV stages"
        return f"{tile}, {self.output_staging}, {self.tile_order}, {self.store_flavour}"

    @property
    def tile_label(self) -> str:
        """Without the order of tiles."""
        tile = f"{self.block_m}x{self.block_n} tiles{self.split_label}"
        return f"{tile}, {self.kv_stages} KV stages, {self.output_staging}"
