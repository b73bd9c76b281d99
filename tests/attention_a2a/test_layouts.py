"""The structs that host and attention kernels share have the same offsets and sizes on both sides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.attention_a2a.cases import config
from tests.layouts import compile_layout, kernels_in
from xstage_tune.cuda.attention_arguments import (
    ATTENTION_ARGUMENTS,
    EXCHANGE,
    FAULT_RECORD,
    RECEIPT,
    RECEIVE_ARGUMENTS,
)
from xstage_tune.cuda.attention_variants import LANE_BYTES, attention_variant
from xstage_tune.cuda.compiler import KernelCompileError, compile_kernel


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kernels, with room for one more beside them."""
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "cache"))
    return kernels_in(tmp_path, "attention_a2a")


@pytest.mark.parametrize(
    ("source", "struct", "dtype"),
    [
        ("attention_a2a/arguments.cuh", "AttentionArguments", ATTENTION_ARGUMENTS),
        ("attention_a2a/arguments.cuh", "Exchange", EXCHANGE),
        ("attention_a2a/arguments.cuh", "FaultRecord", FAULT_RECORD),
        ("attention_a2a/arguments.cuh", "Receipt", RECEIPT),
        ("attention_a2a/epochs.cu", "ReceiveArguments", RECEIVE_ARGUMENTS),
    ],
)
def test_struct_matches_its_dtype(root: Path, source: str, struct: str, dtype: np.dtype[np.void]) -> None:
    compile_layout(root, source, struct, dtype)


def test_a_layout_that_differs_is_found(root: Path) -> None:
    swapped = np.dtype([("rank", "<u4"), ("raised", "<u4"), *FAULT_RECORD.descr[2:]])
    with pytest.raises(KernelCompileError, match="static assertion"):
        compile_layout(root, "attention_a2a/arguments.cuh", "FaultRecord", swapped)


def test_lanes_in_shared_memory_take_what_the_host_sets_aside(root: Path) -> None:
    defines = attention_variant(config(), 128, record_spans=True).defines
    text = (
        '#include "attention_a2a/tile_spans.cuh"\n'
        f"static_assert(sizeof(xstage::SpanLane) == {LANE_BYTES});\n"
        'extern "C" __global__ void kernel() {}\n'
    )
    (root / "layout.cu").write_text(text)
    compile_kernel("layout.cu", "sm_90a", defines, ("kernel",), root)


def test_host_and_kernel_must_agree_on_shared_memory(root: Path) -> None:
    defines = attention_variant(config(), 128).defines
    wrong = defines | {"SHARED_BYTES": int(defines["SHARED_BYTES"]) + 1024}
    with pytest.raises(KernelCompileError, match="static assertion"):
        compile_kernel("attention_a2a/attention.cu", "sm_90a", wrong, ("attention_a2a",), root)
