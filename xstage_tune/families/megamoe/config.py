"""Configs of the fused MoE kernel: what a search chooses and a deployment compiles.

Strict, as profiles are. A config alone is only well formed; whether it fits a workload and a platform is
:func:`xstage_tune.families.resources.check_config`'s question.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.base.field_types import Count, Strict, refuse_problems
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.config_fields import STORES

ScheduleKind = Literal["wave", "interleaved", "alternating", "clamped-lag"]
#: Which SMs take Linear-2 tiles: all as many, or in proportion to their share of the drain rate.
Placement = Literal["even", "share"]
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


class MegaMoeConfig(KernelConfig):
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
    store_flavour: StoreFlavour = Field(description=STORES)
    epilogue_warps: Count = Field(description="Warps that convert and store finished tiles")

    @property
    def schedule_label(self) -> str:
        """Its kind and parameters."""
        return self.schedule.label

    @property
    def is_wave(self) -> bool:
        """The expert-wave schedule."""
        return self.schedule.kind == "wave"

    @property
    def label(self) -> str:
        """In one line, for tables."""
        tile = f"{self.block_m}x{self.block_n}x{self.block_k}"
        depths = f"{self.pipeline_stages} stages, staging {self.staging_depth}"
        return f"{tile}, {self.schedule.label}, {depths}, {self.store_flavour}, {self.epilogue_warps} warps"

    @property
    def tile_label(self) -> str:
        """Without the schedule."""
        tile = f"{self.block_m}x{self.block_n}x{self.block_k}"
        return f"{tile} tiles, {self.staging_depth} staging slots, {self.epilogue_warps} epilogue warps"
