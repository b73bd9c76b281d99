"""Tensor maps of the attention kernel: how the copy engine sees Q, K, V and every rank's output."""

from __future__ import annotations

import ctypes

import numpy as np
from cuda.bindings import driver
from numpy.typing import NDArray

from xstage_tune.cuda.attention_shape import AttentionShape, Destinations
from xstage_tune.cuda.driver import check

MAP_BYTES = 128
#: Elements of a 128-byte row, the width of a swizzled tile: a row of a head is one or two of them.
_CHUNK = 64
_ELEMENT_BYTES = 2
_MAP_TYPES = {
    1: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT8,
    2: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
}


#: Bytes from token to token and from head to head, of q, k and v; multiples of 16.
InputStrides = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]


def input_map(
    address: int, tokens: int, strides: tuple[int, int], shape: AttentionShape, box_rows: int
) -> NDArray[np.uint8]:
    """Of ``[tokens, heads, head_dim]`` at ``address``: a box is ``box_rows`` tokens of one head.

    Args:
        strides: in bytes, from token to token and from head to head.
    """
    token_bytes, head_bytes = strides
    return encode_map(
        address,
        sizes=(_CHUNK, tokens, shape.head_dim // _CHUNK, shape.heads),
        stride_bytes=(token_bytes, _CHUNK * _ELEMENT_BYTES, head_bytes),
        box=(_CHUNK, box_rows, shape.head_dim // _CHUNK, 1),
    )


def output_map(
    rank: int, shape: AttentionShape, destinations: Destinations, box_rows: int
) -> NDArray[np.uint8]:
    """Of this sender's heads in both buffers of ``rank``; zeros where the rank owns no token.

    The rank's tokens are all that the map has, so a box that reaches beyond them is cut off there.
    """
    if shape.rows_of(rank) == 0:
        return np.zeros(MAP_BYTES, np.uint8)
    epochs = 2 if destinations.epoch_bytes else 1
    return encode_map(
        head_address(rank, shape, destinations),
        sizes=(_CHUNK, shape.rows_of(rank), shape.head_dim // _CHUNK, shape.heads, epochs),
        stride_bytes=(
            shape.token_bytes,
            _CHUNK * _ELEMENT_BYTES,
            shape.row_bytes,
            destinations.epoch_bytes or shape.token_bytes,
        ),
        box=(_CHUNK, box_rows, shape.head_dim // _CHUNK, 1, 1),
    )


def head_address(rank: int, shape: AttentionShape, destinations: Destinations) -> int:
    """Where this sender's first head of the first token lies in the buffer of ``rank``."""
    return destinations.buffers[rank] + shape.first_head * shape.row_bytes


def encode_map(
    address: int,
    sizes: tuple[int, ...],
    stride_bytes: tuple[int, ...],
    box: tuple[int, ...],
    element_bytes: int = _ELEMENT_BYTES,
) -> NDArray[np.uint8]:
    """A 128-byte swizzled map of bf16 or of bytes, innermost dimension first, which is contiguous."""
    encoded = check(
        driver.cuTensorMapEncodeTiled(
            _MAP_TYPES[element_bytes],
            len(sizes),
            address,
            [driver.cuuint64_t(size) for size in sizes],
            [driver.cuuint64_t(stride) for stride in stride_bytes],
            [driver.cuuint32_t(rows) for rows in box],
            [driver.cuuint32_t(1)] * len(sizes),
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ),
        "describe a tensor to the copy engine",
    )
    return np.frombuffer(ctypes.string_at(encoded.getPtr(), MAP_BYTES), np.uint8)
