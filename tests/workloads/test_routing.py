"""Tokens per expert and per rank, for every kind of routing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.shapes import moe
from xstage_tune.families.megamoe import routing

kinds = st.one_of(
    st.just({"kind": "balanced"}),
    st.builds(
        lambda alpha, seed: {"kind": "zipf", "alpha": alpha, "seed": seed},
        st.just(0.0) | st.floats(1e-9, 100),
        st.integers(0, 99),
    ),
)


@given(st.integers(1, 6), st.integers(1, 8), st.integers(1, 8), st.integers(1, 5000), kinds)
@settings(deadline=None, max_examples=100)
def test_counts_sum_to_all_assignments_and_no_expert_exceeds_all_tokens(
    local: int, ranks: int, top_k: int, tokens: int, kind: dict[str, object]
) -> None:
    layer = moe(
        experts=local * ranks,
        ep_degree=ranks,
        top_k=min(top_k, local * ranks),
        tokens_per_rank=tokens,
        routing=kind,
    )
    counts = routing.tokens_per_expert(layer)
    assert counts.shape == (layer.experts,)
    assert counts.sum() == layer.assignments
    assert counts.min() >= 0
    assert counts.max() <= layer.group_tokens


class TestBalanced:
    def test_every_expert_has_the_same(self) -> None:
        assert routing.tokens_per_expert(moe()).tolist() == [100] * 8
        assert routing.rank_imbalance(moe()) == 1.0

    def test_a_remainder_is_spread_over_the_ranks(self) -> None:
        one_token = moe(tokens_per_rank=1, top_k=1)  # 4 assignments on 8 experts
        assert routing.tokens_per_rank_received(one_token).tolist() == [1, 1, 1, 1]


class TestZipf:
    def test_follows_the_power_law_below_the_cap(self) -> None:
        layer = moe(experts=64, top_k=1, tokens_per_rank=100_000, routing={"kind": "zipf", "alpha": 0.8})
        hot_to_cold = np.sort(routing.tokens_per_expert(layer))[::-1]
        expected = np.arange(1, 65) ** -0.8
        assert hot_to_cold == pytest.approx(expected * hot_to_cold.sum() / expected.sum(), abs=1)

    def test_alpha_zero_is_balanced(self) -> None:
        layer = moe(routing={"kind": "zipf", "alpha": 0.0, "seed": 3})
        assert routing.tokens_per_expert(layer).tolist() == [100] * 8

    def test_the_seed_moves_the_hot_experts_and_nothing_else(self) -> None:
        a, b, again = (
            routing.tokens_per_expert(
                moe(experts=64, tokens_per_rank=50_000, routing={"kind": "zipf", "alpha": 1.0, "seed": seed})
            )
            for seed in (0, 1, 0)
        )
        assert (a == again).all()
        assert (a != b).any()
        # rounding of the running sum depends on the order, by at most one token
        assert np.abs(np.sort(a) - np.sort(b)).max() <= 1

    def test_a_steep_law_fills_the_top_k_hottest_experts(self) -> None:
        layer = moe(top_k=3, routing={"kind": "zipf", "alpha": 100.0})
        assert sorted(routing.tokens_per_expert(layer).tolist()) == [0] * 5 + [400] * 3

    def test_imbalance_of_ranks_grows_with_alpha(self) -> None:
        imbalance = [
            routing.rank_imbalance(moe(experts=64, ep_degree=8, routing={"kind": "zipf", "alpha": alpha}))
            for alpha in (0.0, 0.5, 1.0, 2.0)
        ]
        assert imbalance == sorted(imbalance)
        assert imbalance[0] == 1.0
        assert imbalance[-1] > 2.0


class TestHistogram:
    def test_token_counts_are_kept(self) -> None:
        counts = [400, 0, 100, 100, 50, 50, 60, 40]
        layer = moe(routing={"kind": "histogram", "histogram": counts})
        assert routing.tokens_per_expert(layer).tolist() == counts
        assert routing.busiest_rank(layer) == 0
        assert routing.rank_imbalance(layer) == 2.0

    def test_shares_scale_with_the_tokens(self) -> None:
        shares = [0.5, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05]
        layer = moe(tokens_per_rank=1000, routing={"kind": "histogram", "histogram": shares})
        assert routing.tokens_per_expert(layer).tolist() == [4000, 800, 800, 800, 400, 400, 400, 400]

    def test_all_tokens_on_one_expert_is_the_worst_imbalance(self) -> None:
        everything = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
        layer = moe(top_k=1, routing={"kind": "histogram", "histogram": everything})
        assert routing.tokens_per_expert(layer).tolist() == [0, 0, 0, 400, 0, 0, 0, 0]
        assert routing.busiest_rank(layer) == 1
        assert routing.rank_imbalance(layer) == layer.ep_degree


class TestRanks:
    def test_local_experts_are_consecutive(self) -> None:
        layer = moe(routing={"kind": "histogram", "histogram": [10, 20, 30, 40, 100, 200, 190, 210]})
        local = [routing.local_tokens_per_expert(layer, rank).tolist() for rank in range(4)]
        assert local == [[10, 20], [30, 40], [100, 200], [190, 210]]
        assert routing.tokens_per_rank_received(layer).tolist() == [30, 70, 300, 400]
        assert routing.busiest_rank(layer) == 3

    @pytest.mark.parametrize("rank", [-1, 4])
    def test_refuses_a_rank_that_is_not_there(self, rank: int) -> None:
        with pytest.raises(ValueError, match=r"rank must be in 0\.\.3"):
            routing.local_tokens_per_expert(moe(), rank)
