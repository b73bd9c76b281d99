"""The op on torch tensors."""

from __future__ import annotations

import pytest

from tests.attention_a2a.cases import config
from tests.attention_a2a.gpu import RankBuffers, random_inputs, reference, relative_error
from xstage_tune.base.errors import UsageError
from xstage_tune.cuda.attention_shape import AttentionShape
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.ops import attention_a2a

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("head_dim", [64, 128])
def test_attention_alone_with_the_default_config(head_dim: int) -> None:
    import torch

    q, k, v = random_inputs(AttentionShape(1500, 2, head_dim), 0)
    out = torch.empty_like(q)
    attention_a2a(q, k, v, [out.data_ptr()])
    assert relative_error(out, reference(q, k, v)) < 1e-2


@pytest.mark.parametrize(
    "variant", [config(block_n=96), config(block_n=96, output_staging="dedicated-x1", kv_splits=2)]
)
def test_on_a_stream_of_ones_own_and_in_a_graph(variant: AttentionConfig) -> None:
    import torch

    shape = AttentionShape(777, 2, 128, 4, 2)
    ranks = RankBuffers(shape, "host")
    q, k, v = random_inputs(shape, 1)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        attention_a2a(q, k, v, ranks.destinations, variant, rank=2)
    stream.synchronize()
    expected = reference(q, k, v)
    assert relative_error(ranks.gathered(), expected) < 1e-2
    ranks.poison()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        attention_a2a(q, k, v, ranks.destinations, variant, rank=2)
    graph.replay()
    torch.cuda.synchronize()
    assert relative_error(ranks.gathered(), expected) < 1e-2
    assert ranks.untouched()


def test_the_first_call_cannot_be_captured() -> None:
    import torch

    q, k, v = random_inputs(AttentionShape(131, 1, 128), 2)
    out = torch.empty_like(q)
    graph = torch.cuda.CUDAGraph()
    with (
        pytest.raises(UsageError, match="not compiled yet, and a graph is being captured"),
        torch.cuda.graph(graph),
    ):
        attention_a2a(q, k, v, [out.data_ptr()], config(block_n=144))
