"""Kernels beside the fused one: what they compile to, and where rows lie of the layer without fusion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.layouts import compile_layout, kernels_in
from xstage_tune.cuda.cache import cached_kernel
from xstage_tune.cuda.fused_loading import ARCHITECTURE
from xstage_tune.cuda.moe_routing import ROUTING_ARGUMENTS, ROUTING_SOURCE, routing_variant
from xstage_tune.cuda.moe_serial import SERIAL_ARGUMENTS, SERIAL_SOURCE, pool_layout, serial_variant
from xstage_tune.cuda.moe_shape import MoeShape
from xstage_tune.cuda.moe_variants import SHIPPED
from xstage_tune.cuda.variants import KernelVariant
from xstage_tune.families.megamoe.workload import Precision


@pytest.mark.parametrize("variant_of", [serial_variant, routing_variant])
@pytest.mark.parametrize("precision", SHIPPED)
def test_kernels_compile_without_spills(
    variant_of: Callable[[Precision], KernelVariant], precision: Precision
) -> None:
    variant = variant_of(precision)
    compiled = cached_kernel(variant.source, ARCHITECTURE, variant.defines, variant.names)
    assert {entry.spill_bytes for entry in compiled.entries.values()} == {0}
    assert compiled.warnings == ()


def test_every_row_has_a_scale_of_its_own() -> None:
    """Scales of an expert are ``[blocks, rows that are computed]``, one expert behind the other."""
    shape = MoeShape(256, 384, (70, 0, 3), precision="w8a8")
    layout, blocks = pool_layout(shape, 64), shape.intermediate_blocks
    assert layout.experts == ((0, 0, 80), (2, 128, 16))
    tables = layout.tables(blocks)
    assert tables["places"].tolist() == [*range(70), 128, 129, 130]
    scales = np.concatenate([tables["first_scale"] + block * tables["scale_step"] for block in range(blocks)])
    assert len(set(scales.tolist())) == shape.rows * blocks
    assert scales.max() < blocks * shape.pool_rows(64)
    row = 71
    assert tables["first_scale"][row] == 128 * blocks + 1
    assert tables["scale_step"][row] == 16


@pytest.mark.parametrize(
    ("source", "struct", "dtype"),
    [
        (SERIAL_SOURCE, "SerialArguments", SERIAL_ARGUMENTS),
        (ROUTING_SOURCE, "RoutingArguments", ROUTING_ARGUMENTS),
    ],
)
def test_struct_matches_its_dtype(tmp_path: Path, source: str, struct: str, dtype: np.dtype[np.void]) -> None:
    root = kernels_in(tmp_path, "megamoe")
    compile_layout(root, source, f"megamoe::{struct}", dtype, FORMAT=1)
