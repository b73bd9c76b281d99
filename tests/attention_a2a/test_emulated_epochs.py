"""The protocol between ranks on emulated CTAs: what may be taken for rows, and what stops an exchange."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.attention_a2a.cases import config
from tests.attention_a2a.emulation import POISON, EmulatedEpochs, EmulatedKernel, EmulatedRun
from xstage_tune.cuda.attention_shape import AttentionShape

LATE, FOREIGN, OVERLAP = 1, 2, 3
SHAPE = AttentionShape(5, 1, 64, ranks=2)
NANS = 0xFFFF


@pytest.fixture(scope="module")
def kernel() -> EmulatedKernel:
    return EmulatedKernel(config(block_n=64), 64)


@pytest.fixture(scope="module")
def epochs() -> EmulatedEpochs:
    return EmulatedEpochs()


@pytest.fixture
def run(kernel: EmulatedKernel, monkeypatch: pytest.MonkeyPatch) -> EmulatedRun:
    return EmulatedRun(kernel, SHAPE, monkeypatch, teams=1)


@pytest.fixture
def buffers() -> NDArray[np.uint16]:
    """As if all senders had stored: 1 to the buffer of epochs 1, 3, ..., and 2 to that of epochs 2, 4, ..."""
    both = np.ones((2, 3, 2, 64), np.uint16)
    both[1] = 2
    return both


def fault(run: EmulatedRun) -> tuple[int, ...]:
    return tuple(int(run.fault[name][0]) for name in ("raised", "rank", "expected", "seen"))


def stores_and_signals_nothing(run: EmulatedRun) -> bool:
    run.buffers[:] = POISON
    before = run.words.tolist()
    run.launch(3, call=99)
    return bool((run.buffers == POISON).all()) and run.words.tolist() == before


def test_words_of_the_epoch_and_of_the_next_bring_its_rows(
    run: EmulatedRun, buffers: NDArray[np.uint16]
) -> None:
    for epoch in (1, 2, 3):
        assert (run.receive(epoch, [epoch, epoch + epoch % 2], buffers) == 2 - epoch % 2).all()
        assert run.words.tolist() == [epoch, epoch]
    assert fault(run) == (0, 0, 0, 0)


@pytest.mark.parametrize("word", [3, 7, 2**32 - 1])
def test_a_word_that_its_sender_cannot_have_come_to_is_no_signal(
    run: EmulatedRun, buffers: NDArray[np.uint16], word: int
) -> None:
    assert (run.receive(1, [1, word], buffers) == NANS).all()
    assert fault(run) == (FOREIGN, 1, 1, word)
    assert stores_and_signals_nothing(run)


def test_words_wrap_around_with_the_epochs(run: EmulatedRun, buffers: NDArray[np.uint16]) -> None:
    run.exchange["epoch"] = 2**32 - 2
    assert (run.receive(1, [2**32 - 1, 0], buffers) == 1).all()
    assert run.exchange["epoch"] == 2**32 - 1


def test_calls_behind_a_late_sender_leave_all_buffers_alone(
    run: EmulatedRun, epochs: EmulatedEpochs, buffers: NDArray[np.uint16]
) -> None:
    assert (run.receive(1, [1, 0], buffers) == NANS).all()
    assert fault(run) == (LATE, 1, 1, 0)
    assert stores_and_signals_nothing(run)
    # Also where that sender's signal comes after all, and without waiting.
    assert (run.receive(2, [1, 0], buffers, timeout_ns=2**62) == NANS).all()
    epochs.signal(run)
    assert run.words.tolist() == [1, 1]


def test_a_call_that_overlaps_another_is_refused_and_receives_nothing(
    run: EmulatedRun, buffers: NDArray[np.uint16]
) -> None:
    run.launch(1, completion=2, call=1)  # whose CTAs that receive still wait
    assert (run.receive(2, [1, 1], buffers) == NANS).all()
    assert fault(run) == (OVERLAP, 0, 2, 1)
    assert run.words.tolist() == [1, 1]


def test_a_call_that_does_not_receive_is_over_when_it_has_signalled(run: EmulatedRun) -> None:
    for call in (1, 2):
        run.launch(call, call=call)
    assert run.words.tolist() == [2, 2]
    assert fault(run) == (0, 0, 0, 0)


def test_a_rank_that_sends_nothing_counts_the_epochs_that_it_received(
    run: EmulatedRun, epochs: EmulatedEpochs
) -> None:
    for words in ([1, 2], [3, 2]):
        epochs.receive(run, words)
    assert run.exchange["epoch"] == 2
    epochs.receive(run, [3, 2])
    assert fault(run) == (LATE, 1, 3, 2)


def test_other_shapes_and_launches_that_do_not_signal_share_the_epochs(
    kernel: EmulatedKernel, run: EmulatedRun, epochs: EmulatedEpochs, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = EmulatedRun(kernel, AttentionShape(70, 1, 64, ranks=2), monkeypatch, teams=1)
    other.exchange, other.fault = run.exchange, run.fault
    run.launch(1)
    other.launch(2, completion=0)
    assert (other.gathered(1) != POISON).all()
    epochs.signal(other)
    assert other.words.tolist() == [2, 2]
    run.buffers[:] = POISON
    run.launch(3)
    assert (run.gathered(0) != POISON).all()
    assert run.words.tolist() == [3, 3]
