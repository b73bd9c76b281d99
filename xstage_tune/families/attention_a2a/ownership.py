"""Who owns which tokens after the All-to-All of Ulysses attention."""

from __future__ import annotations


def rows_per_rank(tokens: int, ranks: int) -> int:
    """Consecutive tokens that a rank owns; the last ranks may own fewer, or none."""
    return -(-tokens // ranks)


def first_token(tokens: int, ranks: int, rank: int) -> int:
    """First token that a rank owns; ``tokens`` where it owns none, and for rank ``ranks``."""
    return min(tokens, rank * rows_per_rank(tokens, ranks))
