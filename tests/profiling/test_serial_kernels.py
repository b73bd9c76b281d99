"""The serial All-to-All's kernels compile for the GPU, and on the CPU move every row to its place."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from tests.layouts import compile_layout, kernels_in
from xstage_tune.cuda.attention_shape import MAX_RANKS, AttentionShape
from xstage_tune.cuda.compiler import compile_kernel
from xstage_tune.cuda.serial_a2a import SERIAL, SERIAL_ARGUMENTS

POISON = 0xDEAD


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's cache out of it."""
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "cache"))


def run(library: ctypes.CDLL, name: str, arguments: np.ndarray, grid: int) -> None:
    assert getattr(library, f"run_{name}")(ctypes.c_void_p(arguments.ctypes.data), grid) is None


def test_kernels_compile_without_spills_or_warnings() -> None:
    kernel = compile_kernel(SERIAL.source, "sm_90a", SERIAL.defines, SERIAL.names)
    assert kernel.warnings == ()
    for name in SERIAL.names:
        assert (kernel.entries[name].spill_bytes, kernel.entries[name].stack_bytes) == (0, 0)


def test_struct_matches_its_dtype(tmp_path: Path) -> None:
    root = kernels_in(tmp_path, "attention_a2a")
    compile_layout(root, "attention_a2a/serial.cu", "SerialArguments", SERIAL_ARGUMENTS)


@pytest.mark.parametrize("grid", [1, 3])
@pytest.mark.parametrize(
    ("tokens", "ranks", "rank", "head_dim"),
    [(1, 1, 0, 64), (1, 8, 3, 128), (7, 8, 7, 64), (37, 4, 1, 128), (64, 8, 0, 64)],
)
def test_every_row_goes_to_the_rank_that_owns_its_token(
    library: ctypes.CDLL, tokens: int, ranks: int, rank: int, head_dim: int, grid: int
) -> None:
    shape = AttentionShape(tokens, 2, head_dim, ranks, rank)
    source = np.random.default_rng(tokens).integers(1 << 16, size=(tokens, 2, head_dim)).astype(np.uint16)
    buffers = np.full((ranks, shape.rows_per_rank, ranks * 2, head_dim), POISON, np.uint16)
    arguments = np.zeros(1, SERIAL_ARGUMENTS)
    arguments["source"] = source.ctypes.data
    for target in range(ranks):
        arguments["destination"][0, target] = buffers[target, :, 2 * rank :].ctypes.data
    arguments["tokens"], arguments["rows_per_rank"] = tokens, shape.rows_per_rank
    arguments["ranks"], arguments["rank"] = ranks, rank
    arguments["vectors"], arguments["token_bytes"] = 2 * shape.row_bytes // 16, shape.token_bytes
    run(library, "store_to_ranks", arguments, grid)
    expected = np.full_like(buffers, POISON)
    for token in range(tokens):
        owner, row = divmod(token, shape.rows_per_rank)
        expected[owner, row, 2 * rank : 2 * rank + 2] = source[token]
    assert np.array_equal(buffers, expected)


@pytest.mark.parametrize(("rows", "ranks"), [(1, 1), (1, 8), (13, 4), (40, 8)])
def test_what_was_received_is_permuted_into_the_order_of_tokens(
    library: ctypes.CDLL, rows: int, ranks: int
) -> None:
    received = np.arange(ranks * rows * 3 * 64).astype(np.uint16).reshape(ranks, rows, 3, 64)
    output = np.full((rows + 1, ranks, 3, 64), POISON, np.uint16)
    arguments = np.zeros(1, SERIAL_ARGUMENTS)
    arguments["source"], arguments["destination"][0, 0] = received.ctypes.data, output.ctypes.data
    arguments["tokens"], arguments["ranks"], arguments["vectors"] = rows, ranks, 3 * 64 * 2 // 16
    run(library, "permute_received", arguments, 2)
    assert np.array_equal(output[:rows], received.transpose(1, 0, 2, 3))
    assert (output[rows] == POISON).all()


def test_the_table_of_ranks_is_as_long_as_the_attention_s() -> None:
    assert SERIAL_ARGUMENTS["destination"].shape == (MAX_RANKS,)
