"""From a router's choices to what each rank computes, pulls and sends: tables of pure counting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RankTables:
    """What one rank is given of a launch over all ranks.

    Rows come expert by expert, in each by source rank and token.

    Args:
        tokens_per_expert: rows routed to each local expert.
        rank: ``[rows]`` whose token a row is.
        token: ``[rows]`` which.
        slot: ``[rows]`` its place in that rank's Combine buffer, ``token * top_k + choice``.
        pulls: ``[pulls, 2]`` rank and token of each token that is pulled, once however many rows it has here,
            in the order of the first of them.
        pull_first: ``[pulls + 1]`` where each pull's rows begin in ``pull_rows``.
        pull_rows: ``[rows]`` rows, pull by pull.
    """

    tokens_per_expert: tuple[int, ...]
    rank: Ints
    token: Ints
    slot: Ints
    pulls: Ints
    pull_first: Ints
    pull_rows: Ints


def rank_tables(choices: Sequence[NDArray[np.integer]], experts: int) -> tuple[RankTables, ...]:
    """The tables of every rank.

    Args:
        choices: of each rank ``[its tokens, top_k]`` numbers of experts; those of a token are distinct.
        experts: of all ranks; expert e lives on rank ``e // (experts / ranks)``.

    Raises:
        UsageError: experts do not divide among ranks, ranks differ in top_k, or a choice is out of range or
            made twice by a token: says which.
    """
    ranks = len(choices)
    if ranks < 1 or experts % ranks:
        raise UsageError(f"{experts} experts do not divide among {ranks} ranks")
    _check(choices, experts)
    top_k = choices[0].shape[1]
    sizes = [len(one) for one in choices]
    rank = np.repeat(np.arange(ranks), np.array(sizes) * top_k)
    token = np.concatenate([np.repeat(np.arange(size), top_k) for size in sizes])
    choice = np.concatenate([np.tile(np.arange(top_k), size) for size in sizes])
    expert = np.concatenate([one.astype(np.int64).ravel() for one in choices])
    local = experts // ranks
    tables = []
    for owner in range(ranks):
        mine = np.flatnonzero(expert // local == owner)
        mine = mine[np.argsort(expert[mine], kind="stable")]
        counts = np.bincount(expert[mine] - owner * local, minlength=local)
        tables.append(_tables(counts, rank[mine], token[mine], token[mine] * top_k + choice[mine]))
    return tuple(tables)


def _tables(counts: Ints, rank: Ints, token: Ints, slot: Ints) -> RankTables:
    pairs = np.stack([rank, token], axis=1).reshape(-1, 2)
    unique, first_seen, which = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    in_order = np.argsort(first_seen, kind="stable")
    place = np.empty(len(unique), np.int64)
    place[in_order] = np.arange(len(unique))
    pull = place[which.ravel()]
    rows_of_pull = np.bincount(pull, minlength=len(unique))
    return RankTables(
        tokens_per_expert=tuple(counts.tolist()),
        rank=rank,
        token=token,
        slot=slot,
        pulls=unique[in_order],
        pull_first=np.concatenate(([0], np.cumsum(rows_of_pull))),
        pull_rows=np.argsort(pull, kind="stable"),
    )


def _check(choices: Sequence[NDArray[np.integer]], experts: int) -> None:
    top_k = choices[0].shape[1]
    for rank, one in enumerate(choices):
        if one.ndim != 2 or one.shape[1] != top_k:
            raise UsageError(f"choices of rank {rank} are {one.shape}: every rank has [tokens, {top_k}]")
        if top_k > experts:
            raise UsageError(f"top_k = {top_k} is more than {experts} experts")
        wrong = np.argwhere((one < 0) | (one >= experts))
        if wrong.size:
            token, choice = wrong[0].tolist()
            raise UsageError(
                f"rank {rank}, token {token}, choice {choice}: expert {one[token, choice]} of {experts}"
            )
        ordered = np.sort(one, axis=1)
        twice = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        if twice.size:
            raise UsageError(f"rank {rank}, token {twice[0]} chooses an expert twice")
