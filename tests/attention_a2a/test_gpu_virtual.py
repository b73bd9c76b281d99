"""The op over a group whose ranks share one GPU: captures, streams, lateness, compilation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.attention_a2a.gpu import random_inputs, reference, relative_error
from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.cuda.attention_shape import AttentionShape
from xstage_tune.families.attention_a2a.check import TOLERANCE
from xstage_tune.ops import attention_a2a, check_group

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # streams that wait must not hold others up
pytestmark = pytest.mark.gpu

RANKS = 2
TOKENS, HEADS, HEAD_DIM = 301, 2, 128
ROWS = (151, 150)


@pytest.fixture
def ranks() -> Iterator[Any]:
    from tests.attention_a2a.virtual_ranks import VirtualRanks

    with VirtualRanks(RANKS) as ranks:
        yield ranks


def inputs_of(rank: int, seed: int) -> tuple[Any, Any, Any]:
    return random_inputs(AttentionShape(TOKENS, HEADS, HEAD_DIM), 10 * seed + rank)


def expected(rank: int, seed: int) -> Any:
    import torch

    rows = slice(rank * ROWS[0], rank * ROWS[0] + ROWS[rank])
    return torch.cat([reference(*inputs_of(of, seed), rows) for of in range(RANKS)], dim=1)


def is_right(result: Any, rank: int, seed: int) -> bool:
    return relative_error(result, expected(rank, seed)) <= TOLERANCE


def test_graphs_of_two_calls_among_eager_calls(ranks: Any) -> None:
    import torch

    inputs = [[inputs_of(rank, seed) for rank in range(RANKS)] for seed in range(4)]
    ranks.together(lambda rank, group: attention_a2a(*inputs[0][rank], group))
    graphs, captured = [], []
    for rank, group in enumerate(ranks.groups):
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[rank], stream=ranks.streams[rank]):
            captured.append([attention_a2a(*inputs[seed][rank], group) for seed in (1, 2)])
    for _ in range(3):  # an odd number of epochs a turn: either buffer comes first
        results = []
        for rank, group in enumerate(ranks.groups):
            with torch.cuda.stream(ranks.streams[rank]):
                graphs[rank].replay()
                results.append(attention_a2a(*inputs[3][rank], group))
        torch.cuda.synchronize()
        for rank in range(RANKS):
            assert [is_right(captured[rank][place], rank, place + 1) for place in range(2)] == [True, True]
            assert is_right(results[rank], rank, 3)
            for result in captured[rank]:
                result.zero_()
        torch.cuda.synchronize()
    for group in ranks.groups:
        check_group(group)


def test_a_rank_that_does_not_call_is_named_and_its_buffers_stay(ranks: Any) -> None:
    import torch

    inputs = [[inputs_of(rank, seed) for rank in range(RANKS)] for seed in range(4)]
    ranks.together(lambda rank, group: attention_a2a(*inputs[0][rank], group))
    group = ranks.groups[0]
    with torch.cuda.stream(ranks.streams[0]):
        queued = [attention_a2a(*inputs[seed][0], group, timeout_s=0.2) for seed in (1, 2, 3)]
    with pytest.raises(DeviceError, match=r"rank 1 did not signal epoch 2 within 0\.2 s: its word is 1"):
        check_group(group)
    assert all(bool(result.isnan().all()) for result in queued)
    # It comes after all: epoch 2 is what it gets, and of epoch 3 nothing.
    with torch.cuda.stream(ranks.streams[1]):
        late = attention_a2a(*inputs[1][1], ranks.groups[1], timeout_s=0.2)
        last = attention_a2a(*inputs[2][1], ranks.groups[1], timeout_s=0.2)
    with pytest.raises(DeviceError, match=r"rank 0 did not signal epoch 3 within 0\.2 s: its word is 2"):
        check_group(ranks.groups[1])
    assert is_right(late, 1, 1)
    assert bool(last.isnan().all())
    with pytest.raises(DeviceError, match="rank 1 did not signal"):
        attention_a2a(*inputs[3][0], group)


def test_replays_that_nobody_ordered_are_refused(ranks: Any) -> None:
    import torch

    inputs = [inputs_of(rank, 0) for rank in range(RANKS)]
    ranks.together(lambda rank, group: attention_a2a(*inputs[rank], group, timeout_s=5.0))
    group = ranks.groups[0]
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    for graph in graphs:
        with torch.cuda.graph(graph):
            attention_a2a(*inputs[0], group, timeout_s=5.0)
    for graph in graphs:  # the first waits for rank 1
        with torch.cuda.stream(torch.cuda.Stream()):
            graph.replay()
    with pytest.raises(DeviceError, match="two attention calls of one exchange ran at once"):
        check_group(group)


def test_views_of_one_tensor_and_keys_of_another_length() -> None:
    import torch

    generator = torch.Generator(device="cuda").manual_seed(0)
    packed = torch.randn((700, 3, 3, 64), device="cuda", generator=generator).bfloat16()
    for q, k, v in (packed.unbind(1), packed.unbind(2)):
        k, v = k[:345], v[:345]
        out = torch.empty(q.shape, dtype=q.dtype, device="cuda")
        attention_a2a(q, k, v, [out.data_ptr()])
        assert relative_error(out, reference(q, k, v)) <= TOLERANCE


def test_log_sums_merge_outputs_over_two_parts_of_the_keys(ranks: Any) -> None:
    import torch

    inputs = [inputs_of(rank, 0) for rank in range(RANKS)]
    alone = torch.empty((2, HEADS, TOKENS), device="cuda")
    parts = (slice(0, 200), slice(200, None))
    outputs = [torch.empty((TOKENS, HEADS, HEAD_DIM), device="cuda").bfloat16() for _ in parts]
    q, k, v = inputs[0]
    for part, output, lse in zip(parts, outputs, alone, strict=True):
        attention_a2a(q, k[part], v[part], [output.data_ptr()], lse=lse)
    weights = torch.softmax(alone, 0).transpose(1, 2)[..., None]
    merged = sum(weight * output.float() for weight, output in zip(weights, outputs, strict=True))
    assert relative_error(merged, reference(q, k, v)) <= TOLERANCE
    lses = torch.zeros((RANKS, HEADS, TOKENS), device="cuda")
    ranks.together(lambda rank, group: attention_a2a(*inputs[rank], group, lse=lses[rank]))
    torch.cuda.synchronize()
    assert float((lses[0] - torch.logsumexp(alone, 0)).abs().max()) < 1e-4


def test_heads_that_the_ranks_do_not_divide(ranks: Any) -> None:
    """Three: two on the first rank, one on the second."""
    import torch

    q, k, v = random_inputs(AttentionShape(TOKENS, 3, HEAD_DIM), 5)
    own = (slice(0, 2), slice(2, 3))
    results = ranks.together(
        lambda rank, group: attention_a2a(q[:, own[rank]], k[:, own[rank]], v[:, own[rank]], group, heads=3)
    )
    torch.cuda.synchronize()
    assert relative_error(torch.cat(results), reference(q, k, v)) <= TOLERANCE


def test_a_compiled_program_calls_it_as_one_operator(ranks: Any) -> None:
    import torch

    inputs = [inputs_of(rank, 0) for rank in range(RANKS)]
    ranks.together(lambda rank, group: attention_a2a(*inputs[rank], group))
    results = []
    # A kernel is loaded where it is first used, which waits for a GPU that here would wait for another rank.
    assert bool(((inputs[0][0] * 1).flatten(1) + 0).isfinite().all())
    for rank, group in enumerate(ranks.groups):

        def program(q: Any, k: Any, v: Any, group: Any = group) -> Any:
            return attention_a2a(q * 1, k, v, group).flatten(1) + 0

        with torch.cuda.stream(ranks.streams[rank]), torch.no_grad():
            results.append(torch.compile(program, fullgraph=True, backend="aot_eager")(*inputs[rank]))
    torch.cuda.synchronize()
    for rank, result in enumerate(results):
        assert is_right(result.view(ROWS[rank], RANKS * HEADS, HEAD_DIM), rank, 0)
    q = inputs[0][0].detach().requires_grad_()
    with pytest.raises(UsageError, match="requires a gradient"):
        torch.ops.xstage_tune.attention_over_group(
            q, q, q, ranks.groups[0].group_name, 0, 2, None, None, None, 1.0
        )


def test_old_tiles_keep_their_weight_while_the_largest_score_stands() -> None:
    """All scores are one large number: means of 1 over half of V and -1 over the other are 0."""
    import torch

    q = torch.full((256, 1, 128), 30.0, device="cuda").bfloat16()
    k = torch.full((12_800, 1, 128), 30.1, device="cuda").bfloat16()
    v = torch.ones_like(k)
    v[: len(v) // 2] = -1
    out = torch.empty_like(q)
    attention_a2a(q, k, v, [out.data_ptr()])
    torch.cuda.synchronize()
    assert float(out.abs().max()) < 1e-5


def test_random_calls_of_four_ranks() -> None:
    import torch

    from tests.attention_a2a.soak import Soak
    from tests.attention_a2a.virtual_ranks import VirtualRanks

    with torch.no_grad(), VirtualRanks(4) as ranks:
        assert Soak(ranks, seed=1).run(2000) == 0
