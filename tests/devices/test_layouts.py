"""The structs that host and kernels share have the same fields, sizes and offsets on both sides."""

from __future__ import annotations

import re

import numpy as np
import pytest

from xstage_tune.base.assets import data_dir
from xstage_tune.base.spans import LANE_DTYPE, RECORD_DTYPE, SpanKind
from xstage_tune.cuda.bursts import BURST_ARGUMENTS, CONTROL
from xstage_tune.cuda.destination import VERIFY_ARGUMENTS

#: Names that differ because the host speaks of any device's ticks.
_RENAMED = {"cycle_begin": "tick_begin", "cycle_end": "tick_end"}
_SIZES = {"u16": 2, "u32": 4, "u64": 8}


def struct_fields(source: str, name: str) -> list[tuple[str, int]]:
    """Field names and sizes of a struct of the kernels, nested structs taken apart."""
    text = re.sub(r"//.*", "", (data_dir("kernels") / source).read_text())
    body = re.search(rf"struct {name} {{(.*?)}};", text, re.DOTALL)
    assert body is not None
    constants = {key: int(value) for key, value in re.findall(r"constexpr u32 (\w+) = (\d+);", text)}
    fields: list[tuple[str, int]] = []
    for declaration in body[1].split(";"):
        match = re.fullmatch(r"(?:const )?(\w+)( ?\*)? ?(\w+)(?:\[(\w+) / (\d+)\])?", declaration.strip())
        if match is None:
            assert not declaration.strip()
        elif match[2] or match[1] in _SIZES:
            count = constants[match[4]] // int(match[5]) if match[4] else 1
            size = 8 if match[2] else count * _SIZES[match[1]]
            fields.append((_RENAMED.get(match[3], match[3]), size))
        else:
            fields += struct_fields(source, match[1])
    return fields


@pytest.mark.parametrize(
    ("source", "name", "dtype"),
    [
        ("calibration/bursts.cu", "BurstArguments", BURST_ARGUMENTS),
        ("calibration/bursts.cu", "Control", CONTROL),
        ("calibration/verify.cu", "VerifyArguments", VERIFY_ARGUMENTS),
        ("common/span.cuh", "LaneRecord", LANE_DTYPE),
        ("common/span.cuh", "SpanRecord", RECORD_DTYPE),
    ],
)
def test_struct_matches_its_dtype(source: str, name: str, dtype: np.dtype[np.void]) -> None:
    assert dtype.names is not None
    assert struct_fields(source, name) == [(field, dtype[field].itemsize) for field in dtype.names]
    # Fields in this order are naturally aligned, so C++ pads nothing either.
    offsets = np.cumsum([0] + [dtype[field].itemsize for field in dtype.names])
    assert [dtype.fields[field][1] for field in dtype.names] == offsets[:-1].tolist()  # type: ignore[index]
    alignments = [dtype[field].base.itemsize for field in dtype.names]
    assert all(offset % alignment == 0 for alignment, offset in zip(alignments, offsets, strict=False))


def test_span_kinds_of_the_kernels_are_those_of_the_host() -> None:
    text = (data_dir("kernels") / "common/span.cuh").read_text()
    body = re.search(r"enum class SpanKind : u32 {(.*?)}", text)
    assert body is not None
    kinds = dict(pair.split(" = ") for pair in body[1].strip().split(", "))
    assert kinds
    for name, number in kinds.items():
        assert SpanKind[name.upper()] == int(number)
