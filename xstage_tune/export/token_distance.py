"""How far the tokens of a tuned config may be from those asked for."""

from __future__ import annotations

import math

from xstage_tune.base.errors import UsageError

#: At this ratio of tokens a tuned config that a lookup gives is slower than the default in 6 cases of 189 on
#: the simulator, and in none of 57 of layers held out; at 1.5 in 20 and in 11. By
#: ``benchmarks/lookup_distance.py``.
MAX_TOKEN_RATIO = 1.25


def distance(found: int, asked: int) -> tuple[float, int]:
    """As a ratio; of two as close the one with more tokens comes first."""
    return abs(math.log(found / asked)), -found


def token_ratio(found: int, asked: int) -> float:
    """How many times the one is the other; at least 1."""
    return max(found, asked) / min(found, asked)


def require_ratio(max_token_ratio: float) -> None:
    """Refuse what is no such limit.

    Raises:
        UsageError: it is below 1, or no number.
    """
    if not max_token_ratio >= 1:
        raise UsageError(
            f"max_token_ratio = {max_token_ratio!r}: should be a number from 1 on",
            "1 takes only the tokens that were tuned for, math.inf any",
        )
