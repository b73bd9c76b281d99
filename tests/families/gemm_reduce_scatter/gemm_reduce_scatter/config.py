"""What a search chooses of the kernel."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.base.field_types import Count
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.config_fields import STORES

#: Rows from token 0, or from the next rank's first one, so that own rows come last.
TileOrder = Literal["sequential", "own-rows-last"]


class GemmConfig(KernelConfig):
    """Tiles of ``block_m`` rows and ``block_n`` columns, whose operands pass through ``stages`` buffers."""

    kind: Literal["gemm-rs"] = Field("gemm-rs", description="A GEMM and its reduce-scatter")
    block_m: Count = Field(description="Rows of a tile")
    block_n: Count = Field(description="Columns of a tile")
    stages: Count = Field(description="Buffers of 64 of depth")
    staging_slots: Annotated[Count, Field(le=2)] = Field(
        description="Finished tiles that wait for their stores"
    )
    tile_order: TileOrder = Field(description="Rows from token 0, or those of this rank last")
    store_flavour: StoreFlavour = Field(description=STORES)

    @property
    def label(self) -> str:
        return f"{self.tile_label}, {self.tile_order}, {self.store_flavour}"

    @property
    def tile_label(self) -> str:
        return f"{self.block_m}x{self.block_n}, {self.stages} stages, {self.staging_slots} staged"
