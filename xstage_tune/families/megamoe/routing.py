"""Tokens per expert: what a routing distribution means for every expert and rank.

All counts are (token, expert) assignments of the whole EP group, and always sum to
``tokens_per_rank * ep_degree * top_k``. They are expected values rounded, not a random draw: the same
profile gives the same counts everywhere, and only a Zipf routing's ``seed`` decides which experts are hot.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from xstage_tune.families.megamoe.workload import MoeWorkload

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


def tokens_per_expert(workload: MoeWorkload) -> Counts:
    """Tokens that each routed expert receives from all ranks, ``[experts]``.

    No expert receives more than all tokens, since a token's ``top_k`` experts are distinct; a Zipf
    routing that would exceed that passes the rest to the next hottest experts.
    """
    # Rounding the running sum keeps the total exact and spreads the remainders over the ranks.
    edges = np.floor(np.cumsum(_expected_tokens(workload)) + 0.5).astype(np.int64)
    counts: Counts = np.diff(edges, prepend=0)
    return counts


def local_tokens_per_expert(workload: MoeWorkload, rank: int) -> Counts:
    """Tokens that each expert on ``rank`` receives, ``[local_experts]``.

    Raises:
        ValueError: there is no such rank.
    """
    if not 0 <= rank < workload.ep_degree:
        raise ValueError(f"rank must be in 0..{workload.ep_degree - 1}, got {rank}")
    first = rank * workload.local_experts
    return tokens_per_expert(workload)[first : first + workload.local_experts]


def tokens_per_rank_received(workload: MoeWorkload) -> Counts:
    """Tokens that the experts of each rank receive together, ``[ep_degree]``."""
    received: Counts = tokens_per_expert(workload).reshape(workload.ep_degree, -1).sum(axis=1)
    return received


def busiest_rank(workload: MoeWorkload) -> int:
    """The rank that receives most tokens, the first of equals: it sets the layer's time."""
    return int(tokens_per_rank_received(workload).argmax())


@lru_cache(maxsize=64)
def busiest_tokens(workload: MoeWorkload) -> Counts:
    """Tokens that each expert on the busiest rank receives, ``[local_experts]``; not to be written to.

    Kept, since a search asks for those of one layer thousands of times.
    """
    tokens = local_tokens_per_expert(workload, busiest_rank(workload))
    tokens.flags.writeable = False
    return tokens


def rank_imbalance(workload: MoeWorkload) -> float:
    """Most loaded rank over the mean rank; 1 when even, ``ep_degree`` when one rank has everything."""
    received = tokens_per_rank_received(workload)
    return float(received.max() / received.mean())


def _expected_tokens(workload: MoeWorkload) -> Floats:
    """Tokens per expert before rounding, ``[experts]``."""
    routing = workload.routing
    if routing.histogram is not None:
        histogram = np.array(routing.histogram)
        expected: Floats = histogram * (workload.assignments / histogram.sum())
        return expected
    if routing.alpha is None:
        return np.full(workload.experts, workload.assignments / workload.experts)
    log_popularity = -routing.alpha * np.log(np.arange(1, workload.experts + 1))
    log_weights = np.random.default_rng(routing.seed or 0).permutation(log_popularity)
    return _capped(log_weights, workload.assignments, workload.group_tokens)


def _capped(log_weights: Floats, total: int, cap: int) -> Floats:
    """``total`` in proportion to the weights, none above ``cap``: what is cut goes to the rest.

    The weights come as logarithms, so that the rest keep theirs however steep the law is.
    """
    shares = np.zeros(log_weights.size)
    rest = np.ones(log_weights.size, dtype=bool)
    while rest.any():
        weights = np.exp(log_weights[rest] - log_weights[rest].max())
        shares[rest] = weights * (total - shares[~rest].sum()) / weights.sum()
        over = rest & (shares > cap)
        if not over.any():
            break
        shares[over] = cap
        rest &= ~over
    return shares
