"""Order in which persistent CTAs take FlashAttention's output tiles, and where their rows go.

An output tile is ``block_m`` query rows of one head. After Ulysses attention a rank holds all tokens of
its heads, and the All-to-All returns each token's rows to the rank that owns the token. Ranks own
``ceil(tokens / ranks)`` consecutive tokens each, the last ones fewer, so a tile may straddle two ranks.
Tiles depend on nothing, so no order can deadlock.

Where a tile's KV rows are split, as many consecutive CTAs are a team: it takes tiles as one CTA would, and
each of its CTAs stores its part of every tile's rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError
from xstage_tune.families.attention_a2a.config import TileOrder
from xstage_tune.families.attention_a2a.ownership import first_token

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AttentionGrid:
    """Output tiles of one rank.

    Args:
        heads: heads of this rank.
        tokens: M, of the whole sequence.
        block_m: query rows of a tile; the last tile of a head may hold fewer.
        sms: persistent CTAs, of which those that are left over from the last whole team get no tile.
        ranks: Ulysses degree.
        rank: this rank.
        local_ranks: so many ranks from this one on, cyclically, whose rows need no remote store; 0 counts
            even this rank's own as remote.
        kv_splits: CTAs of a team, each of which stores ``block_m / kv_splits`` rows of a tile.

    Raises:
        UsageError: a count is out of range, or ``kv_splits`` divides no tile.
    """

    heads: int
    tokens: int
    block_m: int
    sms: int
    ranks: int = 8
    rank: int = 0
    local_ranks: int = 1
    kv_splits: int = 1

    def __post_init__(self) -> None:
        if min(self.heads, self.tokens, self.block_m, self.sms, self.ranks) < 1:
            raise UsageError("attention: heads, tokens, block_m, SMs and ranks must be 1 or more")
        if not 0 <= self.rank < self.ranks:
            raise UsageError(f"attention: rank {self.rank} is not one of {self.ranks}")
        if not 0 <= self.local_ranks <= self.ranks:
            raise UsageError(f"attention: {self.local_ranks} of {self.ranks} ranks are local")
        if self.kv_splits < 1 or self.block_m % self.kv_splits:
            raise UsageError(f"attention: {self.kv_splits} CTAs do not divide a tile of {self.block_m} rows")
        if self.sms < self.kv_splits:
            raise UsageError(f"attention: {self.sms} SMs are no team of {self.kv_splits}")

    @property
    def tiles_per_head(self) -> int:
        return -(-self.tokens // self.block_m)

    @property
    def tiles(self) -> int:
        return self.heads * self.tiles_per_head

    @property
    def teams(self) -> int:
        """Sets of CTAs that make a tile together; CTAs, where tiles are not split."""
        return self.sms // self.kv_splits

    @property
    def ctas(self) -> int:
        """CTAs that get a tile."""
        return self.kv_splits * min(self.teams, self.tiles)

    @property
    def rounds(self) -> int:
        """Tiles of the CTA that has most."""
        return -(-self.tiles // self.teams)

    @property
    def stored_rows(self) -> int:
        """Query rows of a tile that one CTA stores; the last tile of a head may leave it fewer, or none."""
        return self.block_m // self.kv_splits

    def first_token(self, rank: int) -> int:
        """First token that a rank owns; M where it owns none."""
        return first_token(self.tokens, self.ranks, rank)

    def first_block(self, rank: int) -> int:
        """The first tile of a head whose first row a rank, or one behind it, owns: there its own begin."""
        return -(-self.first_token(rank) // self.block_m)


@dataclass(frozen=True, slots=True)
class AttentionOrder:
    """Tiles in the order of each SM: ``[n]``, those of SM i in rows ``first[i]`` to ``first[i + 1]``.

    A split tile is there once for each CTA of its team.
    """

    first: Ints  # [sms + 1]
    head: Ints
    m_block: Ints
    part: Ints  # of the tile's rows, which the SM stores; 0 where tiles are not split
    rows: Ints  # query rows that the SM stores
    remote_rows: Ints  # of them, rows that are stored remotely


def attention_order(grid: AttentionGrid, order: TileOrder) -> AttentionOrder:
    """Every row of every output tile once: tile i of the order goes to team ``i % teams``."""
    place, part = np.divmod(np.arange(grid.tiles * grid.kv_splits), grid.kv_splits)
    # Stride the one order over the SMs: a stable sort by SM keeps each SM's tiles in turn.
    sm = place % grid.teams * grid.kv_splits + part
    by_sm = np.argsort(sm, kind="stable")
    head, m_block = _tiles_at(grid, order, place[by_sm])
    part = part[by_sm]
    rows, remote_rows = _rows(grid, m_block * grid.block_m + part * grid.stored_rows, grid.stored_rows)
    return AttentionOrder(
        first=np.concatenate(([0], np.cumsum(np.bincount(sm, minlength=grid.sms)))),
        head=head,
        m_block=m_block,
        part=part,
        rows=rows,
        remote_rows=remote_rows,
    )


@lru_cache(maxsize=256)
def last_round_remote_rows(grid: AttentionGrid, order: TileOrder) -> int:
    """Rows stored remotely by the last round of tiles, which no Q-loop follows: one a team, or fewer."""
    _, m_block = _tiles_at(grid, order, np.arange((grid.rounds - 1) * grid.teams, grid.tiles))
    _, remote_rows = _rows(grid, m_block * grid.block_m, grid.block_m)
    return int(remote_rows.sum())


def _rows(grid: AttentionGrid, begin: Ints, count: int) -> tuple[Ints, Ints]:
    """How many of ``count`` rows from ``begin`` on there are, and how many of them are stored remotely."""
    begin = np.minimum(begin, grid.tokens)  # behind the last token a tile's later parts have none
    end = np.minimum(begin + count, grid.tokens)
    remote = end - begin
    for nth in range(grid.local_ranks):
        rank = (grid.rank + nth) % grid.ranks
        local_begin, local_end = grid.first_token(rank), grid.first_token(rank + 1)
        remote -= np.maximum(np.minimum(end, local_end) - np.maximum(begin, local_begin), 0)
    return end - begin, remote


def _tiles_at(grid: AttentionGrid, order: TileOrder, places: Ints) -> tuple[Ints, Ints]:
    """Head and block of places of the order."""
    head, m_block = np.empty_like(places), np.empty_like(places)
    begin = 0
    for blocks in passes(grid, order):
        end = begin + grid.heads * blocks.size
        here = (begin <= places) & (places < end)
        # An empty pass has no places, and a divisor of 1 spares the warning.
        head[here], in_head = np.divmod(places[here] - begin, max(1, blocks.size))
        m_block[here] = blocks[in_head]
        begin = end
    return head, m_block


def passes(grid: AttentionGrid, order: TileOrder) -> tuple[Ints, ...]:
    """Blocks of a head: each pass over the heads takes some of every one, in this order."""
    blocks = np.arange(grid.tiles_per_head)
    if order == "sequential":
        return (blocks,)
    following = (grid.rank + 1) % grid.ranks
    if order == "rotated":
        return (np.roll(blocks, -(grid.first_token(following) // grid.block_m)),)
    if order == "own-last":
        own_begin, own_end = grid.first_block(grid.rank), grid.first_block(grid.rank + 1)
        others = np.concatenate((blocks[own_end:], blocks[:own_begin]))
        return others, blocks[own_begin:own_end]
    owners = np.array([grid.first_token(rank) for rank in range(grid.ranks)])
    owner = np.searchsorted(owners, blocks * grid.block_m, side="right") - 1
    place = blocks - np.searchsorted(owner, owner)
    return (np.lexsort(((owner - following) % grid.ranks, place)),)
