"""Signals say that all data are there, also where stores queue for tens of microseconds."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from cuda.core import Device, Stream

from tests.attention_a2a.cases import config
from tests.attention_a2a.gpu import POISON, Case, current_stream, gpu, require_path, synchronize
from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.base.fabric import StorePath
from xstage_tune.cuda.attention_epochs import Exchange, Receiver
from xstage_tune.cuda.attention_shape import AttentionShape
from xstage_tune.families.attention_a2a.config import AttentionConfig

pytestmark = pytest.mark.gpu

#: One round of 129 tiles of 192 rows, whose stores all leave together: 5.5 MB, 100 us of PCIe.
SHAPE = AttentionShape(tokens=8192, heads=3, head_dim=128, ranks=8, rank=0)
VARIANTS = [
    config(block_m=192),
    config(block_m=192, block_n=112, output_staging="dedicated-x1"),
    config(block_m=192, output_staging="alias-v", store_flavour="tma"),
    config(block_n=144, output_staging="dedicated-x1", kv_splits=2),
    config(output_staging="dedicated-x1", store_flavour="tma", kv_splits=2),
]
TRIES = 30


def rows_missing_when_signalled(case: Case, path: StorePath) -> int:
    """Rows of a sample in which the owner sees poison when all words say that they have arrived."""
    import torch

    case.launch()  # epoch 1: a first launch loads the kernel, which must not wait for a GPU that waits for it
    synchronize()
    see = _Peer(case) if path == "peer" else _Host(case)
    poison = torch.tensor(POISON).bfloat16().item()
    missing = 0
    for attempt in range(TRIES):
        case.ranks.poison()
        seen = see.launch_and_look(epoch=attempt + 2)
        synchronize()
        missing += sum(int((part == poison).sum()) for part in seen)
    return missing


class _Host:
    """Polls the words and copies the sample, the owner of pinned memory."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._words = case.ranks.words.numpy().view(np.uint32)
        self._samples = _samples(case)

    def launch_and_look(self, epoch: int) -> list[Any]:
        self._case.launch()
        _poll(self._words, epoch, timeout_s=2.0)
        return [sample.clone() for sample in self._samples]


class _Peer:
    """Waits and copies on the GPU that owns the buffers, in one stream, which is queued before the launch."""

    def __init__(self, case: Case) -> None:
        import torch

        self._case = case
        owner = Device(1)
        owner.set_current()
        self._exchange = Exchange(owner)
        self._receiver = Receiver(owner, self._exchange, case.ranks.words.data_ptr(), SHAPE.ranks)
        gpu()
        self._samples = _samples(case)
        self._stream = torch.cuda.Stream(1)
        # Whoever allocates on a GPU waits for it, and a first copy loads its kernel.
        self._seen = [sample.clone() for sample in self._samples]
        self._copy()
        self._receive(owner)  # epoch 1
        synchronize()

    def launch_and_look(self, epoch: int) -> list[Any]:
        self._receive(Device(1))
        self._copy()
        gpu()
        self._case.launch()
        Device(1).set_current()
        self._exchange.check(Stream.from_handle(self._stream.cuda_stream), 10.0)
        gpu()
        assert epoch == self._case.ranks.words[0]
        return self._seen

    def _receive(self, owner: Device) -> None:
        owner.set_current()
        self._receiver.queue(2.0, self._stream.cuda_stream)

    def _copy(self) -> None:
        import torch

        with torch.cuda.stream(self._stream):
            for seen, sample in zip(self._seen, self._samples, strict=True):
                seen.copy_(sample)


def _poll(words: Any, epoch: int, timeout_s: float) -> None:
    """Wait until all words are at the epoch. What an x86 host reads next it reads later."""
    deadline = time.monotonic() + timeout_s
    while (words != epoch).any():
        if time.monotonic() > deadline:
            rank = int(np.flatnonzero(words != epoch)[0])
            raise DeviceError(f"rank {rank} did not signal epoch {epoch}: its word is {words[rank]}", "")


def _samples(case: Case) -> list[Any]:
    """Of each rank's buffer but the sender's own: the last number of some rows."""
    buffers = case.ranks.buffers
    return [buffer[0, 15::64, :3, -1] for rank, buffer in enumerate(buffers) if rank != SHAPE.rank]


@pytest.mark.parametrize("path", ["host", "peer"])
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.label)
def test_all_rows_are_there_when_the_words_say_so(variant: AttentionConfig, path: StorePath) -> None:
    require_path(path)
    assert rows_missing_when_signalled(Case(SHAPE, variant, path, signals=True), path) == 0


def test_a_kernel_without_the_signal_is_caught() -> None:
    """One without the fence is not, nor one that does not await its copies: both were built and run.

    In 30 launches none of the sampled rows was late, on the host path or over NVLink. What an SM sends leaves
    it in order, so when the counts of all CTAs have come to L2, their stores are ahead of the signal.
    """
    case = Case(SHAPE, VARIANTS[0], "host", signals=True, omit_signal=True)
    with pytest.raises(DeviceError, match="rank 0 did not signal epoch 2: its word is 0"):
        rows_missing_when_signalled(case, "host")


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.label)
def test_epochs_take_turns_at_two_buffers_also_in_replays(variant: AttentionConfig) -> None:
    import torch

    shape = AttentionShape(tokens=1000, heads=2, head_dim=128, ranks=4, rank=1)
    case = Case(shape, variant, "host", epochs=2, signals=True)
    case.launch()
    torch.cuda.synchronize()
    first = case.ranks.gathered(0)
    assert not bool((first == POISON).any())
    assert bool((case.ranks.gathered(1) == POISON).all())
    case.ranks.poison()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        case.launch()
    graph.replay()
    torch.cuda.synchronize()
    assert bool((case.ranks.gathered(0) == POISON).all())
    assert bool((case.ranks.gathered(1) == first).all())
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert case.ranks.words.tolist() == [5] * 4
    assert case.exchange.epoch(current_stream()) == 5


def test_one_signal_for_launches_that_signal_nothing() -> None:
    case = Case(SHAPE, VARIANTS[0], "host", signals=True, complete=False)
    for _ in range(3):
        case.launch()
    assert case.exchange.epoch(current_stream()) == 0
    assert case.ranks.words.tolist() == [0] * 8
    case.kernel.signal(case.prepared, current_stream())
    assert case.exchange.epoch(current_stream()) == 1
    assert case.ranks.words.tolist() == [1] * 8


def test_signals_that_are_not_there_cannot_be_sent() -> None:
    case = Case(SHAPE, VARIANTS[0])
    with pytest.raises(UsageError, match="no signals"):
        case.kernel.signal(case.prepared, current_stream())


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (0, r"rank 1 did not signal epoch 2 within 0\.01 s: its word is 1"),
        (4, "rank 1 signals epoch 4 while this one awaits 2"),
    ],
    ids=["late", "too far"],
)
def test_the_gpu_receives_from_every_sender_or_says_what_is_wrong(word: int, message: str) -> None:
    import torch

    device, stream = gpu(), current_stream()
    exchange = Exchange(device)
    words = torch.tensor([2, 1, 1], dtype=torch.int32, device="cuda")
    receiver = Receiver(device, exchange, words.data_ptr(), 3)
    receiver.queue(1.0, int(stream.handle))
    exchange.check(stream, 10.0)
    words[2] = 3
    words[1] = word or 1
    begin = time.monotonic()
    for _ in range(200):  # only the first takes its time
        receiver.queue(0.01, int(stream.handle))
    with pytest.raises(DeviceError, match=message):
        exchange.check(stream, 10.0)
    assert time.monotonic() - begin < 1.0
