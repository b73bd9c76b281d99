"""The structs that host and kernels share have the same size and fields at the same offsets on both sides."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from xstage_tune.base.assets import data_dir
from xstage_tune.base.spans import LANE_DTYPE, RECORD_DTYPE, SpanKind
from xstage_tune.cuda import bursts
from xstage_tune.cuda import skeletons_layout as layout
from xstage_tune.cuda.compiler import KernelCompileError, compile_kernel
from xstage_tune.cuda.destination import VERIFY_ARGUMENTS, VERIFY_EXTENTS_ARGUMENTS
from xstage_tune.cuda.driver import START
from xstage_tune.cuda.extents import EXTENT
from xstage_tune.families.megamoe.scheduling import SCHEDULER_PARAMETERS
from xstage_tune.spans.buffer import HEAD_DTYPE

STRUCTS = {
    "common/span.cuh": {"LaneRecord": LANE_DTYPE, "SpanRecord": RECORD_DTYPE},
    "common/start.cuh": {"Start": START},
    "include/xstage/span.cuh": {"SpanBufferHead": HEAD_DTYPE},
    "calibration/bursts.cu": {
        "BurstArguments": bursts.BURST_ARGUMENTS,
        "Fault": bursts.FAULT,
        "Control": bursts.CONTROL,
    },
    "calibration/verify.cu": {"VerifyArguments": VERIFY_ARGUMENTS},
    "emulation/arguments.cuh": {
        "emulation::SkeletonArguments": layout.SKELETON_ARGUMENTS,
        "emulation::SharedOffsets": layout.SHARED_OFFSETS,
        "emulation::TilePlan": layout.TILE_PLAN,
        "emulation::TileLinks": layout.TILE_LINKS,
        "emulation::StorePlan": layout.STORE_PLAN,
        "emulation::TileMoments": layout.TILE_MOMENTS,
        "emulation::MainloopTotals": layout.MAINLOOP_TOTALS,
        "emulation::IssueTotals": layout.ISSUE_TOTALS,
        "emulation::LaneTotals": layout.LANE_TOTALS,
        "emulation::Fault": layout.FAULT,
        "emulation::Control": layout.CONTROL,
        "megamoe::SchedulerParameters": SCHEDULER_PARAMETERS,
    },
    "emulation/verify.cu": {
        "emulation::Extent": EXTENT,
        "emulation::VerifyExtentsArguments": VERIFY_EXTENTS_ARGUMENTS,
    },
}

#: Fields whose names differ because the host speaks of any device's ticks.
RENAMED = {"tick_begin": "cycle_begin", "tick_end": "cycle_end"}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder beside the kernels' own, for a source that includes them."""
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "cache"))
    root = tmp_path / "kernels"
    root.mkdir()
    for folder in data_dir("kernels").iterdir():
        (root / folder.name).symlink_to(folder)
    return root


def assertions(header: str) -> str:
    lines = ["#define STORE_FLAVOUR 0", f'#include "{header}"', "using namespace xstage;"]
    for name, dtype in STRUCTS[header].items():
        lines.append(f'static_assert(sizeof({name}) == {dtype.itemsize}, "{name}");')
        for field, (_, offset) in (dtype.fields or {}).items():
            member = f"{name}, {RENAMED.get(field, field)}"
            lines.append(f'static_assert(__builtin_offsetof({member}) == {offset}, "{name}.{field}");')
    return "\n".join([*lines, 'extern "C" __global__ void nothing() {}', ""])


@pytest.mark.parametrize("header", STRUCTS)
def test_structs_are_laid_out_as_their_dtypes(header: str, root: Path) -> None:
    (root / "layout.cu").write_text(assertions(header))
    compile_kernel("layout.cu", "sm_90a", {}, ("nothing",), root)


def test_a_shifted_field_is_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shifted = np.dtype([("offset", "<u8"), ("phase", "<u4"), ("bytes", "<u4"), ("rest", "<u8")])
    monkeypatch.setitem(STRUCTS["emulation/verify.cu"], "emulation::Extent", shifted)
    (root / "layout.cu").write_text(assertions("emulation/verify.cu"))
    with pytest.raises(KernelCompileError, match=r"Extent|rest"):
        compile_kernel("layout.cu", "sm_90a", {}, ("nothing",), root)


def test_span_kinds_of_the_kernels_are_those_of_the_host() -> None:
    text = (data_dir("kernels") / "common/span.cuh").read_text()
    body = re.search(r"enum class SpanKind : u32 {(.*?)}", text)
    assert body is not None
    kinds = dict(pair.split(" = ") for pair in body[1].strip().split(", "))
    assert kinds
    for name, number in kinds.items():
        assert SpanKind[name.upper()] == int(number)
