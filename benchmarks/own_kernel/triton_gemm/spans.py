"""Spans from Triton: clocks by inline PTX, in the buffer of ``xstage/span.cuh``.

Triton 3.9 compiles it for Hopper; no GPU has run it yet.

    buffer = torch.from_numpy(xstage_tune.spans.new_buffer(lanes=programs, capacity=tiles)).cuda()
    kernel[(programs,)](..., buffer.view(torch.int32), programs, tiles)
    xstage_tune.spans.save_buffer(buffer, "gemm.spans", {1: "mainloop", 2: "stores"})

and in the kernel, of whose programs each is a lane:

    timer, opened = open_lane()
    for tile in ...:
        begin = clock()
        ...
        begin = record(buffer, lanes, capacity, lane, count, MAINLOOP, tile, opened, begin)
        count += 1
    close_lane(buffer, lane, count, capacity, timer, opened)

Records go to memory at once, behind the kernel's own stores: a span that ends while the path is full may seem
shorter, and the next one longer, by what the record waited.
"""

from __future__ import annotations

import triton
import triton.language as tl

#: In words of 4 bytes: of the buffer's head, of a lane's row, of a record.
HEAD = tl.constexpr(4)
ROW = tl.constexpr(12)
RECORD = tl.constexpr(3)


@triton.jit
def clock():
    """Cycles of this SM. The clobber keeps loads and stores on their side of it."""
    return tl.inline_asm_elementwise(
        "mov.u64 $0, %clock64;", "=l,~{memory}", [], dtype=tl.int64, is_pure=False, pack=1
    )


@triton.jit
def timer_ns():
    """The clock that all SMs share."""
    return tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l,~{memory}", [], dtype=tl.int64, is_pure=False, pack=1
    )


@triton.jit
def sm_id():
    return tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def open_lane():
    """Both clocks at the lane's begin."""
    return timer_ns(), clock()


@triton.jit
def record(buffer, lanes, capacity, lane, count, name, index, opened, begin):
    """End the span ``name`` of tile ``index``, the lane's number ``count``, at ``begin``; returns its end."""
    end = clock()
    place = buffer + HEAD + ROW * lanes + RECORD * (lane * capacity + count)
    kept = count < capacity
    tl.store(place, (begin - opened).to(tl.int32), mask=kept)
    tl.store(place + 1, (end - begin).to(tl.int32), mask=kept)
    tl.store(place + 2, (name << 24) | index, mask=kept)
    return end


@triton.jit
def close_lane(buffer, lane, count, capacity, timer, opened):
    """Write the lane's clocks and counts."""
    row = buffer + HEAD + ROW * lane
    _store_long(row, timer)
    _store_long(row + 2, opened)
    _store_long(row + 4, timer_ns())
    _store_long(row + 6, clock())
    recorded = tl.minimum(count, capacity)
    tl.store(row + 8, recorded)
    tl.store(row + 9, count - recorded)
    tl.store(row + 10, count)
    tl.store(row + 11, lane | (sm_id() << 16))


@triton.jit
def _store_long(place, value):
    tl.store(place, value.to(tl.int32))
    tl.store(place + 1, (value >> 32).to(tl.int32))
