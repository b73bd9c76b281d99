"""The MoE op over ranks that are threads, with a layer that gives tokens back: what is refused and kept."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.attention_a2a.thread_group import ThreadGroup
from tests.attention_a2a.threaded_ranks import FakeInput, FakeTensor, Ranks, empty_output, threaded_ranks
from tests.configs.cases import megamoe_config
from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.cuda.moe_layer import LayerInputs, LayerWeights
from xstage_tune.cuda.moe_routing import RoutedShape, published_layout
from xstage_tune.cuda.moe_variants import SHIPPED
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule
from xstage_tune.ops import check_group, close_group, mega_moe
from xstage_tune.ops.moe import moe_config_text

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, RANKS = 256, 128, 6, 2, 3
MAX_TOKENS = 16


class Int32(FakeTensor):
    dtype = "torch.int32"  # type: ignore[assignment]


class Float32(FakeTensor):
    dtype = "torch.float32"  # type: ignore[assignment]


class E4m3(FakeTensor):
    dtype = "torch.float8_e4m3fn"  # type: ignore[assignment]


class FakeLayer:
    """Gives every token back."""

    made: list[FakeLayer]

    def __init__(self, _: Any, shape: RoutedShape, config: MegaMoeConfig, regions: tuple[int, ...]) -> None:
        self.shape, self.config, self.regions = shape, config, regions
        self.raised = ctypes.c_uint32()
        self.queued: list[tuple[LayerWeights, LayerInputs, float]] = []
        self.closed = False
        self.made.append(self)

    def queue(self, weights: LayerWeights, inputs: LayerInputs, _: Any, timeout_s: float) -> None:
        self.queued.append((weights, inputs, timeout_s))
        ctypes.memmove(inputs.output, inputs.tokens, 2 * inputs.count * self.shape.hidden)

    def fault(self) -> DeviceError | None:
        return DeviceError("rank 1 is late") if self.raised.value else None

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    found = threaded_ranks(RANKS, monkeypatch)
    FakeLayer.made = []
    monkeypatch.setattr("xstage_tune.cuda.moe_layer.MoeLayer", FakeLayer)
    layers: dict[Any, Any] = {}
    for room in ("group", "moe_group", "moe_eager"):
        monkeypatch.setattr(f"xstage_tune.ops.{room}.LAYERS", layers)
    return found


def aligned(size: tuple[int, ...], kind: type[FakeTensor], dtype: Any) -> Any:
    """Zeros whose address is a multiple of 16."""
    nbytes = int(np.prod(size)) * np.dtype(dtype).itemsize
    memory = np.zeros(nbytes + 16, np.uint8)
    start = -memory.ctypes.data % 16
    return memory[start : start + nbytes].view(dtype).reshape(size).view(kind)


def arguments(tokens: int = 4, *, scaled: bool = False, **changes: Any) -> dict[str, Any]:
    local, element = EXPERTS // RANKS, np.uint8 if scaled else np.uint16
    kind = E4m3 if scaled else FakeInput
    given = {
        "tokens": aligned((tokens, HIDDEN), FakeInput, np.uint16),
        "topk_ids": aligned((tokens, TOP_K), Int32, np.int32),
        "topk_weights": aligned((tokens, TOP_K), Float32, np.float32),
        "weights1": aligned((local, 2 * INTERMEDIATE, HIDDEN), kind, element),
        "weights2": aligned((local, HIDDEN, INTERMEDIATE), kind, element),
        "max_tokens": MAX_TOKENS,
    }
    if scaled:
        given["scales1"] = aligned((local, 2, 2), Float32, np.float32)
        given["scales2"] = aligned((local, 2, 1), Float32, np.float32)
    return given | changes


def test_calls_of_one_kind_share_a_layer_and_their_results_are_their_own(ranks: Ranks) -> None:
    def program(rank: int, group: ThreadGroup) -> list[Any]:
        results = []
        for tokens in (rank, 5, MAX_TOKENS):
            given = arguments(tokens)
            given["tokens"][...] = 100 * rank + tokens
            results.append(mega_moe(**given, group=group))
        return results

    outcomes = ranks.run(program)
    assert len(FakeLayer.made) == RANKS
    for rank, results in enumerate(outcomes):
        assert [result.shape for result in results] == [(rank, HIDDEN), (5, HIDDEN), (MAX_TOKENS, HIDDEN)]
        assert all(bool((result == 100 * rank + len(result)).all()) for result in results)
    shape = FakeLayer.made[0].shape
    assert (shape.experts, shape.local_experts, shape.most_tokens) == (EXPERTS, 2, MAX_TOKENS)
    assert len({layer.regions for layer in FakeLayer.made}) == 1
    schedule = FakeLayer.made[0].config.schedule
    assert schedule.kind == "interleaved"


def test_what_is_kept_is_freed_when_the_group_is_closed(ranks: Ranks) -> None:
    def program(_: int, group: ThreadGroup) -> None:
        mega_moe(**arguments(), group=group)
        mega_moe(**arguments(scaled=True), group=group)
        close_group(group)
        group.gather(None)
        mega_moe(**arguments(), group=group)

    assert ranks.run(program) == [None] * RANKS
    assert [layer.closed for layer in FakeLayer.made].count(True) == 2 * RANKS
    assert len(ranks.allocated()) == RANKS


def test_a_fault_is_told_by_the_next_call_and_by_a_check(ranks: Ranks) -> None:
    def program(_: int, group: ThreadGroup) -> None:
        mega_moe(**arguments(), group=group)
        group.gather(None)
        for layer in FakeLayer.made:
            layer.raised.value = 1
        with pytest.raises(DeviceError, match="rank 1 is late"):
            check_group(group)
        mega_moe(**arguments(), group=group)

    for outcome in ranks.run(program):
        assert isinstance(outcome, DeviceError)
        assert outcome.message == "rank 1 is late"


def test_ranks_that_disagree_are_told_in_what(ranks: Ranks) -> None:
    outcomes = ranks.run(
        lambda rank, group: mega_moe(**arguments(max_tokens=MAX_TOKENS + rank // 2), group=group)
    )
    assert all(isinstance(outcome, UsageError) for outcome in outcomes)
    assert outcomes[0].message == "the ranks disagree: max_tokens is 17 on rank 2, 16 on 0"
    assert FakeLayer.made == []


def test_what_has_to_be_called_first_is_not_captured(ranks: Ranks) -> None:
    ranks.capturing = True
    outcomes = ranks.run(lambda _, group: mega_moe(**arguments(), group=group))
    assert all("a graph is being captured" in outcome.message for outcome in outcomes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokens": aligned((4, HIDDEN), Float32, np.float32)}, "tokens is float32"),
        ({"topk_ids": aligned((4, TOP_K), Float32, np.float32)}, "topk_ids is float32"),
        ({"topk_ids": aligned((3, TOP_K), Int32, np.int32)}, r"topk_ids is int32 \[3, 2\]"),
        ({"topk_weights": aligned((4, TOP_K), FakeInput, np.uint16)}, "topk_weights is bfloat16"),
        ({"weights2": aligned((2, INTERMEDIATE, HIDDEN), FakeInput, np.uint16)}, "weights2 is bfloat16"),
        ({"scales1": aligned((2, 2, 2), Float32, np.float32)}, "scales1 is given"),
        ({"max_tokens": 3}, "4 tokens, and max_tokens = 3"),
        ({"topk_ids": aligned((4,), Int32, np.int32)}, r"topk_ids has shape \[4\]"),
        ({"config": megamoe_config()}, "which only the GPU knows"),
        ({"config": megamoe_config(Schedule(kind="wave", experts_per_wave=1))}, "not built for block_m"),
        ({"timeout_s": 0.0}, "a timeout of 0.0 s"),
        ({"out": empty_output((3, HIDDEN))}, r"out is torch\.bfloat16 \[3, 256\]"),
        ({"group": 7}, "the group is of type int"),
    ],
)
def test_what_does_not_fit_is_one_clear_complaint(ranks: Ranks, changes: dict[str, Any], words: str) -> None:
    def program(_: int, group: ThreadGroup) -> None:
        mega_moe(**{"group": group, **arguments(), **changes})

    outcomes = ranks.run(program)
    with pytest.raises(UsageError, match=words):
        raise outcomes[0]


def test_e4m3_has_scales(ranks: Ranks) -> None:
    given = arguments(scaled=True)
    del given["scales2"]
    outcomes = ranks.run(lambda _, group: mega_moe(**given, group=group))
    assert outcomes[0].message == "scales2 is missing"


def test_a_gradient_is_refused(ranks: Ranks) -> None:
    class Wanted(FakeInput):
        requires_grad = True

    given = arguments(tokens=4) | {"tokens": aligned((4, HIDDEN), Wanted, np.uint16)}
    outcomes = ranks.run(lambda _, group: mega_moe(**given, group=group))
    assert "requires a gradient" in outcomes[0].message


@pytest.mark.parametrize(
    "schedule", [Schedule(kind="wave", experts_per_wave=3), Schedule(kind="interleaved", lead_rows=5)]
)
def test_a_config_is_written_so_that_it_reads_back(schedule: Schedule) -> None:
    config = SHIPPED["w8a8"][0].model_copy(update={"schedule": schedule})
    assert MegaMoeConfig.model_validate_json(moe_config_text(config)) == config


def test_a_pool_holds_every_routing() -> None:
    """Also that in which each expert has one row beyond whole tiles."""
    shape = RoutedShape(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, RANKS, 0, 100, "w8a8")
    rows, block_m = 3 * 100 * 2, 128
    assert shape.moe(block_m).pool_rows(block_m) >= rows + 2 * (block_m - 1)
    fewer = RoutedShape(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, RANKS, 0, 100, "w8a8", most_rows=100)
    assert fewer.moe(block_m).pool_rows(block_m) == 128 + 2 * 128


def test_what_a_rank_publishes_does_not_overlap() -> None:
    shape = RoutedShape(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, RANKS, 0, 100, "w8a8")
    layout = published_layout(shape)
    assert list(layout) == sorted(layout)
    assert layout.scales - layout.tokens >= 100 * HIDDEN
    assert layout.choices - layout.scales >= 100 * 4 * 4
    assert layout.words - layout.combined >= 100 * TOP_K * HIDDEN * 2
    assert all(offset % 256 == 0 for offset in layout)
