"""What the host learns of an exchange on the GPU, and how it orders streams."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from xstage_tune.base.errors import DeviceError, ExitCode, UsageError
from xstage_tune.cuda import attention_epochs, stream_order
from xstage_tune.cuda.attention_arguments import EXCHANGE, FAULT_RECORD
from xstage_tune.cuda.attention_epochs import Exchange, Receipt, Receiver
from xstage_tune.cuda.stream_order import StreamOrder

DEVICE: Any = None


class HostMemory:
    """Of the host alone, where no GPU is there to map it."""

    def __init__(self, nbytes: int) -> None:
        self.bytes = np.full(nbytes, 0xAB, np.uint8)
        self.address = self.bytes.ctypes.data

    @classmethod
    def zeroed(cls, _device: Any, nbytes: int) -> HostMemory:
        memory = cls(nbytes)
        memory.bytes[:] = 0
        return memory

    def close(self) -> None:
        pass

    def __enter__(self) -> HostMemory:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def exchange(monkeypatch: pytest.MonkeyPatch) -> Exchange:
    def copy(to: int, source: int, nbytes: int) -> tuple[int]:
        import ctypes

        ctypes.memmove(to, source, nbytes)
        return (0,)

    monkeypatch.setattr(attention_epochs, "PinnedMemory", HostMemory)
    monkeypatch.setattr(attention_epochs, "GpuMemory", HostMemory)
    monkeypatch.setattr(attention_epochs, "driver", SimpleNamespace(cuMemcpyHtoD=copy))
    monkeypatch.setattr(attention_epochs, "check", lambda *_: None)
    monkeypatch.setattr(attention_epochs, "synchronize", lambda *_: None)
    return Exchange(DEVICE)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ((1, 2, 7, 6, 250_000_000), r"rank 2 did not signal epoch 7 within 0\.25 s: its word is 6"),
        ((2, 1, 7, 9, 0), "rank 1 signals epoch 9 while this one awaits 7"),
        ((3, 0, 5, 4, 0), "two attention calls of one exchange ran at once"),
    ],
)
def test_a_fault_of_the_gpu_is_seen_without_waiting_for_it(
    exchange: Exchange, record: tuple[int, ...], message: str
) -> None:
    assert exchange.fault() is None
    assert not exchange.raised.value
    state = exchange._state.bytes.view(EXCHANGE)  # type: ignore[attr-defined]
    assert state["record"][0] == exchange._record_memory.address
    exchange._record_memory.bytes.view(FAULT_RECORD)[0] = record  # as the kernel does
    assert exchange.raised.value
    for _ in range(2):
        with pytest.raises(DeviceError, match=message) as error:
            exchange.check(DEVICE, 1.0)
        assert error.value.exit_code is ExitCode.ENVIRONMENT


def test_a_receipt_of_much_has_more_ctas_but_never_many() -> None:
    assert [Receipt(1, 1, nbytes).ctas for nbytes in (0, 1000, 1 << 20, 1 << 30)] == [1, 1, 16, 64]


def test_a_receiver_awaits_the_words_and_delivers_nothing(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued: list[tuple[np.void, int]] = []

    def launch(_kernel: Any, _grid: int, _threads: int, _shared: int, arguments: Any) -> Any:
        def queue(stream: int) -> None:
            queued.append((arguments[0].copy(), stream))

        return SimpleNamespace(arguments=arguments, queue=queue)

    monkeypatch.setattr(attention_epochs, "Launch", launch)
    monkeypatch.setattr(attention_epochs, "load_epoch_kernels", lambda _: {"receive_epoch": None})
    Receiver(DEVICE, exchange, 0x1000, 3).queue(0.25, 5)
    ((arguments, stream),) = queued
    assert (int(arguments["exchange"]), stream) == (exchange.address, 5)
    assert arguments["receipt"].tolist() == (0x1000, 0, 0, 250_000_000, 0, 3, 1, 0)
    with pytest.raises(UsageError, match="9 ranks"):
        Receiver(DEVICE, exchange, 0x1000, 9)


def test_a_call_on_another_stream_waits_for_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams 3 and 4 are of one capture, 5 is of another, 1 and 2 are of none."""
    done: list[tuple[str, int]] = []
    captures = {3: 30, 4: 30, 5: 50}

    def info(stream: int) -> tuple[int, ...]:
        return (0, int(stream in captures), captures.get(stream, 0))

    fake = SimpleNamespace(
        CUstream=int,
        CUstreamCaptureStatus=SimpleNamespace(CU_STREAM_CAPTURE_STATUS_ACTIVE=1),
        cuEventCreate=lambda _: (0, 77),
        cuEventRecord=lambda event, stream: done.append(("record", stream)) or (event - 77,),
        cuStreamWaitEvent=lambda stream, event, _: done.append(("wait", stream)) or (event - 77,),
        cuStreamGetCaptureInfo=info,
    )
    monkeypatch.setattr(stream_order, "driver", fake)
    monkeypatch.setattr(stream_order, "check", lambda result, _: result[1] if len(result) > 1 else None)
    order = StreamOrder()
    for stream, capturing, expected in (
        (1, False, []),
        (2, False, [("record", 1), ("wait", 2)]),
        (3, True, []),
        (4, True, [("record", 3), ("wait", 4)]),
        (5, True, []),
        (2, False, []),
        (1, False, [("record", 2), ("wait", 1)]),
    ):
        order.enter(stream, capturing=capturing)
        assert done == expected
        done.clear()
