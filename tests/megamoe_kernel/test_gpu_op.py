"""The MoE op on a GPU whose SMs several ranks share: every launch routed anew, captures, faults."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.cuda.moe_layer import MoeLayer
from xstage_tune.families.megamoe.check import TOLERANCE
from xstage_tune.ops import check_group, close_group, mega_moe

pytestmark = pytest.mark.gpu

SIZES = (300, 0, 517)
LAYER: dict[str, Any] = {"experts": 12, "top_k": 4, "hidden": 512, "intermediate": 256}
MAX_TOKENS = 600
#: Of a rank: beside them others' kernels that wait have SMs.
CTAS = 40


@pytest.fixture(params=[False, True], ids=["bf16", "w8a8"])
def layer(request: pytest.FixtureRequest) -> Any:
    pytest.importorskip("torch")
    from tests.megamoe_kernel.op_ranks import Layer

    return Layer(SIZES, scaled=request.param, **LAYER)


@pytest.fixture
def ranks() -> Iterator[Any]:
    pytest.importorskip("torch")
    from tests.attention_a2a.virtual_ranks import VirtualRanks

    few = partial(MoeLayer, most_ctas=CTAS)
    with patch("xstage_tune.cuda.moe_layer.MoeLayer", few), VirtualRanks(len(SIZES)) as opened:
        yield opened


def call(layer: Any, rank: int, group: Any, **options: Any) -> Any:
    return mega_moe(*layer.of(rank), group, max_tokens=MAX_TOKENS, **layer.scales_of(rank), **options)


def error(layer: Any, rank: int, output: Any) -> float:
    expected = layer.reference(rank)
    return float((output.float() - expected).norm() / expected.norm()) if len(expected) else 0.0


def test_every_rank_s_result_is_right_however_its_tokens_are_routed(layer: Any, ranks: Any) -> None:
    import torch

    precision = "w8a8" if layer.scaled else "bf16"
    for turn in range(3):
        layer.draw()
        outputs = ranks.together(partial(call, layer))
        again = ranks.together(partial(call, layer))
        torch.cuda.synchronize()
        for rank, output in enumerate(outputs):
            assert error(layer, rank, output) < TOLERANCE[precision], (turn, rank)
            assert torch.equal(output, again[rank])
    for group in ranks.groups:
        check_group(group)


def test_a_captured_call_replays_on_another_routing(layer: Any, ranks: Any) -> None:
    import torch

    ranks.together(partial(call, layer))
    captured = []
    for rank, group in enumerate(ranks.groups):
        graph, out = torch.cuda.CUDAGraph(), torch.empty_like(layer.tokens[rank])
        with torch.no_grad(), torch.cuda.graph(graph, stream=ranks.streams[rank]):
            call(layer, rank, group, out=out)
        captured.append((graph, out))
    torch.cuda.synchronize()
    held = [*layer.tokens, *layer.choices, *layer.router]
    layer.draw()
    for kept, drawn in zip(held, [*layer.tokens, *layer.choices, *layer.router], strict=True):
        kept.copy_(drawn)
    for _, out in captured:
        out.fill_(1e30)
    torch.cuda.synchronize()
    ranks.together(lambda rank, _: captured[rank][0].replay())
    torch.cuda.synchronize()
    for rank, (_, out) in enumerate(captured):
        assert error(layer, rank, out) < TOLERANCE["w8a8"]


def test_what_is_no_expert_is_named_and_ends_in_nans(layer: Any, ranks: Any) -> None:
    import torch

    ranks.together(partial(call, layer))
    torch.cuda.synchronize()  # what it reads is written to
    layer.choices[2][7, 1] = LAYER["experts"]
    outputs = ranks.together(partial(call, layer))
    torch.cuda.synchronize()
    assert bool(outputs[0].isnan().all())
    for group in ranks.groups:
        with pytest.raises(DeviceError, match="rank 2, token 7: expert 12 of 12 is chosen"):
            check_group(group)
        close_group(group)
    layer.draw()
    outputs = ranks.together(partial(call, layer))
    torch.cuda.synchronize()
    assert error(layer, 0, outputs[0]) < TOLERANCE["w8a8"]


def test_more_rows_than_there_is_room_for_end_in_nans(layer: Any, ranks: Any) -> None:
    import torch

    outputs = ranks.together(partial(call, layer, max_rows=200, timeout_s=1.0))
    torch.cuda.synchronize()
    full = [rank for rank, group in enumerate(ranks.groups) if _is_full(group)]
    assert full
    assert bool(outputs[full[0]].isnan().all())


def _is_full(group: Any) -> bool:
    try:
        check_group(group)
    except DeviceError as error:
        return "pool holds" in error.message
    return False


def test_a_late_rank_is_named(layer: Any, ranks: Any) -> None:
    import torch

    ranks.together(partial(call, layer))

    def without_last(rank: int, group: Any) -> Any:
        return call(layer, rank, group, timeout_s=0.2) if rank != 2 else None

    outputs = ranks.together(without_last)
    torch.cuda.synchronize()
    assert bool(outputs[0].isnan().all())
    with pytest.raises(DeviceError, match=r"tokens of rank 2 did not come: waited 0\.2 s for launch 2"):
        check_group(ranks.groups[0])


def test_a_gradient_is_refused(layer: Any, ranks: Any) -> None:
    import torch

    layer.tokens[0].requires_grad_()
    with pytest.raises(UsageError, match="requires a gradient"), torch.enable_grad():
        call(layer, 0, ranks.groups[0])


def test_a_compiler_takes_it_as_one_operator(layer: Any, ranks: Any) -> None:
    import torch

    ranks.together(partial(call, layer))
    results = []
    # A kernel is loaded where it is first used, which waits for a GPU that here would wait for another rank.
    assert bool(((layer.tokens[0] * 1) + 0).isfinite().all())
    for rank, group in enumerate(ranks.groups):

        def program(tokens: Any, *others: Any, rank: int = rank, group: Any = group) -> Any:
            scales = layer.scales_of(rank)
            return mega_moe(tokens * 1, *others, group, max_tokens=MAX_TOKENS, timeout_s=10.0, **scales) + 0

        with torch.cuda.stream(ranks.streams[rank]), torch.no_grad():
            results.append(torch.compile(program, fullgraph=True, backend="aot_eager")(*layer.of(rank)))
    torch.cuda.synchronize()
    for rank, result in enumerate(results):
        assert error(layer, rank, result) < TOLERANCE["w8a8"]
