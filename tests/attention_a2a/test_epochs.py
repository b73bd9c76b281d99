"""The host's wait for the senders' signals."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from xstage_tune.devices.cuda.attention_epochs import poll_epoch
from xstage_tune.errors import DeviceError, ExitCode


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
