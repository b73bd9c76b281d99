"""Sizes that DeepGEMM's schedules derive from a launch's shape, pure functions of counts."""

from __future__ import annotations

from math import ceil

#: Linear-1 tiles of a wave for each SM, against imbalance among its experts.
_WAVE_FILLINGS = 2
#: The clamped lag counts in units of so many rows of one expert (fewer at its end), and in groups of units.
LAG_UNIT_ROWS = 8
LAG_GROUP_UNITS = 4
_LAG_FRACTION = 0.45
_LEAST_LAG_UNITS, _MOST_LAG_UNITS = 8, 64


def wave_experts(
    *, local_experts: int, tokens_per_expert: float, block_m: int, linear1_tiles: int, sms: int
) -> int:
    """Experts of a wave: the fewest whose Linear-1 tiles fill all SMs twice, and that divide the local ones.

    Args:
        tokens_per_expert: the mean; of less than one token most experts have none, and one wave has them all.
        linear1_tiles: N-tiles of a row of ``block_m`` tokens.
    """
    if tokens_per_expert < 1:
        return local_experts
    tiles = ceil(tokens_per_expert / block_m) * linear1_tiles
    fewest = min(local_experts, ceil(_WAVE_FILLINGS * sms / tiles))
    return next(n for n in range(fewest, local_experts + 1) if local_experts % n == 0)


def clamped_lag_units(units: int) -> int:
    """Units by which Linear-2 lags in a launch of ``units``; it may be more than there are."""
    return min(max(round(_LAG_FRACTION * units), _LEAST_LAG_UNITS), _MOST_LAG_UNITS)
