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

from xstage_tune.configs.static_schedules import (
    LAG_GROUP_UNITS,
    LAG_UNIT_ROWS,
    clamped_lag_units,
    wave_experts,
)
from xstage_tune.errors import UsageError

Ints = NDArray[np.int64]

LINEAR1 = 1
LINEAR2 = 2


@dataclass(frozen=True)
class MoeGrid:
    """Tiles of one rank's layer.

    Args:
        tokens_per_expert: tokens routed to each local expert.
        block_m: tokens of a row.
        l1_tiles: N-tiles of a row in Linear-1, ``2 * intermediate / block_n``.
        l2_tiles: N-tiles of a row in Linear-2, ``hidden / block_n``.
        sms: SMs that take part; with an odd one left over by ``cta_group``, that one stays idle.
        cta_group: CTAs that share a group of N-tiles: 2 for Blackwell's pairs, else 1.

    Raises:
        UsageError: a count is out of range, or the N-tiles do not divide among a group.
    """

    tokens_per_expert: tuple[int, ...]
    block_m: int
    l1_tiles: int
    l2_tiles: int
    sms: int
    cta_group: int = 2

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

    def ring_rows_needed(self) -> int:
        """Fewest ring rows with which the order cannot deadlock (condition c)."""
        needed = 1
        for begin, end in zip(self.first[:-1], self.first[1:], strict=True):
            linear2 = self.layer[begin:end] == LINEAR2
            if linear2.any():
                reached = np.maximum.accumulate(np.where(linear2, -1, self.row[begin:end]))
                needed = max(needed, int((reached - self.row[begin:end])[linear2].max()) + 1)
        return needed


def megamoe_order(grid: MoeGrid, schedule: Schedule) -> MoeOrder:
    """Every tile of both layers, in the order of each SM.

    Raises:
        UsageError: a wave, lead or warm-up is out of range.
    """
    _require_sound(schedule)
    if isinstance(schedule, ExpertWave | ClampedLag):
        layer, group = _merge(grid, _lead_rows(grid, schedule), instance=0, stride=1)
        parts = [(layer[g :: grid.instances], group[g :: grid.instances]) for g in range(grid.instances)]
    elif isinstance(schedule, Interleaved):
        lead = _lead_rows(grid, schedule)
        parts = [_merge(grid, lead, instance=g, stride=grid.instances) for g in range(grid.instances)]
    else:
        parts = _alternate(grid, schedule)
    return _by_sm(grid, parts)


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


def _merge(grid: MoeGrid, lead: Ints, *, instance: int, stride: int) -> tuple[NDArray[np.int8], Ints]:
    """Merge the groups ``instance, instance + stride, ...`` of both streams by lead(p)."""
    k2 = np.arange(instance, grid.rows * grid.l2_groups, stride)
    l1_before = _count_before(grid, lead[k2 // grid.l2_groups], instance, stride)
    return _interlace(grid, l1_before, instance, stride)


def _count_before(grid: MoeGrid, lead: Ints, instance: int, stride: int) -> Ints:
    """How many of the instance's Linear-1 groups lie in rows below each ``lead``."""
    total = max(0, -(-(grid.rows * grid.l1_groups - instance) // stride))
    return np.clip(-(-(lead * grid.l1_groups - instance) // stride), 0, total)


def _interlace(grid: MoeGrid, l1_before: Ints, instance: int, stride: int) -> tuple[NDArray[np.int8], Ints]:
    """Layer and group in order, where ``l1_before[j]`` Linear-1 groups precede the j-th Linear-2 group."""
    k1 = np.arange(instance, grid.rows * grid.l1_groups, stride)
    at2 = l1_before + np.arange(l1_before.size)
    layer = np.full(k1.size + l1_before.size, LINEAR1, np.int8)
    layer[at2] = LINEAR2
    group = np.empty(layer.size, np.int64)
    group[layer == LINEAR1] = k1
    group[at2] = instance + stride * np.arange(l1_before.size)
    return layer, group


def _alternate(grid: MoeGrid, schedule: Alternating) -> list[tuple[NDArray[np.int8], Ints]]:
    stride = grid.instances
    least = []
    for g in range(stride):
        row = np.arange(g, grid.rows * grid.l2_groups, stride) // grid.l2_groups
        least.append(_count_before(grid, row + 1, g, stride))
    warmup = schedule.warmup_groups
    if warmup is None:
        warmup = 1 + max(int((count - np.arange(count.size)).max(initial=0)) for count in least)
    parts = []
    for g, count in enumerate(least):
        total = len(range(g, grid.rows * grid.l1_groups, stride))
        l1_before = np.minimum(np.maximum(warmup + np.arange(count.size), count), total)
        parts.append(_interlace(grid, l1_before, g, stride))
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
