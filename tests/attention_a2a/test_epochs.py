"""Waiting for the senders' signals: on the host, and what the host learns of the GPU's waits."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from xstage_tune.base.errors import DeviceError, ExitCode
from xstage_tune.cuda import attention_epochs
from xstage_tune.cuda.attention_arguments import EPOCH_FAULT
from xstage_tune.cuda.attention_epochs import EpochWaiter, poll_epoch


def test_words_at_or_beyond_the_epoch_pass() -> None:
    poll_epoch(np.array([3, 4, 3], np.uint32), 3, timeout_s=0.0)


def test_a_sender_that_never_signals_is_named_with_what_it_had() -> None:
    with pytest.raises(
        DeviceError, match=r"rank 1 did not signal epoch 5 within 0\.01 s: its word is 4"
    ) as error:
        poll_epoch(np.array([5, 4, 6], np.uint32), 5, timeout_s=0.01)
    assert error.value.exit_code is ExitCode.ENVIRONMENT


def test_a_signal_that_comes_while_waiting_ends_the_wait() -> None:
    words = np.array([1, 0], np.uint32)
    late = threading.Timer(0.01, lambda: words.__setitem__(1, 1))
    late.start()
    poll_epoch(words, 1, timeout_s=5.0)
    late.join()
    assert words.tolist() == [1, 1]


class HostMemory:
    """Of the host alone, where no GPU is there to map it."""

    def __init__(self, nbytes: int) -> None:
        self.bytes = np.full(nbytes, 0xAB, np.uint8)
        self.address = self.bytes.ctypes.data

    def close(self) -> None:
        pass


def test_a_wait_that_ran_out_on_the_gpu_is_seen_without_waiting_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launched: list[Any] = []
    monkeypatch.setattr(attention_epochs, "PinnedMemory", HostMemory)
    monkeypatch.setattr(attention_epochs, "load_epoch_kernels", lambda _: {"wait_for_epoch": None})
    monkeypatch.setattr(attention_epochs, "launch", lambda *_, arguments, **__: launched.append(arguments[0]))
    monkeypatch.setattr(attention_epochs, "synchronize", lambda *_: None)
    stream: Any = None
    waiter = EpochWaiter(stream, words=0x1000, ranks=3)
    waiter.hold(7, 0.25, stream)
    (arguments,) = launched
    given = [int(arguments[name]) for name in ("words", "timeout_ns", "ranks", "epoch")]
    assert given == [0x1000, 250_000_000, 3, 7]
    assert waiter.fault() is None

    fault = waiter._memory.bytes.view(EPOCH_FAULT)
    assert int(arguments["fault"]) == fault.ctypes.data
    fault[0] = (1, 2, 7, 5, 250_000_000)  # as the kernel does
    for _ in range(2):
        assert str(waiter.fault()) == "rank 2 did not signal epoch 7 within 0.25 s: its word is 5"
    with pytest.raises(DeviceError, match="rank 2 did not signal epoch 7"):
        waiter.check(stream)
    assert waiter.fault() is None
