"""The op over a process group, whose ranks are threads here: agreement, layout, epochs, late ranks."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from tests.attention_a2a.cases import config
from tests.attention_a2a.thread_group import ThreadGroup
from tests.attention_a2a.threaded_ranks import (
    FakeInput,
    Ranks,
    empty_output,
    random_input,
    threaded_ranks,
)
from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.cuda.attention_shape import AttentionShape, Destinations
from xstage_tune.cuda.compiler import UnusableKernelError
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.ops import attention_a2a, check_group, close_group
from xstage_tune.ops.runtime import kernel_for

#: 4, 4 and 2 tokens a rank.
TOKENS, HEADS, HEAD_DIM, RANKS = 10, 2, 64, 3
SIZE = (TOKENS, HEADS, HEAD_DIM)


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    return threaded_ranks(RANKS, monkeypatch)


def attend(q: FakeInput, group: ThreadGroup, **options: Any) -> Any:
    return attention_a2a(q, q, q, group, config(), **options)


def once(rank: int, group: ThreadGroup) -> Any:
    return attend(random_input(SIZE, rank), group)


@pytest.mark.parametrize("tokens", [9, 10, 1])
def test_every_rank_gets_all_heads_of_its_tokens_in_every_epoch(ranks: Ranks, tokens: int) -> None:
    inputs = [[random_input((tokens, HEADS, HEAD_DIM), 10 * e + r) for r in range(RANKS)] for e in range(5)]

    def program(rank: int, group: ThreadGroup) -> list[np.ndarray]:
        return [np.array(attend(epoch[rank], group)) for epoch in inputs]

    outcomes = ranks.run(program)
    rows = -(-tokens // RANKS)
    for epoch, tensors in enumerate(inputs):
        expected = np.concatenate(tensors, axis=1)
        for rank in range(RANKS):
            result = outcomes[rank][epoch]
            assert result.shape == (max(0, min(rows, tokens - rank * rows)), RANKS * HEADS, HEAD_DIM)
            assert (result == expected[rank * rows : (rank + 1) * rows]).all()


def test_a_result_outlives_later_calls(ranks: Ranks) -> None:
    def program(rank: int, group: ThreadGroup) -> list[np.ndarray]:
        return [attend(random_input(SIZE, 10 * epoch + rank), group) for epoch in range(4)]

    outcomes = ranks.run(program)
    for epoch in range(4):
        expected = np.concatenate([random_input(SIZE, 10 * epoch + rank) for rank in range(RANKS)], axis=1)
        assert (np.concatenate([results[epoch] for results in outcomes]) == expected).all()


def test_a_result_goes_where_the_caller_wants_it(ranks: Ranks) -> None:
    def program(rank: int, group: ThreadGroup) -> bool:
        plain = once(rank, group)
        out = empty_output(plain.shape)
        return attend(random_input(SIZE, rank), group, out=out) is out and bool((out == plain).all())

    assert ranks.run(program) == [True] * RANKS
    lse = random_input((10, 2), 0)
    for error in ranks.run(lambda rank, group: attend(random_input(SIZE, rank), group, lse=lse)):
        assert isinstance(error, UsageError)
        assert error.message.startswith("lse is torch.bfloat16 [10, 2] on ")
    with pytest.raises(UsageError, match=r"out is torch\.bfloat16"):
        attend(random_input(SIZE, 0), ranks.groups[0], out=random_input((1, 2, 64), 0))


def test_tensors_at_one_place_are_told_apart(ranks: Ranks) -> None:
    def program(rank: int, group: ThreadGroup) -> list[tuple[int, ...]]:
        q = random_input(SIZE, rank)
        shapes = [attend(q[:tokens], group).shape for tokens in (10, 7, 10, 7)]
        q.requires_grad = True
        with pytest.raises(UsageError, match="requires a gradient"):
            attend(q, group)
        return shapes

    assert ranks.run(program)[0] == [(4, 6, 64), (3, 6, 64)] * 2


def test_all_shapes_share_buffers_which_grow(ranks: Ranks) -> None:
    def program(rank: int, group: ThreadGroup) -> None:
        longer, longest = (random_input((tokens, HEADS, HEAD_DIM), rank) for tokens in (TOKENS + 1, 90))
        for _ in range(2):
            once(rank, group)
            attend(random_input((1, HEADS, HEAD_DIM), rank), group)
            attend(longer, group)  # 4 rows a rank, as before
            attend(longer, group, softmax_scale=1.0)
        assert len(ranks.allocations) == RANKS
        attend(longest, group)
        once(rank, group)

    assert ranks.run(program) == [None] * RANKS
    assert len(ranks.kernels) == 5 * RANKS
    assert len(ranks.allocations) == 2 * RANKS
    assert len(ranks.allocated()) == RANKS


def test_buffers_that_a_graph_may_hold_are_kept_when_others_take_their_place(ranks: Ranks) -> None:
    def program(rank: int, group: ThreadGroup) -> None:
        once(rank, group)
        ranks.capturing = True
        once(rank, group)
        group.gather(None)
        ranks.capturing = False
        group.gather(None)
        attend(random_input((90, HEADS, HEAD_DIM), rank), group)

    assert ranks.run(program) == [None] * RANKS
    assert len(ranks.allocated()) == 2 * RANKS


def test_calls_are_ordered_where_the_stream_changes_or_a_graph_is_captured(ranks: Ranks) -> None:
    def program(rank: int, group: ThreadGroup) -> None:
        for stream, capturing in ((1, False), (1, False), (2, False), (2, True), (2, False)):
            group.gather(None)
            ranks.stream, ranks.capturing = stream, capturing
            group.gather(None)
            once(rank, group)

    assert ranks.run(program) == [None] * RANKS
    assert sorted(ranks.entered) == sorted([(1, False), (2, False), (2, True)] * RANKS)


def test_destinations_of_one_shape_have_epochs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    threaded_ranks(1, monkeypatch)
    q = random_input(SIZE, 0)
    outputs, words = np.zeros((2, 2, *SIZE), np.uint16), np.zeros((2, 4), np.uint32)
    first, second = (
        Destinations((output.ctypes.data,), output[0].nbytes, (word.ctypes.data,))
        for output, word in zip(outputs, words, strict=True)
    )
    for destinations in (first, second, first, first):
        attention_a2a(q, q, q, destinations, config())
    assert words[:, 0].tolist() == [3, 1]
    assert [(output == q).all() for output in outputs.reshape(4, *SIZE)] == [True, True, True, False]


def test_inputs_that_require_a_gradient_are_refused(ranks: Ranks) -> None:
    q = random_input(SIZE, 0)
    q.requires_grad = True
    for destination in (ranks.groups[0], [0x1000]):
        with pytest.raises(UsageError, match="requires a gradient"):
            attention_a2a(random_input(SIZE, 0), q, random_input(SIZE, 0), destination)


def test_ranks_that_disagree_are_told_in_what_before_anything_is_allocated(ranks: Ranks) -> None:
    def program(rank: int, group: ThreadGroup) -> None:
        attend(random_input((TOKENS - (rank == 1), HEADS, HEAD_DIM), rank), group)

    first, second, third = ranks.run(program)
    assert first.message == third.message.replace("on 2", "on 0")
    assert first.message == "the ranks disagree: tokens is 9 on rank 1, 10 on 0"
    assert second.message == "the ranks disagree: tokens is 10 on rank 0, 9 on 1"
    assert all(isinstance(error, UsageError) for error in (first, second, third))
    assert not ranks.allocations


def test_ranks_with_one_gpu_are_refused(ranks: Ranks) -> None:
    ranks.gpus[2] = ranks.gpus[1]
    for error in ranks.run(once):
        assert isinstance(error, UsageError)
        assert error.message == "ranks 1 and 2 share a GPU"


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        ("compiler_error", DeviceError("it is no Hopper"), "it is no Hopper"),
        ("exchange_error", DeviceError("no memory"), "no memory"),
        (
            "allocation_error",
            RuntimeError("out of memory\nat x.cpp"),
            "cannot allocate 0 MiB of symmetric .*",
        ),
        ("mapping_error", RuntimeError("no access\nat x.cpp"), "the group's GPUs cannot map .*: no access"),
    ],
)
def test_a_rank_that_cannot_take_part_is_reported_by_all(
    ranks: Ranks, step: str, error: Exception, message: str
) -> None:
    if step == "mapping_error":  # which torch reports on all ranks
        ranks.mapping_error = dict.fromkeys(range(RANKS), error)
    else:
        getattr(ranks, step)[1] = error
    first, second, third = ranks.run(once)
    with pytest.raises(DeviceError, match=f"^{message}$"):
        raise second
    if step != "mapping_error":
        assert first.message == third.message == f"rank 1 of the group cannot take part: {second.message}"


def test_a_rank_of_another_host_is_refused(ranks: Ranks) -> None:
    ranks.unreachable = 2
    for error in ranks.run(once):
        assert isinstance(error, DeviceError)
        assert error.message == "the memory of rank 2 cannot be addressed from here"


def test_a_late_rank_is_reported_by_the_next_call_and_by_all_after_it(ranks: Ranks) -> None:
    def program(rank: int, group: ThreadGroup) -> list[str]:
        once(rank, group)
        if rank == 1:
            return []
        attend(random_input(SIZE, rank), group, timeout_s=0.3)  # enough for the two that call
        messages = []
        for report in (check_group, check_group, lambda group: once(rank, group)):
            with pytest.raises(DeviceError) as error:
                report(group)
            messages.append(error.value.message)
        return messages

    late = ["rank 1 is late: its word is 1"] * 3
    assert ranks.run(program) == [late, [], late]


def test_a_late_rank_that_asks_for_larger_buffers_learns_what_the_others_found(ranks: Ranks) -> None:
    def program(rank: int, group: ThreadGroup) -> None:
        once(rank, group)
        if rank != 1:
            attend(random_input(SIZE, rank), group, timeout_s=0.3)
        attend(random_input((90, HEADS, HEAD_DIM), rank), group)

    first, second, third = ranks.run(program)
    assert first.message == third.message == "rank 1 is late: its word is 1"
    assert second.message == f"rank 0 of the group cannot take part: {first.message}"


def test_a_default_that_this_compiler_spills_in_gives_way_to_a_smaller_tile(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    threaded_ranks(1, monkeypatch)

    def build(_gpu: Any, _shape: Any, tile: AttentionConfig, **_: Any) -> AttentionConfig:
        if tile.block_n > 96:
            raise UnusableKernelError(f"{tile.block_n} spill", "")
        return tile

    monkeypatch.setattr("xstage_tune.cuda.attention_kernel.AttentionA2A", build)
    shape = AttentionShape(8192, 5, 128)
    chosen: Any = kernel_for(0, shape, None, None)
    assert (chosen.block_m, chosen.block_n) == (128, 96)
    assert [record.message[:9] for record in caplog.records] == ["176 spill", "128 spill"]
    with pytest.raises(UnusableKernelError):  # one that somebody chose is not changed
        kernel_for(0, shape, config(), None)


def test_a_group_without_attention_has_nothing_to_report(ranks: Ranks) -> None:
    check_group(ranks.groups[0])
    close_group(ranks.groups[0])


def test_after_a_close_the_next_call_starts_anew(ranks: Ranks) -> None:
    def program(rank: int, group: ThreadGroup) -> Any:
        once(rank, group)
        close_group(group)
        close_group(group)
        return np.array(once(rank, group))

    outcomes = ranks.run(program)
    expected = np.concatenate([random_input(SIZE, rank) for rank in range(RANKS)], axis=1)
    assert (np.concatenate(outcomes) == expected).all()
    assert len(ranks.allocated()) == RANKS


def test_memory_that_a_late_rank_may_store_to_is_not_given_back(ranks: Ranks) -> None:
    def program(rank: int, group: ThreadGroup) -> None:
        once(rank, group)
        if rank != 1:
            attend(random_input(SIZE, rank), group, timeout_s=0.01)
        close_group(group)

    assert ranks.run(program) == [None] * RANKS
    assert sorted(ranks.allocated()) == [0, 2]


def test_a_first_call_cannot_be_captured(ranks: Ranks) -> None:
    ranks.capturing = True
    for error in ranks.run(once):
        assert isinstance(error, UsageError)
        assert "a graph is being captured" in error.message


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_timeout_that_is_no_time_is_refused(ranks: Ranks, timeout_s: float) -> None:
    with pytest.raises(UsageError, match=f"a timeout of {timeout_s} s"):
        attend(random_input(SIZE, 0), ranks.groups[0], timeout_s=timeout_s)


def test_what_the_group_decides_cannot_be_given(ranks: Ranks) -> None:
    q = random_input(SIZE, 0)
    with pytest.raises(UsageError, match="rank 1 is rank 0 of the group"):
        attend(q, ranks.groups[0], rank=1)
    with pytest.raises(UsageError, match="does not complete"):
        attend(q, ranks.groups[0], complete=False)


def test_a_group_larger_than_the_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = threaded_ranks(9, monkeypatch)
    with pytest.raises(UsageError, match="9 ranks"):
        attend(random_input(SIZE, 0), ranks.groups[0])


def test_a_destination_of_another_kind_is_named(ranks: Ranks) -> None:
    q = random_input(SIZE, 0)
    with pytest.raises(UsageError, match="the destination is of type Ranks"):
        attention_a2a(q, q, q, ranks)  # type: ignore[arg-type]


def test_a_torch_without_symmetric_memory_says_so(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed._symmetric_memory", None)
    for error in ranks.run(once):
        assert isinstance(error, DeviceError)
        assert error.message.startswith("this torch has no symmetric memory")
