"""Signals say that all data are there: on the host path, where stores queue for tens of microseconds."""

from __future__ import annotations

import numpy as np
import pytest

from tests.attention_a2a.cases import config
from tests.attention_a2a.gpu import POISON, Case, current_stream, gpu
from xstage_tune.configs.schema import AttentionConfig
from xstage_tune.devices.cuda.attention_epochs import EpochWaiter, poll_epoch
from xstage_tune.devices.cuda.attention_shape import AttentionShape
from xstage_tune.devices.cuda.attention_variants import OMIT_FENCE, OMIT_SIGNAL
from xstage_tune.errors import DeviceError, UsageError

pytestmark = pytest.mark.gpu

#: One round of 129 tiles of 192 rows, whose stores all leave together: 5.5 MB, 100 us of PCIe.
SHAPE = AttentionShape(tokens=8192, heads=3, head_dim=128, ranks=8, rank=0)
VARIANTS = [
    config(block_m=192),
    config(block_m=192, block_n=112, output_staging="dedicated-x1"),
    config(block_m=192, output_staging="alias-v", store_flavour="tma"),
]
TRIES = 30


def rows_missing_when_signalled(case: Case) -> int:
    """Rows that still hold poison at the moment that all words say they have arrived; of a sample of rows."""
    import torch

    words = case.ranks.words.numpy().view(np.uint32)
    samples = [
        buffer.view(torch.int16).numpy()[0, 15::64, :3, -1]
        for rank, buffer in enumerate(case.ranks.buffers)
        if rank != SHAPE.rank
    ]
    poison = torch.tensor(POISON).bfloat16().view(torch.int16).item()
    missing = 0
    for attempt in range(TRIES):
        case.ranks.poison()
        torch.cuda.synchronize()
        case.launch()
        poll_epoch(words, attempt + 1, timeout_s=2.0)
        seen = [sample.copy() for sample in samples]
        missing += sum(int((part == poison).sum()) for part in seen)
        torch.cuda.synchronize()
    return missing


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.label)
def test_all_rows_are_there_when_the_words_say_so(variant: AttentionConfig) -> None:
    assert rows_missing_when_signalled(Case(SHAPE, variant, "host", signals=True)) == 0


@pytest.mark.parametrize("variant", VARIANTS[:2], ids=lambda variant: variant.label)
def test_a_kernel_without_the_fence_is_caught(variant: AttentionConfig) -> None:
    case = Case(SHAPE, variant, "host", signals=True, omit_completion=OMIT_FENCE)
    assert rows_missing_when_signalled(case) > 0


def test_a_kernel_without_the_signal_is_caught() -> None:
    case = Case(SHAPE, VARIANTS[0], "host", signals=True, omit_completion=OMIT_SIGNAL)
    with pytest.raises(DeviceError, match="rank 0 did not signal epoch 1 within 2 s: its word is 0"):
        rows_missing_when_signalled(case)


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
    waiter.wait(2, 1.0, current_stream())
    with pytest.raises(DeviceError, match=r"rank 1 did not signal epoch 3 within 0\.01 s: its word is 2"):
        waiter.wait(3, 0.01, current_stream())
    waiter.close()
