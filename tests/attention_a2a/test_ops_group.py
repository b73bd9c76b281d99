"""The op over a process group, whose ranks are threads here: agreement, layout, epochs, late ranks."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from tests.attention_a2a.cases import config
from tests.attention_a2a.threaded_ranks import FakeGroup, FakeInput, Ranks, random_input, threaded_ranks
from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.ops import attention_a2a, check_group, close_group

#: 4, 4 and 2 tokens a rank.
TOKENS, HEADS, HEAD_DIM, RANKS = 10, 2, 64, 3
SIZE = (TOKENS, HEADS, HEAD_DIM)


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    return threaded_ranks(RANKS, monkeypatch)


def attend(q: FakeInput, group: FakeGroup, **options: Any) -> Any:
    return attention_a2a(q, q, q, group, config(), **options)


def once(rank: int, group: FakeGroup) -> Any:
    return attend(random_input(SIZE, rank), group)


@pytest.mark.parametrize("tokens", [9, 10, 1])
def test_every_rank_gets_all_heads_of_its_tokens_in_every_epoch(ranks: Ranks, tokens: int) -> None:
    inputs = [[random_input((tokens, HEADS, HEAD_DIM), 10 * e + r) for r in range(RANKS)] for e in range(5)]

    def program(rank: int, group: FakeGroup) -> list[np.ndarray]:
        return [np.array(attend(epoch[rank], group)) for epoch in inputs]

    outcomes = ranks.run(program)
    rows = -(-tokens // RANKS)
    for epoch, tensors in enumerate(inputs):
        expected = np.concatenate(tensors, axis=1)
        for rank in range(RANKS):
            result = outcomes[rank][epoch]
            assert result.shape == (max(0, min(rows, tokens - rank * rows)), RANKS * HEADS, HEAD_DIM)
            assert (result == expected[rank * rows : (rank + 1) * rows]).all()


def test_results_take_turns_at_two_buffers(ranks: Ranks) -> None:
    def program(rank: int, group: FakeGroup) -> list[int]:
        return [attend(random_input(SIZE, rank), group).ctypes.data for _ in range(4)]

    for first, second, third, fourth in ranks.run(program):
        assert (third, fourth) == (first, second)
        assert abs(second - first) == 4 * RANKS * HEADS * HEAD_DIM * 2


def test_buffers_are_made_once_for_every_shape_config_and_scale(ranks: Ranks) -> None:
    def program(rank: int, group: FakeGroup) -> None:
        longer = random_input((TOKENS + 1, HEADS, HEAD_DIM), rank)
        for _ in range(2):
            once(rank, group)
            attend(longer, group)
            attend(longer, group, softmax_scale=1.0)

    assert ranks.run(program) == [None] * RANKS
    assert len(ranks.kernels) == len(ranks.allocations) == 3 * RANKS


def test_ranks_that_disagree_are_told_in_what_before_anything_is_allocated(ranks: Ranks) -> None:
    def program(rank: int, group: FakeGroup) -> None:
        attend(random_input((TOKENS - (rank == 1), HEADS, HEAD_DIM), rank), group)

    first, second, third = ranks.run(program)
    assert first.message == third.message.replace("on 2", "on 0")
    assert first.message == "the ranks disagree: tokens is 9 on rank 1, 10 on 0"
    assert second.message == "the ranks disagree: tokens is 10 on rank 0, 9 on 1"
    assert all(isinstance(error, UsageError) for error in (first, second, third))
    assert not ranks.allocations
    assert all(kernel.closed for kernel in ranks.kernels)


def test_ranks_with_one_gpu_are_refused(ranks: Ranks) -> None:
    ranks.gpus[2] = ranks.gpus[1]
    for error in ranks.run(once):
        assert isinstance(error, UsageError)
        assert error.message == "ranks 1 and 2 share a GPU"


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        ("compiler_error", DeviceError("it is no Hopper"), "it is no Hopper"),
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
    assert all(kernel.closed for kernel in ranks.kernels)


def test_a_rank_of_another_host_is_refused(ranks: Ranks) -> None:
    ranks.unreachable = 2
    for error in ranks.run(once):
        assert isinstance(error, DeviceError)
        assert error.message == "the memory of rank 2 cannot be addressed from here"


def test_a_late_rank_is_reported_by_the_next_call_and_by_all_after_it(ranks: Ranks) -> None:
    def program(rank: int, group: FakeGroup) -> list[str]:
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

    late = ["rank 1 did not signal epoch 2 within 0.3 s: its word is 1"] * 3
    assert ranks.run(program) == [late, [], late]


def test_a_group_without_attention_has_nothing_to_report(ranks: Ranks) -> None:
    check_group(ranks.groups[0])
    close_group(ranks.groups[0])


def test_after_a_close_the_next_call_starts_anew(ranks: Ranks) -> None:
    def program(rank: int, group: FakeGroup) -> Any:
        once(rank, group)
        close_group(group)
        close_group(group)
        return np.array(once(rank, group))

    outcomes = ranks.run(program)
    expected = np.concatenate([random_input(SIZE, rank) for rank in range(RANKS)], axis=1)
    assert (np.concatenate(outcomes) == expected).all()
    assert [kernel.closed for kernel in ranks.kernels].count(True) == RANKS


def test_memory_that_a_late_rank_may_store_to_is_not_given_back(ranks: Ranks) -> None:
    def program(rank: int, group: FakeGroup) -> None:
        once(rank, group)
        if rank != 1:
            attend(random_input(SIZE, rank), group, timeout_s=0.01)
        close_group(group)

    assert ranks.run(program) == [None] * RANKS
    assert sorted(ranks.allocated()) == [0, 2]


def test_a_capture_is_refused_in_one_line(ranks: Ranks) -> None:
    ranks.capturing = True
    for error in ranks.run(once):
        assert isinstance(error, UsageError)
        assert error.message == (
            "attention over a process group cannot be captured into a CUDA graph: "
            "its result alternates between two buffers"
        )


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
