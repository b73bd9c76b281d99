"""How tiles cover the matrices of a MoE layer, the last of a row only in part.

TMA fills what lies beyond a matrix with zeros, and an epilogue stores the columns that there are: any matrix
whose rows are whole 16-byte units can be tiled. The Tensor Core computes on the padding all the same, and so
does a CTA of a pair whose tile lies wholly beyond the matrix. So a padded tile costs the time of a full one,
and loads and stores what is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from xstage_tune.families.architecture import Architecture
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.workload import MoeWorkload

#: Unit of TMA's row strides and of the stores of an output row.
ROW_UNIT_BYTES = 16


@dataclass(frozen=True, slots=True)
class RowTiles:
    """N-tiles of one row of a Linear.

    Args:
        count: tiles that are computed, whole groups of the CTAs that compute together.
        extent: columns that there are, in tiles: 22.5 are 22 full tiles and one half.
    """

    count: int
    extent: float

    @property
    def filled(self) -> float:
        """Part of the tiles' columns that there are."""
        return self.extent / self.count

    def parts(self) -> tuple[tuple[float, int], ...]:
        """Filled part of a tile, and how many tiles have it: full ones, a partial one, empty ones."""
        full = int(self.extent)
        partial = self.extent - full
        empty = self.count - ceil(self.extent)
        return tuple(
            (part, tiles) for part, tiles in ((1.0, full), (partial, int(partial > 0)), (0.0, empty)) if tiles
        )


def row_tiles(columns: int, block_n: int, architecture: Architecture) -> RowTiles:
    """The tiles of a row of ``columns``."""
    group = architecture.cta_group
    return RowTiles(count=group * ceil(columns / (block_n * group)), extent=columns / block_n)


def linear_tiles(
    config: MegaMoeConfig, workload: MoeWorkload, architecture: Architecture
) -> tuple[RowTiles, RowTiles]:
    """Those of Linear-1 and of Linear-2."""
    linear1, linear2 = workload.linear1_shape[0], workload.linear2_shape[0]
    return (
        row_tiles(linear1, config.block_n, architecture),
        row_tiles(linear2, config.block_n, architecture),
    )


def padded_columns(block_n: int, workload: MoeWorkload, architecture: Architecture) -> str:
    """Why tiles of a width are not all full; empty where they are."""
    for name, columns in (("2*intermediate", workload.linear1_shape[0]), ("hidden", workload.hidden)):
        if columns % block_n:
            return f"{name} = {columns} is not a multiple of block_n = {block_n}"
        if columns // block_n % architecture.cta_group:
            return (
                f"{name} = {columns} makes {columns // block_n} N-tiles of {block_n}: "
                f"not a multiple of the {architecture.cta_group} CTAs of a pair"
            )
    return ""


def padded_depth(block_k: int, workload: MoeWorkload) -> str:
    """Why pipeline stages of a depth are not all full; empty where they are."""
    for name, depth in (("hidden", workload.hidden), ("intermediate", workload.intermediate)):
        if depth % block_k:
            return f"{name} = {depth} is not a multiple of block_k = {block_k}"
    return ""
