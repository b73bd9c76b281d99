"""Which scheduler instances take how much of a MegaMoE layer.

SMs differ in the share of the drain rate that they get when all store at once. Given Linear-2, whose output
is remote, in proportion to it, those with a small share wait less; they take more of Linear-1 instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError

if TYPE_CHECKING:
    from xstage_tune.families.megamoe.order import MoeGrid

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Of an instance: a 64th is finer than one tile of most launches.
MOST_WEIGHT = 64


@dataclass(frozen=True, slots=True)
class Placement:
    """How many groups of each layer an instance takes, relative to the others.

    A stream is dealt in cycles of ``sum(weights)`` groups, of which an instance takes its weight, spread
    evenly: its j-th group of a cycle comes ``(2j + 1) / (2 weight)`` of it into the cycle. All weights 1
    is the plain stride. What an instance is dealt stays in ascending rows and merges by the same rule, so
    conditions (a) and (b) of :mod:`~xstage_tune.families.megamoe.order` hold.

    Args:
        l1_weights: of each instance, 0 to 64.
        l2_weights: likewise.

    Raises:
        UsageError: a weight is out of range, or nobody takes a layer.
    """

    l1_weights: tuple[int, ...]
    l2_weights: tuple[int, ...]

    def __post_init__(self) -> None:
        for weights in (self.l1_weights, self.l2_weights):
            if not all(0 <= weight <= MOST_WEIGHT for weight in weights) or not any(weights):
                raise UsageError(f"placement weights must be 0 to {MOST_WEIGHT} and not all 0, got {weights}")
        if len(self.l1_weights) != len(self.l2_weights):
            raise UsageError("a placement needs as many weights for Linear-1 as for Linear-2")


def share_placement(grid: MoeGrid, sm_share: Floats, *, l1_ns: float, l2_ns: float) -> Placement:
    """Linear-2 in proportion to each instance's share of R, and Linear-1 such that mainloops balance.

    Where the shares are so uneven that an instance would have more Linear-2 than its part of all work, they
    are drawn towards the mean until none has.

    Args:
        grid: the layer's tiles.
        sm_share: ``[sms]`` of each SM when all saturate the path; only ratios matter.
        l1_ns: mainloop of a full Linear-1 tile.
        l2_ns: likewise.

    Raises:
        UsageError: a share or a time is not positive, or there is not one share for each SM.
    """
    sm_share = np.asarray(sm_share, np.float64)
    if sm_share.shape != (grid.sms,) or not (sm_share > 0).all() or min(l1_ns, l2_ns) <= 0:
        raise UsageError(f"placement by share needs {grid.sms} positive shares and positive tile times")
    share = sm_share[: grid.instances * grid.cta_group].reshape(grid.instances, grid.cta_group).sum(axis=1)
    excess = share / share.mean() - 1.0
    l1_work, l2_work = grid.l1_groups * l1_ns, grid.l2_groups * l2_ns
    excess *= min(1.0, l1_work / (l2_work * max(float(excess.max()), 1e-9)))
    l2_weights = _weights(1.0 + excess)
    # Linear-1 makes up for what the rounded weights of Linear-2 really give.
    l2_part = l2_weights / l2_weights.mean()
    l1_weights = _weights(np.maximum(l1_work + l2_work - l2_work * l2_part, 0.0))
    return Placement(tuple(l1_weights.tolist()), tuple(l2_weights.tolist()))


def _weights(parts: Floats) -> Ints:
    weights: Ints = np.rint(parts * (MOST_WEIGHT / parts.max())).astype(np.int64)
    return weights


def deal(groups: int, weights: tuple[int, ...]) -> list[Ints]:
    """Which of ``groups`` groups each instance takes: cycles in which its own come evenly spread."""
    if len(set(weights)) == 1:
        return [np.arange(g, groups, len(weights)) for g in range(len(weights))]
    instance = np.repeat(np.arange(len(weights)), weights)
    turn = np.concatenate([2 * np.arange(weight) + 1 for weight in weights])
    # Equal fractions round to equal floats; a stable sort leaves them to the lower instance first.
    cycle = instance[np.argsort(turn / (2 * np.asarray(weights)[instance]), kind="stable")]
    taker = np.resize(cycle, groups)
    return [np.flatnonzero(taker == g) for g in range(len(weights))]
