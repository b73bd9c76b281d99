"""Who owns which tokens, and what is refused of a shape or of its destinations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xstage_tune.base.errors import UsageError
from xstage_tune.cuda.attention_shape import AttentionShape, Destinations

SHAPE = AttentionShape(tokens=1000, heads=3, head_dim=128, ranks=8, rank=2)
BUFFERS = tuple(0x1000 * (rank + 1) for rank in range(8))


@settings(deadline=None, max_examples=100)
@given(tokens=st.integers(1, 200_000), ranks=st.integers(1, 8))
def test_every_token_has_one_owner(tokens: int, ranks: int) -> None:
    shape = AttentionShape(tokens, 1, 64, ranks)
    rows = [shape.rows_of(rank) for rank in range(ranks)]
    assert sum(rows) == tokens
    assert rows == sorted(rows, reverse=True)
    assert max(rows) == shape.rows_per_rank


def test_bytes_by_hand() -> None:
    """125 tokens a rank, of 24 heads of 256 bytes."""
    assert SHAPE.token_bytes == 24 * 256
    assert SHAPE.buffer_bytes(0) == 125 * 24 * 256
    assert SHAPE.flops == 4 * 1000 * 1000 * 128 * 3


def test_heads_that_the_ranks_do_not_divide_by_hand() -> None:
    """30 heads over 4 ranks: 8, 8, 7, 7."""
    shapes = [
        AttentionShape(9, heads, 64, 4, rank, total_heads=30) for rank, heads in enumerate((8, 8, 7, 7))
    ]
    assert [shape.first_head for shape in shapes] == [0, 8, 16, 23]
    assert {shape.token_bytes for shape in shapes} == {30 * 128}
    with pytest.raises(UsageError, match="8 local heads on rank 2, whose share of 30 is 7"):
        AttentionShape(9, 8, 64, 4, 2, total_heads=30)


def test_a_group_shares_its_heads_evenly() -> None:
    assert AttentionShape.of_group(1000, 24, 128, 8, 2) == SHAPE
    with pytest.raises(UsageError, match="24 heads are not divisible by 5 ranks"):
        AttentionShape.of_group(1000, 24, 128, 5, 0)
    with pytest.raises(UsageError, match="0 ranks"):
        AttentionShape.of_group(1000, 24, 128, 0, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": 0}, "0 tokens"),
        ({"heads": 0}, "0 heads"),
        ({"head_dim": 0}, "0 elements"),
        ({"ranks": 0, "rank": 0}, "0 ranks"),
        ({"ranks": 9}, "table holds 1 to 8"),
        ({"rank": 8}, "rank 8 is not one of 8"),
        ({"rank": -1}, "rank -1"),
        ({"tokens": 2**24}, "too large"),
    ],
)
def test_sizes_out_of_range_are_refused(changes: dict[str, int], message: str) -> None:
    values = {"tokens": 1000, "heads": 3, "head_dim": 128, "ranks": 8, "rank": 2}
    with pytest.raises(UsageError, match=message):
        AttentionShape(**(values | changes))


def test_destinations_that_fit_pass() -> None:
    Destinations(BUFFERS).check(SHAPE)
    Destinations(BUFFERS, epoch_bytes=SHAPE.buffer_bytes(0), signals=BUFFERS).check(SHAPE)
    few = AttentionShape(tokens=3, heads=1, head_dim=64, ranks=8)
    Destinations((16, 16, 16, 0, 0, 0, 0, 0)).check(few)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"buffers": BUFFERS[:7]}, "7 destination buffers for 8 ranks"),
        ({"buffers": (*BUFFERS, 0x9000)}, "9 destination buffers"),
        ({"buffers": (0, *BUFFERS[1:])}, "buffer of rank 0 is at 0x0"),
        ({"buffers": (*BUFFERS[:7], 0x1008)}, "buffer of rank 7 is at 0x1008"),
        ({"signals": BUFFERS[:3]}, "3 signals for 8 ranks"),
        ({"signals": (*BUFFERS[:7], 0)}, "signal of rank 7"),
        ({"signals": (*BUFFERS[:7], 0x1002)}, "signal of rank 7"),
        ({"epoch_bytes": SHAPE.buffer_bytes(0) - 16}, "epoch_bytes"),
        ({"epoch_bytes": SHAPE.buffer_bytes(0) + 8}, "epoch_bytes"),
    ],
)
def test_destinations_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Destinations(**({"buffers": BUFFERS} | changes)).check(SHAPE)
