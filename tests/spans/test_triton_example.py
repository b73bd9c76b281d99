"""The Triton way fills the buffer that the header fills; Triton itself is played by Python's numbers."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from xstage_tune.spans import new_buffer, read_buffer

LANES, CAPACITY = 3, 2


class Number(int):
    """A 64-bit number of a kernel."""

    def __sub__(self, other: int) -> Number:
        return Number(int(self) - int(other))

    def __rshift__(self, bits: int) -> Number:
        return Number(int(self) >> bits)

    def to(self, _: object) -> int:
        return int(self) & 0xFFFFFFFF


class Kernel:
    """What a program sees: two cycles a ns from 2**33 on, and memory by word."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.words = new_buffer(LANES, CAPACITY).view(np.uint32)
        tl = SimpleNamespace(
            constexpr=int,
            int32="int32",
            int64="int64",
            minimum=min,
            store=self.store,
            inline_asm_elementwise=self.asm,
        )
        self.modules = {"triton": SimpleNamespace(jit=lambda f: f, language=tl), "triton.language": tl}

    def store(self, place: int, value: int, mask: bool = True) -> None:
        if mask:
            self.words[place] = value

    def asm(self, text: str, *_: Any, **__: Any) -> Number:
        read = {"%clock64": 2**33 + 2 * self.now_ns, "%globaltimer": 2**34 + self.now_ns, "%smid": 9}
        return Number(next(value for name, value in read.items() if name in text))


def test_the_triton_way_fills_the_same_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    for name, module in kernel.modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "benchmarks.own_kernel.triton_gemm.spans", raising=False)
    way = importlib.import_module("benchmarks.own_kernel.triton_gemm.spans")
    timer, opened = way.open_lane()
    for count, (begin_ns, end_ns) in enumerate(((100, 350), (400, 500), (600, 700))):
        kernel.now_ns = begin_ns
        begin = way.clock()
        kernel.now_ns = end_ns
        way.record(0, LANES, CAPACITY, 1, count, 2, 10 + count, opened, begin)
    kernel.now_ns = 1000
    way.close_lane(0, 1, 3, CAPACITY, timer, opened)
    table = read_buffer(kernel.words)
    assert table.spans[["lane", "kind", "index"]].tolist() == [(1, 2, 10), (1, 2, 11)]
    assert (table.begin_ns().tolist(), table.duration_ns().tolist()) == ([100, 400], [250, 100])
    assert table.lanes[["recorded", "dropped", "issued", "lane", "sm_id"]][1].tolist() == (2, 1, 3, 1, 9)
