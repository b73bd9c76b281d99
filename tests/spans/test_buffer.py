"""The header that any kernel can include, and what reads its buffer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.spans.recorded import recorded
from xstage_tune.base.errors import UsageError
from xstage_tune.cuda.compiler import compile_kernel
from xstage_tune.spans import header_dir, new_buffer, read_buffer, save_buffer
from xstage_tune.spans.buffer import HEAD_DTYPE, buffer_bytes, decode_buffer, read_about

KERNEL = """
#include <xstage/span.cuh>
extern "C" __global__ void work(float* p, xstage::SpanBuffer buffer) {
    BEGIN
    for (unsigned tile = 0; tile < 8; ++tile) {
        TILE
        p[tile * gridDim.x + blockIdx.x] *= 2;
        TILE_END
    }
    END
}
"""
RECORDING = {
    "BEGIN": "xstage::Spans<> spans(buffer, blockIdx.x);",
    "TILE": "const auto begin = spans.begin();",
    "TILE_END": "spans.end(1, tile, begin);",
    "END": "spans.close();",
}
STAGED = {
    **RECORDING,
    "BEGIN": "__shared__ xstage::SpanRecord room[16]; xstage::Spans<> spans(buffer, blockIdx.x, room, 16);",
}


@pytest.mark.parametrize("staged", [False, True])
def test_spans_of_a_kernel_are_read_by_lane_and_begin(staged: bool) -> None:
    table = read_buffer(recorded(staged=staged))
    spans = table.spans
    shown = list(
        zip(
            spans["lane"].tolist(),
            spans["kind"].tolist(),
            spans["index"].tolist(),
            table.begin_ns(),
            strict=True,
        )
    )
    assert shown == [
        (0, 255, 5, 50),
        (0, 1, 0, 100),
        (0, 2, 0, 400),
        (2, 1, 1, 0),
        (2, 1, 2, 2_000),
        (2, 1, 3, 3_000),
    ]
    assert table.duration_ns().tolist() == [450, 200, 50, 1_000, 500, 500]
    assert table.lanes["dropped"].tolist() == [0, 0, 1, 0]
    assert table.lanes["issued"].tolist() == [3, 0, 4, 0]
    assert table.lanes["sm_id"][2] == 7


def test_a_file_keeps_names_beside_the_spans(tmp_path: Path) -> None:
    memory = recorded()
    np.save(tmp_path / "spans.npy", memory)
    for source in (memory, memory.tobytes(), tmp_path / "spans.npy"):
        save_buffer(
            source,
            tmp_path / "spans.xs",
            {1: "gemm", 2: "läuft\x1b"},
            roles=("math",),
            kernel="mine",
            force=True,
        )
    data = (tmp_path / "spans.xs").read_bytes()
    table, size = decode_buffer(data, "file")
    assert size == buffer_bytes(4, 3) == memory.nbytes
    assert len(table.spans) == 6
    assert read_about(data[size:], "file") == ({1: "gemm", 2: "läuft\\x1b"}, ("math",), "mine")


def test_a_new_buffer_has_the_head_that_a_lane_writes() -> None:
    memory, new = recorded(), new_buffer(4, 3)
    assert new.nbytes == memory.nbytes
    assert (new[: HEAD_DTYPE.itemsize] == memory[: HEAD_DTYPE.itemsize]).all()
    with pytest.raises(UsageError, match="none of its 4 lanes"):
        read_buffer(new)
    with pytest.raises(UsageError, match="lanes"):
        new_buffer(1 << 17, 1)


def broken(memory: np.ndarray, offset: int, value: int) -> bytes:
    changed = memory.copy()
    changed[offset : offset + 4] = np.frombuffer(np.uint32(value).tobytes(), np.uint8)
    return changed.tobytes()


def test_what_is_no_buffer_or_a_damaged_one_is_refused() -> None:
    memory, first = recorded(), HEAD_DTYPE.itemsize
    with pytest.raises(UsageError, match="closed"):
        read_buffer(np.zeros(1000, np.uint8))
    with pytest.raises(UsageError, match="take"):
        read_buffer(broken(memory, 8, 0xFFFFFFFF))
    with pytest.raises(UsageError, match="take"):
        read_buffer(memory[:-1])
    for offset, value in ((32, 4), (0, 0), (0, 0x7FFFFFFF)):
        with pytest.raises(UsageError, match="lane 0"):
            read_buffer(broken(memory, first + offset, value))
    with pytest.raises(UsageError, match="days"):
        read_buffer(broken(memory, first + 20, 0x7FFFFFFF))


@pytest.mark.parametrize(
    "about", [b"{", b"[1]", b'{"names":{"x":"y"}}', b'{"names":{"256":"y"}}', b'{"roles":[1]}', b"\xff"]
)
def test_names_that_are_none_are_refused(about: bytes) -> None:
    with pytest.raises(UsageError, match="names"):
        read_about(about, "file")


def test_the_header_compiles_for_a_gpu_and_costs_nothing_when_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "xstage").symlink_to(header_dir() / "xstage")
    (tmp_path / "work.cu").write_text(KERNEL)
    code = {}
    for name, defines in {
        "recording": RECORDING,
        "staged": STAGED,
        "off": RECORDING | {"XSTAGE_SPANS": 0},
        "without": dict.fromkeys(RECORDING, "") | {"XSTAGE_SPANS": 0},
    }.items():
        kernel = compile_kernel("work.cu", "sm_90a", defines, ("work",), tmp_path)
        assert kernel.warnings == ()
        code[name] = kernel.cubin
    assert code["off"] == code["without"]
    assert len({*code.values()}) == 3
