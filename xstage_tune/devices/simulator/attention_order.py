"""Order in which persistent CTAs take FlashAttention's output tiles, and where their rows go.

An output tile is ``block_m`` query rows of one head. After Ulysses attention a rank holds all tokens of
its heads, and the All-to-All returns each token's rows to the rank that owns the token. Ranks own
``ceil(tokens / ranks)`` consecutive tokens each, the last ones fewer, so a tile may straddle two ranks.
Tiles depend on nothing, so no order can deadlock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from xstage_tune.errors import UsageError

Ints = NDArray[np.int64]

#: ``sequential``: heads in turn, each from token 0. ``rotated``: heads in turn, each from the first tile of
#: the next rank's tokens, so that ranks do not all send to the same one and a rank's own tokens come last.
#: ``spread``: neighbouring tiles go to different ranks, beginning at the next rank.
TileOrder = Literal["sequential", "rotated", "spread"]


@dataclass(frozen=True, slots=True)
class AttentionGrid:
    """Output tiles of one rank.

    Args:
        heads: heads of this rank.
        tokens: M, of the whole sequence.
        block_m: query rows of a tile; the last tile of a head may hold fewer.
        sms: persistent CTAs.
        ranks: Ulysses degree.
        rank: this rank, whose own tokens need no remote store; None counts every byte as remote.

    Raises:
        UsageError: a count is out of range.
    """

    heads: int
    tokens: int
    block_m: int
    sms: int
    ranks: int = 8
    rank: int | None = None

    def __post_init__(self) -> None:
        if min(self.heads, self.tokens, self.block_m, self.sms, self.ranks) < 1:
            raise UsageError("attention: heads, tokens, block_m, SMs and ranks must be 1 or more")
        if self.rank is not None and not 0 <= self.rank < self.ranks:
            raise UsageError(f"attention: rank {self.rank} is not one of {self.ranks}")

    @property
    def tiles_per_head(self) -> int:
        return -(-self.tokens // self.block_m)


@dataclass(frozen=True, slots=True)
class AttentionOrder:
    """Tiles in the order of each SM: ``[n]``, those of SM i in rows ``first[i]`` to ``first[i + 1]``."""

    first: Ints  # [sms + 1]
    head: Ints
    m_block: Ints
    rows: Ints  # query rows
    remote_rows: Ints  # of them, rows of other ranks' tokens


def attention_order(grid: AttentionGrid, order: TileOrder) -> AttentionOrder:
    """Every output tile once: tile i of the order goes to SM ``i % sms``."""
    blocks = _blocks(grid, order)
    head = np.repeat(np.arange(grid.heads), blocks.size)
    m_block = np.tile(blocks, grid.heads)
    # Stride the one order over the SMs: a stable sort by SM keeps each SM's tiles in turn.
    sm = np.arange(head.size) % grid.sms
    by_sm = np.argsort(sm, kind="stable")
    head, m_block = head[by_sm], m_block[by_sm]
    begin = m_block * grid.block_m
    end = np.minimum(begin + grid.block_m, grid.tokens)
    return AttentionOrder(
        first=np.concatenate(([0], np.cumsum(np.bincount(sm, minlength=grid.sms)))),
        head=head,
        m_block=m_block,
        rows=end - begin,
        remote_rows=end - begin - _own_rows(grid, begin, end),
    )


def _own_rows(grid: AttentionGrid, begin: Ints, end: Ints) -> Ints:
    if grid.rank is None:
        return np.zeros_like(begin)
    own_begin, own_end = _first_token(grid, grid.rank), _first_token(grid, grid.rank + 1)
    overlap: Ints = np.minimum(end, own_end) - np.maximum(begin, own_begin)
    return np.maximum(overlap, 0)


def _first_token(grid: AttentionGrid, rank: int) -> int:
    return min(grid.tokens, rank * -(-grid.tokens // grid.ranks))


def _blocks(grid: AttentionGrid, order: TileOrder) -> Ints:
    """The tiles of one head, in order."""
    blocks = np.arange(grid.tiles_per_head)
    if order == "sequential":
        return blocks
    following = ((grid.rank or 0) + 1) % grid.ranks
    if order == "rotated":
        rotated: Ints = np.roll(blocks, -(_first_token(grid, following) // grid.block_m))
        return rotated
    owners = np.array([_first_token(grid, rank) for rank in range(grid.ranks)])
    owner = np.searchsorted(owners, blocks * grid.block_m, side="right") - 1
    place = blocks - np.searchsorted(owner, owner)
    return np.lexsort(((owner - following) % grid.ranks, place))
