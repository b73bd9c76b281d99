"""From the router's choices to the tables of every rank."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError
from xstage_tune.families.megamoe.dispatch import rank_tables

Choices = list[NDArray[np.int64]]


@st.composite
def choices(draw: st.DrawFn) -> tuple[Choices, int]:
    ranks, local = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    experts = ranks * local
    top_k = draw(st.integers(1, experts))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(0, 12), min_size=ranks, max_size=ranks))
    made = [
        np.array([generator.permutation(experts)[:top_k] for _ in range(size)], np.int64).reshape(size, top_k)
        for size in sizes
    ]
    return made, experts


@given(given=choices())
@settings(deadline=None, max_examples=100)
def test_every_choice_is_a_row_of_its_expert_once(given: tuple[Choices, int]) -> None:
    made, experts = given
    top_k, local = made[0].shape[1], experts // len(made)
    seen = set()
    for owner, tables in enumerate(rank_tables(made, experts)):
        expert = np.repeat(np.arange(local), tables.tokens_per_expert) + owner * local
        assert len(expert) == len(tables.rank)
        for row, rank in enumerate(tables.rank.tolist()):
            token, choice = divmod(int(tables.slot[row]), top_k)
            assert token == tables.token[row]
            assert made[rank][token, choice] == expert[row]
            seen.add((rank, token, choice))
    assert len(seen) == sum(one.size for one in made)


@given(given=choices())
@settings(deadline=None, max_examples=100)
def test_every_token_is_pulled_once_for_all_its_rows(given: tuple[Choices, int]) -> None:
    for tables in rank_tables(*given):
        assert len({tuple(pull) for pull in tables.pulls.tolist()}) == len(tables.pulls)
        assert sorted(tables.pull_rows.tolist()) == list(range(len(tables.rank)))
        firsts = []
        for number, (rank, token) in enumerate(tables.pulls.tolist()):
            rows = tables.pull_rows[tables.pull_first[number] : tables.pull_first[number + 1]]
            assert set(tables.rank[rows]) == {rank}
            assert set(tables.token[rows]) == {token}
            firsts.append(rows.min())
        assert firsts == sorted(firsts)


@pytest.mark.parametrize(
    ("made", "experts", "words"),
    [
        ([[[0, 4]], [[1, 2]]], 4, "rank 0, token 0, choice 1: expert 4 of 4"),
        ([[[0, 1]], [[-1, 2]]], 4, "rank 1, token 0, choice 0: expert -1 of 4"),
        ([[[0, 1]], [[2, 2]]], 4, "rank 1, token 0 chooses an expert twice"),
        ([[[0, 1]], [[2]]], 4, "choices of rank 1 are"),
        ([[[0, 1, 2]]], 2, "top_k = 3 is more than 2 experts"),
        ([[[0]], [[1]]], 3, "3 experts do not divide among 2 ranks"),
    ],
)
def test_choices_that_cannot_be_are_named(made: list[list[list[int]]], experts: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        rank_tables([np.array(one) for one in made], experts)
