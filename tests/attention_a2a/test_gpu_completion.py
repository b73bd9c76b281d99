"""Signals say that all data are there, also where stores queue for tens of microseconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda.core import Device, Stream

from tests.attention_a2a.cases import config
from tests.attention_a2a.gpu import POISON, Case, current_stream, gpu, require_path, synchronize
from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.base.fabric import StorePath
from xstage_tune.cuda.attention_epochs import EpochWaiter, poll_epoch
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
        poll_epoch(self._words, epoch, timeout_s=2.0)
        return [sample.clone() for sample in self._samples]


class _Peer:
    """Waits and copies on the GPU that owns the buffers, in one stream, which is queued before the launch."""

    def __init__(self, case: Case) -> None:
        import torch

        self._case = case
        owner = Device(1)
        owner.set_current()
        self._waiter = EpochWaiter(owner, case.ranks.words.data_ptr(), SHAPE.ranks)
        gpu()
        self._samples = _samples(case)
        self._stream = torch.cuda.Stream(1)
        # Whoever allocates on a GPU waits for it, and a first copy loads its kernel.
        self._seen = [sample.clone() for sample in self._samples]
        self._copy()
        synchronize()

    def launch_and_look(self, epoch: int) -> list[Any]:
        stream = Stream.from_handle(self._stream.cuda_stream)
        Device(1).set_current()
        self._waiter.hold(epoch, 2.0, stream)
        self._copy()
        gpu()
        self._case.launch()
        Device(1).set_current()
        self._waiter.check(stream)
        gpu()
        return self._seen

    def _copy(self) -> None:
        import torch

        with torch.cuda.stream(self._stream):
            for seen, sample in zip(self._seen, self._samples, strict=True):
                seen.copy_(sample)


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
    with pytest.raises(DeviceError, match="rank 0 did not signal epoch 2 within 2 s: its word is 0"):
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
    assert case.kernel.epoch(current_stream()) == 5


def test_one_signal_for_launches_that_signal_nothing() -> None:
    case = Case(SHAPE, VARIANTS[0], "host", signals=True, complete=False)
    for _ in range(3):
        case.launch()
    assert case.kernel.epoch(current_stream()) == 0
    assert case.ranks.words.tolist() == [0] * 8
    case.kernel.signal(case.prepared, current_stream())
    assert case.kernel.epoch(current_stream()) == 1
    assert case.ranks.words.tolist() == [1] * 8


def test_signals_that_are_not_there_cannot_be_sent() -> None:
    case = Case(SHAPE, VARIANTS[0])
    with pytest.raises(UsageError, match="no signals"):
        case.kernel.signal(case.prepared, current_stream())


def test_the_gpu_waits_for_every_sender_or_says_who_is_late() -> None:
    import torch

    device = gpu()
    words = torch.tensor([3, 2, 4], dtype=torch.int32, device="cuda")
    waiter = EpochWaiter(device, words.data_ptr(), 3)
    waiter.hold(2, 1.0, current_stream())
    waiter.check(current_stream())
    waiter.hold(3, 0.01, current_stream())
    waiter.hold(4, 0.01, current_stream())
    with pytest.raises(DeviceError, match=r"rank 1 did not signal epoch 3 within 0\.01 s: its word is 2"):
        waiter.check(current_stream())
    waiter.check(current_stream())
    waiter.close()
