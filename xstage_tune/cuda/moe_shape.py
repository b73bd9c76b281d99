"""What one rank of a fused MoE layer computes, and where its rows lie."""

from __future__ import annotations

from dataclasses import dataclass

from xstage_tune.base.errors import UsageError
from xstage_tune.families.megamoe.built import SCALE_BLOCK, element_bytes
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.order import MoeGrid
from xstage_tune.families.megamoe.workload import Precision

#: Destinations that a launch can name (``kMaxRanks`` of ``arguments.cuh``).
MAX_RANKS = 8
_BF16_BYTES = 2
_SCALE_BYTES = 4
#: The copy engine's strides are whole units of so many bytes.
_ROW_UNIT_BYTES = 16
#: Coordinates and slots are 32-bit; so are row counters.
_MOST_POOL_ROWS = 2**28


@dataclass(frozen=True, slots=True)
class MoeShape:
    """The experts of one rank, with the rows that were routed to each.

    Rows lie in a *pool*: those of an expert together, each expert's from a multiple of ``block_m`` on, so
    that row r of tiles is the pool's rows ``[r * block_m, (r + 1) * block_m)``.

    Args:
        hidden: columns of tokens and outputs.
        intermediate: of an expert.
        tokens_per_expert: rows routed to each local expert.
        ranks: whose tokens the rows are.
        rank: this one.
        precision: of tokens, weights and activations; with w8a8 they are e4m3, and have scales.

    Raises:
        UsageError: a size is out of range.
    """

    hidden: int
    intermediate: int
    tokens_per_expert: tuple[int, ...]
    ranks: int = 1
    rank: int = 0
    precision: Precision = "bf16"

    def __post_init__(self) -> None:
        unit = _ROW_UNIT_BYTES // self.element_bytes
        for name, columns in (("hidden", self.hidden), ("intermediate", self.intermediate)):
            if columns < 1 or columns % unit:
                raise UsageError(
                    f"{name} = {columns} is not a multiple of {unit}: rows of the copy engine are whole "
                    f"units of {_ROW_UNIT_BYTES} bytes",
                    "pad the matrices",
                )
        if not self.tokens_per_expert or min(self.tokens_per_expert) < 0:
            raise UsageError("a layer needs an expert, and none with a negative number of tokens")
        if not 1 <= self.ranks <= MAX_RANKS:
            raise UsageError(
                f"{self.ranks} ranks: the kernel's table holds 1 to {MAX_RANKS}", "lower the degree"
            )
        if not 0 <= self.rank < self.ranks:
            raise UsageError(f"rank {self.rank} is not one of {self.ranks}", f"use 0 to {self.ranks - 1}")
        if sum(self.tokens_per_expert) > _MOST_POOL_ROWS:
            raise UsageError(
                f"{sum(self.tokens_per_expert):,} rows on one rank are more than {_MOST_POOL_ROWS:,}",
                "lower tokens_per_rank",
            )

    @property
    def experts(self) -> int:
        """Local ones."""
        return len(self.tokens_per_expert)

    @property
    def rows(self) -> int:
        """Rows routed here."""
        return sum(self.tokens_per_expert)

    @property
    def row_bytes(self) -> int:
        """Of one row of Combine."""
        return self.hidden * _BF16_BYTES

    @property
    def element_bytes(self) -> int:
        """Of tokens, weights and activations."""
        return element_bytes(self.precision)

    @property
    def token_bytes(self) -> int:
        """Of one token, without its scales."""
        return self.hidden * self.element_bytes

    @property
    def hidden_blocks(self) -> int:
        """Scales of a token's row; 0 in bf16."""
        return _blocks(self.hidden) if self.precision == "w8a8" else 0

    @property
    def intermediate_blocks(self) -> int:
        """Scales of a row of activations; 0 in bf16."""
        return _blocks(self.intermediate) if self.precision == "w8a8" else 0

    @property
    def token_scales(self) -> int:
        """Places for them in a row at the token's rank, whole units of 16 bytes."""
        unit = _ROW_UNIT_BYTES // _SCALE_BYTES
        return unit * -(-self.hidden_blocks // unit)

    @property
    def flops(self) -> int:
        """Floating-point operations of the three matrix products of every row."""
        return 6 * self.rows * self.hidden * self.intermediate

    def grid(self, config: MegaMoeConfig, ctas: int) -> MoeGrid:
        """Tiles of a config over so many CTAs."""
        return MoeGrid(
            self.tokens_per_expert,
            config.block_m,
            l1_tiles=-(-2 * self.intermediate // config.block_n),
            l2_tiles=-(-self.hidden // config.block_n),
            sms=ctas,
            cta_group=1,
        )

    def pool_rows(self, block_m: int) -> int:
        """Rows of the pool, at least one tile's."""
        return block_m * max(1, sum(-(-tokens // block_m) for tokens in self.tokens_per_expert))

    def pool_places(self, block_m: int) -> list[int]:
        """Where each expert's rows begin in the pool, ``[experts]``."""
        places, place = [], 0
        for tokens in self.tokens_per_expert:
            places.append(place)
            place += block_m * -(-tokens // block_m)
        return places


def _blocks(columns: int) -> int:
    return -(-columns // SCALE_BLOCK)
