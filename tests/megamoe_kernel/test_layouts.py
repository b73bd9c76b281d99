"""The structs that host and MoE kernel share have the same offsets and sizes on both sides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.layouts import compile_layout, kernels_in, layout_checks
from xstage_tune.cuda.compiler import KernelCompileError, compile_kernel
from xstage_tune.cuda.moe_arguments import (
    LAUNCH_STATE,
    MOE_ARGUMENTS,
    MOE_FAULT,
    PULL,
    REDUCE_ARGUMENTS,
    ROW_SOURCE,
)
from xstage_tune.cuda.moe_operands import FILL, FILL_ARGUMENTS
from xstage_tune.cuda.moe_variants import KERNEL, SHIPPED, moe_variant, recording_bytes
from xstage_tune.cuda.sources import MEGAMOE_SOURCE
from xstage_tune.families.megamoe.built import SHARED_BYTES_LIMIT, shared_bytes
from xstage_tune.families.megamoe.workload import Precision


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kernels, with room for one more beside them."""
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "cache"))
    return kernels_in(tmp_path, "megamoe")


@pytest.mark.parametrize(
    ("source", "struct", "dtype"),
    [
        ("megamoe/arguments.cuh", "megamoe::MoeArguments", MOE_ARGUMENTS),
        ("megamoe/arguments.cuh", "megamoe::MoeFault", MOE_FAULT),
        ("megamoe/arguments.cuh", "megamoe::LaunchState", LAUNCH_STATE),
        ("megamoe/arguments.cuh", "megamoe::RowSource", ROW_SOURCE),
        ("megamoe/arguments.cuh", "megamoe::Pull", PULL),
        ("megamoe/reduce.cu", "megamoe::ReduceArguments", REDUCE_ARGUMENTS),
    ],
)
def test_struct_matches_its_dtype(root: Path, source: str, struct: str, dtype: np.dtype[np.void]) -> None:
    compile_layout(root, source, struct, dtype)


@pytest.mark.parametrize("precision", SHIPPED)
def test_host_and_kernel_must_agree_on_shared_memory(precision: Precision, root: Path) -> None:
    defines = moe_variant(SHIPPED[precision][0], precision).defines
    wrong = defines | {"SHARED_BYTES": int(defines["SHARED_BYTES"]) + 1024}
    with pytest.raises(KernelCompileError, match="static assertion"):
        compile_kernel(MEGAMOE_SOURCE, "sm_90a", wrong, (KERNEL,), root)


@pytest.mark.parametrize("precision", SHIPPED)
def test_lanes_in_shared_memory_take_what_the_host_sets_aside(precision: Precision, root: Path) -> None:
    config = SHIPPED[precision][0]
    defines = moe_variant(config, precision, record_spans=True).defines
    lanes = SHARED_BYTES_LIMIT - shared_bytes(config, precision) - recording_bytes(config, precision)
    text = (
        '#include "megamoe/role_spans.cuh"\n'
        f"static_assert(xstage::megamoe::kLanesBytes == {lanes});\n"
        'extern "C" __global__ void kernel() {}\n'
    )
    (root / "layout.cu").write_text(text)
    compile_kernel("layout.cu", "sm_90a", defines, ("kernel",), root)


@pytest.mark.parametrize("precision", FILL)
def test_operands_are_filled_by_the_struct_of_their_kernel(precision: Precision, root: Path) -> None:
    text = f'#include "megamoe/inputs.cu"\n{layout_checks("megamoe::FillArguments", FILL_ARGUMENTS)}\n'
    (root / "layout.cu").write_text(text)
    compile_kernel("layout.cu", "sm_90a", {}, FILL[precision].names, root)
