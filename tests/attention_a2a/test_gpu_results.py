"""Right on every shipped variant, size and degree; and the same bits every time."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.attention_a2a.cases import config
from tests.attention_a2a.gpu import POISON, Case, reference, relative_error, require_path
from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.cuda.attention_shape import AttentionShape
from xstage_tune.cuda.attention_variants import SHIPPED
from xstage_tune.families.attention_a2a.config import AttentionConfig, TileOrder

pytestmark = pytest.mark.gpu

#: bf16 operands and probabilities: the rounding of both is near 2e-3.
TOLERANCE = 1e-2
#: Several tiles a CTA (132 SMs), and a partial one.
ROUNDS = AttentionShape(tokens=9000, heads=3, head_dim=128, ranks=8, rank=5)


def check(case: Case) -> None:
    out = case.run()
    assert not bool((out == POISON).any())
    assert relative_error(out, reference(*case.inputs)) < TOLERANCE
    assert case.ranks.untouched()


@pytest.mark.parametrize("path", ["local", "host", "peer"])
@pytest.mark.parametrize(
    ("shipped", "head_dim"), SHIPPED, ids=[f"{config.label}, d {head_dim}" for config, head_dim in SHIPPED]
)
def test_shipped_variant_on_ragged_ranks(shipped: AttentionConfig, head_dim: int, path: StorePath) -> None:
    """125 tokens a rank and 122 on the last: most tiles straddle two destinations."""
    require_path(path)
    shape = AttentionShape(tokens=997, heads=2, head_dim=head_dim, ranks=8, rank=3)
    case = Case(shape, shipped, path, seed=1)
    check(case)
    first = case.ranks.gathered()
    for _ in range(3):
        assert bool((case.run() == first).all())


@pytest.mark.parametrize("record_spans", [False, True])
@pytest.mark.parametrize(
    ("shipped", "head_dim"), SHIPPED, ids=[f"{config.label}, d {head_dim}" for config, head_dim in SHIPPED]
)
def test_shipped_variant_over_several_rounds(
    shipped: AttentionConfig, head_dim: int, record_spans: bool
) -> None:
    shape = AttentionShape(ROUNDS.tokens, ROUNDS.heads, head_dim, ROUNDS.ranks, ROUNDS.rank)
    check(Case(shape, shipped, "host", seed=2, record_spans=record_spans))


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("tokens", [1, 127, 128, 129, 997, 4608])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(
    "variant",
    [
        config(block_n=80),
        config(block_m=192, output_staging="alias-q"),
        config(block_n=112, output_staging="dedicated-x1"),
        config(output_staging="dedicated-x1", store_flavour="tma"),
    ],
    ids=lambda variant: variant.label,
)
def test_any_number_of_tokens(variant: AttentionConfig, head_dim: int, tokens: int, ranks: int) -> None:
    shape = AttentionShape(tokens, 1, head_dim, ranks, ranks - 1)
    check(Case(shape, variant, seed=tokens + ranks))


@pytest.mark.parametrize("ranks", [1, 8])
@pytest.mark.parametrize("tokens", [81, 127, 160, 161, 997, 4608])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("flavour", ["st.v4", "tma"])
def test_split_tiles_of_any_number_of_tokens(
    flavour: StoreFlavour, head_dim: int, tokens: int, ranks: int
) -> None:
    """From two KV tiles on, the later one partial; odd and even numbers of them."""
    variant = config(block_n=80, output_staging="dedicated-x1", store_flavour=flavour, kv_splits=2)
    check(Case(AttentionShape(tokens, 5, head_dim, ranks, ranks - 1), variant, seed=tokens + ranks))


@pytest.mark.parametrize("order", get_args(TileOrder))
@pytest.mark.parametrize(
    "shape",
    [
        ROUNDS,
        AttentionShape(tokens=129, heads=3, head_dim=128, ranks=8, rank=3),  # none of the tiles is its own
        AttentionShape(tokens=129, heads=3, head_dim=128, ranks=8, rank=7),  # 119 to 128: the partial one is
        AttentionShape(tokens=9, heads=3, head_dim=128, ranks=8, rank=6),  # it owns no token
        AttentionShape(tokens=9000, heads=3, head_dim=128),  # all are its own
    ],
    ids=lambda shape: f"{shape.tokens} tokens, rank {shape.rank} of {shape.ranks}",
)
def test_every_tile_order_covers_all_rows(shape: AttentionShape, order: TileOrder) -> None:
    check(Case(shape, config(tile_order=order), seed=3))


@pytest.mark.parametrize("kv_splits", [1, 2])
@pytest.mark.parametrize("ranks", [1, 3])
def test_copies_out_of_two_slots_beside_tiles_that_copy_nothing(ranks: int, kv_splits: int) -> None:
    """Many rounds in which every second tile has 60 rows, none of its second consumer."""
    variant = config(block_n=96, output_staging="dedicated-x2", store_flavour="tma", kv_splits=kv_splits)
    case = Case(AttentionShape(188, 1000, 64, ranks), variant, "local", seed=6)
    for _ in range(4):
        check(case)


@pytest.mark.parametrize("order", get_args(TileOrder))
def test_every_tile_order_of_split_tiles(order: TileOrder) -> None:
    variant = config(tile_order=order, output_staging="dedicated-x1", kv_splits=2)
    check(Case(ROUNDS, variant, "host", seed=3))


@pytest.mark.parametrize(
    "variant",
    [
        config(block_n=176, output_staging="alias-v"),
        config(block_m=192),
        config(block_n=160, output_staging="dedicated-x1"),
        config(block_n=144, output_staging="dedicated-x1", kv_splits=2),
    ],
    ids=lambda variant: variant.label,
)
def test_wan_720p(variant: AttentionConfig) -> None:
    """75,600 tokens over 8 ranks, 9,450 each; a sample of rows against the reference."""
    import torch

    shape = AttentionShape(75_600, 1, 128, 8, 2)
    case = Case(shape, variant, seed=4)
    out = case.run()
    assert not bool((out == POISON).any())
    rows = torch.cat([torch.arange(0, 75_600, 101), torch.arange(9_400, 9_500), torch.arange(75_400, 75_600)])
    assert relative_error(out[rows.cuda()], reference(*case.inputs, rows.cuda())) < TOLERANCE
    assert case.ranks.untouched()


@pytest.mark.parametrize("variant", [config(), config(output_staging="dedicated-x1", kv_splits=2)])
def test_softmax_scale_and_large_scores(variant: AttentionConfig) -> None:
    """Scores far apart: most probabilities vanish, of split tiles those of whole halves; none overflows."""
    shape = AttentionShape(1000, 1, 128)
    case = Case(shape, variant, softmax_scale=128**-0.5)
    for tensor in case.inputs[:2]:
        tensor.mul_(8)
    assert relative_error(case.run(), reference(*case.inputs)) < TOLERANCE
