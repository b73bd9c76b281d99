"""The attention kernel's sources on an emulated CTA: results, straddling tiles, hand-overs, epochs; no GPU.

What is asynchronous on the GPU happens at moments that the seed chooses, so every seed is another
interleaving.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest

from tests.attention_a2a.cases import config
from tests.attention_a2a.emulation import POISON, EmulatedKernel, EmulatedRun, attention, bf16, float32
from xstage_tune.base.spans import SpanKind
from xstage_tune.cuda.attention_shape import AttentionShape
from xstage_tune.families.attention_a2a.config import AttentionConfig

TWO_SLOTS = {"output_staging": "dedicated-x2"}
SPLIT = config(block_n=64, output_staging="dedicated-x1", kv_splits=2)
VARIANTS = {
    "st.v4 in Q's buffer, products overlapped": (config(block_n=64), 64),
    "st.v4 in V's buffers": (config(block_n=80, output_staging="alias-v"), 128),
    "st.v4 paced": (config(block_n=64, output_staging="dedicated-x1"), 64),
    "st.v4 paced, two slots": (config(block_n=64, output_staging="dedicated-x2"), 64),
    "tma in Q's buffer": (config(block_n=64, store_flavour="tma"), 64),
    "tma in V's buffers": (config(block_n=64, output_staging="alias-v", store_flavour="tma"), 64),
    "tma, two slots": (config(block_n=64, output_staging="dedicated-x2", store_flavour="tma"), 64),
    "KV split, paced": (SPLIT, 64),
    "KV split, two slots": (SPLIT.model_copy(update=TWO_SLOTS), 64),
    "KV split, tma, two slots": (SPLIT.model_copy(update=TWO_SLOTS | {"store_flavour": "tma"}), 64),
    "KV split, tma": (SPLIT.model_copy(update={"store_flavour": "tma"}), 128),
    "three consumers, products in turn": (config(block_m=192, block_n=112, kv_stages=1), 128),
}


@pytest.fixture(scope="module", params=VARIANTS.values(), ids=VARIANTS.keys())
def kernel(request: pytest.FixtureRequest) -> EmulatedKernel:
    variant: tuple[AttentionConfig, int] = request.param
    return EmulatedKernel(*variant)


def check(run: EmulatedRun, epoch: int = 0) -> None:
    out = run.gathered(epoch)
    assert not (out == POISON).any()
    expected = attention(run.q, run.k, run.v)
    assert np.linalg.norm(float32(out) - expected) < 1e-2 * np.linalg.norm(expected)
    assert run.untouched(epoch)


@pytest.mark.parametrize(("seed", "keys"), [(0, 330), (1, 170)], ids=["more keys", "fewer keys"])
def test_ragged_ranks_and_partial_tiles(
    kernel: EmulatedKernel, monkeypatch: pytest.MonkeyPatch, seed: int, keys: int
) -> None:
    """290 tokens: partial Q and KV tiles; 97 a rank, so that tiles straddle; several tiles a CTA."""
    shape = AttentionShape(290, 2, kernel.head_dim, ranks=3, rank=1, kv_tokens=keys)
    run = EmulatedRun(kernel, shape, monkeypatch, seed=seed)
    run.launch(seed)
    check(run)
    assert run.words.tolist() == [1, 1, 1]


def fewest_tokens(kernel: EmulatedKernel) -> int:
    """One KV row, or one for each CTA of a team."""
    config = kernel.config
    return (config.kv_splits - 1) * config.block_n + 1


def test_fewest_tokens_of_eight_ranks(kernel: EmulatedKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = AttentionShape(fewest_tokens(kernel), 1, kernel.head_dim, ranks=8, rank=7)
    run = EmulatedRun(kernel, shape, monkeypatch, teams=1)
    run.launch(0)
    check(run)


def test_epochs_take_turns_at_two_buffers(kernel: EmulatedKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = AttentionShape(70, 1, kernel.head_dim, ranks=2)
    run = EmulatedRun(kernel, shape, monkeypatch, teams=1)
    run.launch(0)
    check(run, 0)
    assert (run.buffers[:, 1] == POISON).all()
    first = run.gathered(0)
    run.buffers[:] = POISON
    run.launch(1, completion=0)
    run.launch(2)
    check(run, 1)
    assert (run.gathered(1) == first).all()
    assert (run.buffers[:, 0] == POISON).all()
    assert run.words.tolist() == [2, 2]
    assert (int(run.exchange["epoch"][0]), int(run.exchange["arrived"][0])) == (2, 0)


@pytest.mark.parametrize("block_n", [64, 144])
def test_old_tiles_keep_their_weight_while_the_largest_score_stands(
    block_n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All scores are one large number: 1 and -1 cancel, also where subtractions are fused with products."""
    fused = (
        "-fexpensive-optimizations",
        "-ffp-contract=fast",
        *(["-mfma"] if platform.machine() == "x86_64" else []),
    )
    shape = AttentionShape(2, 1, 64, kv_tokens=1280)
    run = EmulatedRun(EmulatedKernel(config(block_n=block_n), 64, options=fused), shape, monkeypatch, teams=1)
    signs = np.where(np.arange(1280) < 640, -1, 1)[:, None, None] * np.ones((1, 1, 64))
    run.give(
        *(
            bf16(np.broadcast_to(np.float32(value), size.shape))
            for value, size in ((30.0, run.q), (30.1, run.k), (signs, run.v))
        )
    )
    run.launch(0)
    assert np.abs(float32(run.gathered(0))).max() < 1e-6


@pytest.mark.parametrize("variant", [config(block_n=64), SPLIT], ids=["whole", "KV split"])
def test_log_sums_of_every_row(variant: AttentionConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = AttentionShape(150, 2, 64, ranks=2, rank=1, kv_tokens=170)
    run = EmulatedRun(EmulatedKernel(variant, 64, write_lse=True), shape, monkeypatch)
    found = np.full((2, 150), np.nan, np.float32)
    run.arguments["lse"] = found.ctypes.data
    run.launch(0)
    q, k = (float32(bits).astype(np.float64).transpose(1, 0, 2) for bits in (run.q, run.k))
    scores = q @ k.transpose(0, 2, 1) * 64**-0.5
    assert np.abs(found - np.log(np.exp(scores).sum(axis=2))).max() < 1e-4
    assert np.linalg.norm(float32(run.gathered(0)) - attention(run.q, run.k, run.v)) < 1


@pytest.mark.parametrize("ranks", [1, 4], ids=["whole tiles", "straddling tiles"])
def test_many_rounds_with_one_kv_tile(
    kernel: EmulatedKernel, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    """As many Q-loops of one round as heads: buffers change hands as fast as they can."""
    shape = AttentionShape(fewest_tokens(kernel) + 59, 7, kernel.head_dim, ranks, rank=ranks - 1)
    run = EmulatedRun(kernel, shape, monkeypatch, teams=1, seed=5)
    run.launch(5)
    check(run)


@pytest.mark.parametrize("seed", range(4))
def test_tiles_without_rows_or_of_two_ranks_leave_slots_to_the_copies_that_read_them(
    kernel: EmulatedKernel, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Every second tile has 60 rows, none for its second consumer; 188 tokens of one rank or of three."""
    for ranks in (1, 3):
        shape = AttentionShape(188, 6, kernel.head_dim, ranks)
        run = EmulatedRun(kernel, shape, monkeypatch, teams=1, seed=seed)
        run.launch(seed)
        check(run)


@pytest.mark.parametrize("changes", [{}, {"output_staging": "dedicated-x1"}], ids=["at once", "paced"])
def test_spans_of_a_recording_variant(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    variant = config(block_n=64, **changes)
    kernel = EmulatedKernel(variant, 64, record_spans=True)
    run = EmulatedRun(kernel, AttentionShape(300, 1, 64), monkeypatch)
    table = run.record(0, capacity=6)
    check(run)
    assert table.lanes["issued"].tolist() == [2, 2, 1, 1]
    assert table.dropped() == 0
    kinds = [SpanKind.MAINLOOP, SpanKind.STAGING_STALL, SpanKind.ISSUE]
    assert table.spans["kind"].tolist() == kinds * 6
    assert table.spans["role"].tolist() == [0] * 6 + [1] * 6 + [0] * 3 + [1] * 3
    assert table.spans["index"].tolist() == ([0] * 3 + [1] * 3) * 2 + [0] * 6


def test_spans_of_split_tiles_are_those_of_the_consumer_that_finishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = EmulatedKernel(SPLIT, 64, record_spans=True)
    run = EmulatedRun(kernel, AttentionShape(300, 1, 64), monkeypatch)
    table = run.record(0, capacity=6)
    check(run)
    assert table.lanes["issued"].tolist() == [2, 2, 1, 1]
    assert table.spans["kind"].tolist() == [SpanKind.MAINLOOP, SpanKind.STAGING_STALL, SpanKind.ISSUE] * 6
    assert table.spans["role"].tolist() == [0] * 18
    assert table.spans["index"].tolist() == ([0] * 3 + [1] * 3) * 2 + [0] * 6


def test_spans_that_do_not_fit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = EmulatedKernel(config(block_n=64), 64, record_spans=True)
    run = EmulatedRun(kernel, AttentionShape(200, 1, 64), monkeypatch, teams=1)
    table = run.record(0, capacity=4)
    assert len(table.spans) == 8
    assert table.dropped() == 4
