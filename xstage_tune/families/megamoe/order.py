"""Order in which the SMs take a MegaMoE layer's tiles, under each scheduler.

A *row* is one block of ``block_m`` tokens of one expert; rows are numbered over the experts in turn, and
an expert without tokens has none. Row p has P1 Linear-1 and P2 Linear-2 *groups*: a group is the
``cta_group`` neighbouring N-tiles that the CTAs of a cluster take together (a pair on Blackwell). So each
layer is a stream of groups, k = p*P_i + column. An *instance* is one cluster; there are G.

Every scheduler merges both streams by one rule: Linear-2 of row p comes once Linear-1 has reached row
``lead(p)``, or is exhausted:

=====================  ========================================================  ====================
scheduler              lead(p)                                                   streams
=====================  ========================================================  ====================
:class:`ExpertWave`    first row behind the expert wave of p                     merged, then strided
:class:`ClampedLag`    first row of the unit ``lag`` + its group behind p's      merged, then strided
:class:`Interleaved`   p + D (Algorithm 1)                                       strided, then merged
:class:`Alternating`   by count instead: warm-up, then 1:1; at least p + 1       strided, then merged
=====================  ========================================================  ====================

Merged, then strided: instance g takes groups g, g + G, ... of the one merged order. Strided, then
merged: instance g has a cursor on each stream, both at g with stride G, and merges what they give.
``kernels/megamoe/scheduler.cuh`` is the same order one tile at a time, as a kernel finds it.

With a :class:`~.moe_placement.Placement` every scheduler deals the streams first, each by its own weights,
and merges what an instance was dealt; lead(p) is the same.

**Why nothing deadlocks.** On every instance (a) each stream comes in ascending rows, and (b) a Linear-2
group of row p follows all of the instance's own Linear-1 groups of rows <= p, because lead(p) >= p + 1: in
Algorithm 1, any D >= 1. Suppose that all instances are blocked, and let p be the least row on which one
waits. Some Linear-1 group of row p is then undone; it lies behind the blocked head of its instance, a
Linear-2 group that waits on a row q >= p. By (b) that group follows all Linear-1 groups of rows <= q, of
row p too: a contradiction. Linear-1 groups wait on nothing, and the issue roles always advance.

With a ring of N rows for Linear-1 outputs, Linear-1 of row p also waits until Linear-2 of row p - N is
read. That is safe if (c) each Linear-1 group before a Linear-2 group of row p on its instance has a row
below p + N. Let p be the least unfinished row. A blocked head before one of its Linear-1 groups is not
Linear-2 (b), so it is Linear-1 of row p, which waits on the finished row p - N: not blocked. A blocked head
before one of its Linear-2 groups is Linear-1 of a row r >= p + N, against (c). Hence
:meth:`MoeOrder.ring_rows_needed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError
from xstage_tune.families.megamoe.placement import Placement, deal
from xstage_tune.families.megamoe.static_schedules import (
    LAG_GROUP_UNITS,
    LAG_UNIT_ROWS,
    clamped_lag_units,
    wave_experts,
)

Ints = NDArray[np.int64]

LINEAR1 = 1
LINEAR2 = 2


@dataclass(frozen=True)
class MoeGrid:
    """Tiles of one rank's layer.

    Args:
        tokens_per_expert: tokens routed to each local expert.
        block_m: tokens of a row.
        l1_tiles: N-tiles of a row in Linear-1, ``2 * intermediate / block_n`` rounded up.
        l2_tiles: N-tiles of a row in Linear-2, ``hidden / block_n`` rounded up.
        sms: SMs that take part; with an odd one left over by ``cta_group``, that one stays idle.
        cta_group: CTAs that share a group of N-tiles: 2 for Blackwell's pairs, else 1.
        l1_extent, l2_extent: columns that there are, in tiles; None for as many as the tiles have.

    Raises:
        UsageError: a count is out of range, or the N-tiles do not divide among a group.
    """

    tokens_per_expert: tuple[int, ...]
    block_m: int
    l1_tiles: int
    l2_tiles: int
    sms: int
    cta_group: int = 2
    l1_extent: float | None = None
    l2_extent: float | None = None

    def __post_init__(self) -> None:
        if min(self.tokens_per_expert, default=0) < 0:
            raise UsageError("an expert cannot have a negative number of tokens")
        if min(self.block_m, self.l1_tiles, self.l2_tiles, self.cta_group) < 1:
            raise UsageError("block_m, the N-tiles of both layers and cta_group must be 1 or more")
        if self.sms < self.cta_group:
            raise UsageError(f"{self.sms} SMs cannot hold a group of {self.cta_group} CTAs")
        for layer, tiles in (("Linear-1", self.l1_tiles), ("Linear-2", self.l2_tiles)):
            if tiles % self.cta_group:
                raise UsageError(
                    f"{tiles} N-tiles of {layer} do not divide among groups of {self.cta_group} CTAs",
                    "choose another block_n",
                )

    @property
    def instances(self) -> int:
        """G, scheduler instances."""
        return self.sms // self.cta_group

    @property
    def l1_groups(self) -> int:
        """P1, Linear-1 groups of a row."""
        return self.l1_tiles // self.cta_group

    @property
    def l2_groups(self) -> int:
        """P2, Linear-2 groups of a row."""
        return self.l2_tiles // self.cta_group

    @cached_property
    def rows_per_expert(self) -> Ints:
        return -(-np.asarray(self.tokens_per_expert, np.int64) // self.block_m)

    @property
    def rows(self) -> int:
        """P, rows of a stream."""
        return int(self.rows_per_expert.sum())

    @cached_property
    def first_row(self) -> Ints:
        """O_e, ``[experts + 1]``: first row of each expert; the last entry is P."""
        return np.concatenate(([0], np.cumsum(self.rows_per_expert)))

    @cached_property
    def expert_of_row(self) -> Ints:
        """e(p), ``[P]``."""
        return np.repeat(np.arange(len(self.tokens_per_expert)), self.rows_per_expert)

    @cached_property
    def row_tokens(self) -> Ints:
        """``[P]`` tokens of each row: ``block_m``, less in the last row of an expert."""
        before = (np.arange(self.rows) - self.first_row[self.expert_of_row]) * self.block_m
        return np.minimum(
            self.block_m, np.asarray(self.tokens_per_expert, np.int64)[self.expert_of_row] - before
        )


@dataclass(frozen=True, slots=True)
class ExpertWave:
    """The historical baseline: Linear-1 of ``experts`` experts, then their Linear-2, then the next."""

    experts: int


@dataclass(frozen=True, slots=True)
class Interleaved:
    """Algorithm 1: Linear-2 as soon as Linear-1 leads by D = ``lead_rows`` rows, else Linear-1."""

    lead_rows: int


@dataclass(frozen=True, slots=True)
class Alternating:
    """Today's DeepGEMM: a warm-up of Linear-1 groups on each instance, then Linear-2 and Linear-1 in turn.

    DeepGEMM hands both streams out by ticket counters; here the stride is fixed. Once Linear-1 is
    exhausted the rest of Linear-2 follows as a tail.

    Args:
        warmup_groups: Linear-1 groups before the first Linear-2; None for one more than the fewest with
            which strict alternation never overtakes Linear-1 (DeepGEMM adds one too). With fewer,
            Linear-1 is drawn forward where it must be.
    """

    warmup_groups: int | None = None


@dataclass(frozen=True, slots=True)
class ClampedLag:
    """Open Hopper change to DeepGEMM: Linear-2 a fixed number of units behind Linear-1.

    A unit is up to 8 rows of one expert; the lag is ``clamp(round(0.45 * units), 8, 64)``, and units go
    in groups of 4.
    """


def default_wave(grid: MoeGrid) -> ExpertWave:
    """DeepGEMM's historical wave; it counts every expert at the mean number of tokens."""
    experts = len(grid.tokens_per_expert)
    return ExpertWave(
        wave_experts(
            local_experts=experts,
            tokens_per_expert=sum(grid.tokens_per_expert) / experts,
            block_m=grid.block_m,
            linear1_tiles=grid.l1_tiles,
            sms=grid.sms,
        )
    )


Schedule = ExpertWave | Interleaved | Alternating | ClampedLag


@dataclass(frozen=True, slots=True)
class MoeOrder:
    """Tiles in the order of each SM: ``[n]``, those of SM i in rows ``first[i]`` to ``first[i + 1]``."""

    first: Ints  # [sms + 1]
    layer: NDArray[np.int8]  # LINEAR1 or LINEAR2
    row: Ints
    n_tile: Ints

    def filled(self, grid: MoeGrid) -> NDArray[np.float64]:
        """Part of each tile's columns that there are, ``[n]``: less than 1 in the last tiles of a row."""
        l1 = grid.l1_tiles if grid.l1_extent is None else grid.l1_extent
        l2 = grid.l2_tiles if grid.l2_extent is None else grid.l2_extent
        part: NDArray[np.float64] = np.clip(np.where(self.layer == LINEAR1, l1, l2) - self.n_tile, 0.0, 1.0)
        return part

    def ring_rows_needed(self) -> int:
        """Fewest ring rows with which the order cannot deadlock (condition c)."""
        needed = 1
        for begin, end in zip(self.first[:-1], self.first[1:], strict=True):
            linear2 = self.layer[begin:end] == LINEAR2
            if linear2.any():
                reached = np.maximum.accumulate(np.where(linear2, -1, self.row[begin:end]))
                needed = max(needed, int((reached - self.row[begin:end])[linear2].max()) + 1)
        return needed


def megamoe_order(grid: MoeGrid, schedule: Schedule, placement: Placement | None = None) -> MoeOrder:
    """Every tile of both layers, in the order of each SM; without a placement all SMs take as many.

    Raises:
        UsageError: a wave, lead or warm-up is out of range, or the placement is for other instances.
    """
    _require_sound(schedule)
    if placement is None and isinstance(schedule, ExpertWave | ClampedLag):
        layer, group = _merge(grid, _lead_rows(grid, schedule), *_whole_streams(grid))
        parts = [(layer[g :: grid.instances], group[g :: grid.instances]) for g in range(grid.instances)]
        return _by_sm(grid, parts)
    streams = _dealt_streams(grid, placement)
    if isinstance(schedule, Alternating):
        return _by_sm(grid, _alternate(grid, alternating_warmup(grid, schedule, placement), streams))
    lead = _lead_rows(grid, schedule)
    return _by_sm(grid, [_merge(grid, lead, k1, k2) for k1, k2 in streams])


def alternating_warmup(grid: MoeGrid, schedule: Alternating, placement: Placement | None = None) -> int:
    """Linear-1 groups before an instance's first Linear-2: the schedule's, or the default (which see)."""
    if schedule.warmup_groups is not None:
        return schedule.warmup_groups
    most = 0
    for k1, k2 in _dealt_streams(grid, placement):
        due = _count_before(grid, k2 // grid.l2_groups + 1, k1) - np.arange(k2.size)
        most = max(most, int(due.max(initial=0)))
    return 1 + most


def _require_sound(schedule: Schedule) -> None:
    if isinstance(schedule, ExpertWave) and schedule.experts < 1:
        raise UsageError(f"an expert wave needs 1 expert or more, got {schedule.experts}")
    if isinstance(schedule, Interleaved) and schedule.lead_rows < 1:
        raise UsageError(
            f"the lead must be 1 row or more, got {schedule.lead_rows}",
            "with a lead of 0 a Linear-2 tile may precede the Linear-1 tiles that it reads",
        )
    if isinstance(schedule, Alternating) and (schedule.warmup_groups or 0) < 0:
        raise UsageError(f"the warm-up cannot be negative, got {schedule.warmup_groups}")


def _lead_rows(grid: MoeGrid, schedule: ExpertWave | ClampedLag | Interleaved) -> Ints:
    """lead(p), ``[P]``."""
    if isinstance(schedule, Interleaved):
        return np.arange(grid.rows) + schedule.lead_rows
    if isinstance(schedule, ExpertWave):
        behind = (grid.expert_of_row // schedule.experts + 1) * schedule.experts
        wave_end: Ints = grid.first_row[np.minimum(behind, len(grid.tokens_per_expert))]
        return wave_end
    return _clamped_lag_rows(grid)


def _clamped_lag_rows(grid: MoeGrid) -> Ints:
    units_per_expert = -(-grid.rows_per_expert // LAG_UNIT_ROWS)
    units = int(units_per_expert.sum())
    first_unit = np.concatenate(([0], np.cumsum(units_per_expert)))
    within = np.arange(grid.rows) - grid.first_row[grid.expert_of_row]
    unit_of_row = first_unit[grid.expert_of_row] + within // LAG_UNIT_ROWS
    first_row_of_unit = np.searchsorted(unit_of_row, np.arange(units + 1))
    group_end = (unit_of_row // LAG_GROUP_UNITS + 1) * LAG_GROUP_UNITS
    behind = group_end + clamped_lag_units(units)
    lead: Ints = first_row_of_unit[np.minimum(behind, units)]
    return lead


def _whole_streams(grid: MoeGrid) -> tuple[Ints, Ints]:
    return np.arange(grid.rows * grid.l1_groups), np.arange(grid.rows * grid.l2_groups)


def _dealt_streams(grid: MoeGrid, placement: Placement | None) -> list[tuple[Ints, Ints]]:
    """Groups of Linear-1 and of Linear-2 that each instance takes, ascending."""
    if placement is None:
        placement = Placement((1,) * grid.instances, (1,) * grid.instances)
    if len(placement.l1_weights) != grid.instances:
        raise UsageError(
            f"a placement of {len(placement.l1_weights)} instances does not fit {grid.instances}"
        )
    l1, l2 = _whole_streams(grid)
    dealt = deal(l1.size, placement.l1_weights), deal(l2.size, placement.l2_weights)
    return list(zip(*dealt, strict=True))


def _merge(grid: MoeGrid, lead: Ints, k1: Ints, k2: Ints) -> tuple[NDArray[np.int8], Ints]:
    """Merge groups ``k1`` of Linear-1 and ``k2`` of Linear-2 by lead(p)."""
    return _interlace(k1, k2, _count_before(grid, lead[k2 // grid.l2_groups], k1))


def _count_before(grid: MoeGrid, lead: Ints, k1: Ints) -> Ints:
    """How many of the Linear-1 groups ``k1`` lie in rows below each ``lead``."""
    before: Ints = np.searchsorted(k1, lead * grid.l1_groups)
    return before


def _interlace(k1: Ints, k2: Ints, l1_before: Ints) -> tuple[NDArray[np.int8], Ints]:
    """Layer and group in order, where ``l1_before[j]`` Linear-1 groups precede the j-th Linear-2 group."""
    at2 = l1_before + np.arange(k2.size)
    layer = np.full(k1.size + k2.size, LINEAR1, np.int8)
    layer[at2] = LINEAR2
    group = np.empty(layer.size, np.int64)
    group[layer == LINEAR1] = k1
    group[at2] = k2
    return layer, group


def _alternate(
    grid: MoeGrid, warmup: int, streams: list[tuple[Ints, Ints]]
) -> list[tuple[NDArray[np.int8], Ints]]:
    parts = []
    for k1, k2 in streams:
        least = _count_before(grid, k2 // grid.l2_groups + 1, k1)
        l1_before = np.minimum(np.maximum(warmup + np.arange(k2.size), least), k1.size)
        parts.append(_interlace(k1, k2, l1_before))
    return parts


def _by_sm(grid: MoeGrid, parts: list[tuple[NDArray[np.int8], Ints]]) -> MoeOrder:
    """Give group k of instance g to the SMs ``cta_group*g + r``, each its own N-tile."""
    lengths = np.repeat([layer.size for layer, _ in parts], grid.cta_group)
    idle = np.zeros(grid.sms - lengths.size, np.int64)
    layer = np.concatenate([np.tile(layer, grid.cta_group) for layer, _ in parts])
    group = np.concatenate([np.tile(group, grid.cta_group) for _, group in parts])
    role = np.repeat(np.arange(lengths.size) % grid.cta_group, lengths)
    per_row = np.where(layer == LINEAR1, grid.l1_groups, grid.l2_groups)
    return MoeOrder(
        first=np.concatenate(([0], np.cumsum(np.concatenate((lengths, idle))))),
        layer=layer,
        row=group // per_row,
        n_tile=grid.cta_group * (group % per_row) + role,
    )
