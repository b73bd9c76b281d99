"""The kernel: a tile of the product, whose own rows stay and whose others leave."""

import triton
import triton.language as tl


@triton.jit
def gemm(
    a, b, kept, sent, rows, columns, depth, own_rows, first, row_tiles,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    m = ((tile % row_tiles + first) % row_tiles) * block_m + tl.arange(0, block_m)
    n = (tile // row_tiles) * block_n + tl.arange(0, block_n)
    k = tl.arange(0, block_k)
    row, column = m[:, None], n[None, :]
    sums = tl.zeros((block_m, block_n), dtype=tl.float32)
    for start in range(0, depth, block_k):
        inside = start + k < depth
        left = tl.load(a + row * depth + start + k[None, :], mask=(row < rows) & inside[None, :], other=0.0)
        below = b + (start + k)[:, None] * columns + column
        right = tl.load(below, mask=inside[:, None] & (column < columns), other=0.0)
        sums = tl.dot(left, right, sums)
    out = sums.to(tl.bfloat16)
    place, exists = row * columns + column, (row < rows) & (column < columns)
    tl.store(kept + place, out, mask=exists & (row < own_rows))  # the first rank's rows
    tl.store(sent + place, out, mask=exists & (row >= own_rows))
