"""Configs of the fused kernels: what a search chooses and a deployment compiles.

Strict, as profiles are. A config alone is only well formed; whether it fits a workload and a platform is
:func:`xstage_tune.configs.resources.check_config`'s question.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from xstage_tune.devices.base import StoreFlavour
from xstage_tune.profile_types import Count, Strict, refuse_problems

ScheduleKind = Literal["wave", "interleaved", "alternating", "clamped-lag"]
#: Which SMs take Linear-2 tiles: all as many, or in proportion to their share of the drain rate.
Placement = Literal["even", "share"]
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

_STORES = "How bytes leave an SM: 16-byte stores of registers (st.v4), or bulk copies (tma)"
_PARAMETER_OF: dict[ScheduleKind, str] = {"wave": "experts_per_wave", "interleaved": "lead_rows"}


class Schedule(Strict):
    """Order of Linear-1 and Linear-2 tiles.

    ``wave``: Linear-1 of ``experts_per_wave`` experts, then their Linear-2, then the next wave.
    ``interleaved``: Algorithm 1 with D = ``lead_rows``; the ratio of Linear-1 to Linear-2 tiles follows from
    the tile shapes. ``alternating``: today's DeepGEMM, strict 1:1 after a Linear-1 warm-up.
    ``clamped-lag``: its open Hopper change, Linear-2 clamp(0.45*units, 8, 64) units behind.

    ``placement`` "share" gives Linear-2 tiles to SMs by their measured share of the drain rate
    (``platform.arbitration``); where none was measured all SMs have the same.
    """

    kind: ScheduleKind = Field(description="Which order")
    experts_per_wave: Count | None = Field(
        None, description="Experts whose Linear-1 tiles come before their Linear-2 tiles; kind wave needs it"
    )
    lead_rows: Count | None = Field(
        None, description="D: tile rows that Linear-1 is ahead of Linear-2; kind interleaved needs it"
    )
    placement: Placement = Field(
        "even",
        description="Which SMs take Linear-2 tiles: all as many, or by their share of the drain rate",
    )

    @model_validator(mode="after")
    def _keys_fit_the_kind(self) -> Schedule:
        needed = _PARAMETER_OF.get(self.kind)
        problems = []
        if needed is not None and getattr(self, needed) is None:
            problems.append(f"kind '{self.kind}' needs the key '{needed}'")
        for kind, key in _PARAMETER_OF.items():
            if getattr(self, key) is not None and self.kind != kind:
                problems.append(f"key '{key}' is for kind '{kind}', not '{self.kind}'")
        refuse_problems(problems)
        return self

    @property
    def label(self) -> str:
        """In a few characters, for tables."""
        parameter = {"wave": f" of {self.experts_per_wave}", "interleaved": f" D={self.lead_rows}"}
        placed = ", by share" if self.placement == "share" else ""
        return f"{self.kind}{parameter.get(self.kind, '')}{placed}"


class MegaMoeConfig(Strict):
    """One variant of the fused MoE kernel.

    A tile is ``block_m`` tokens by ``block_n`` output columns. Its operands come in ``pipeline_stages``
    buffers of ``block_k`` elements of depth. ``staging_depth`` finished tiles may wait for their stores, or
    be under them, by ``epilogue_warps``.
    """

    kind: Literal["megamoe"] = Field("megamoe", description="A fused MoE kernel")
    block_m: Count = Field(description="Tokens of a tile")
    block_n: Count = Field(description="Output columns of a tile")
    block_k: Count = Field(description="Depth of an operand buffer, in elements")
    pipeline_stages: Count = Field(description="Operand buffers")
    staging_depth: Count = Field(description="S: finished tiles that may wait for their stores")
    schedule: Schedule = Field(description="Order of Linear-1 and Linear-2 tiles")
    store_flavour: StoreFlavour = Field(description=_STORES)
    epilogue_warps: Count = Field(description="Warps that convert and store finished tiles")

    @property
    def label(self) -> str:
        """In one line, for tables."""
        tile = f"{self.block_m}x{self.block_n}x{self.block_k}"
        depths = f"{self.pipeline_stages} stages, staging {self.staging_depth}"
        return f"{tile}, {self.schedule.label}, {depths}, {self.store_flavour}, {self.epilogue_warps} warps"


class AttentionConfig(Strict):
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
    store_flavour: StoreFlavour = Field(description=_STORES)
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


KernelConfig = MegaMoeConfig | AttentionConfig
