"""The argument block of an attention launch, as ``kernels/attention_a2a`` reads it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError
from xstage_tune.cuda.attention_maps import MAP_BYTES, InputStrides, head_address, input_map, output_map
from xstage_tune.cuda.attention_shape import MAX_RANKS, AttentionShape, Destinations
from xstage_tune.cuda.attention_variants import TILE_ORDER_NUMBER
from xstage_tune.families.attention_a2a.budget import WARPGROUP_ROWS
from xstage_tune.families.attention_a2a.config import AttentionConfig

#: The structs of ``kernels/attention_a2a``.
RECEIPT = np.dtype(
    [
        ("words", "<u8"),
        ("buffers", "<u8"),
        ("output", "<u8"),
        ("timeout_ns", "<u8"),
        ("vectors", "<u4"),
        ("ranks", "<u4"),
        ("ctas", "<u4"),
        ("padding", "<u4"),
    ]
)
ATTENTION_ARGUMENTS = np.dtype(
    [
        ("query", "u1", (MAP_BYTES,)),
        ("key", "u1", (MAP_BYTES,)),
        ("value", "u1", (MAP_BYTES,)),
        ("output", "u1", (MAX_RANKS, MAP_BYTES)),
        ("destination", "<u8", (MAX_RANKS,)),
        ("signal", "<u8", (MAX_RANKS,)),
        ("exchange", "<u8"),
        ("lanes", "<u8"),
        ("spans", "<u8"),
        ("lse", "<u8"),
        ("epoch_bytes", "<u8"),
        ("receipt", RECEIPT),
        ("tokens", "<u4"),
        ("kv_tokens", "<u4"),
        ("heads", "<u4"),
        ("ranks", "<u4"),
        ("rank", "<u4"),
        ("call", "<u4"),
        ("ctas", "<u4"),
        ("tile_order", "<u2"),
        ("complete", "<u2"),
        ("token_bytes", "<u4"),
        ("scale_log2", "<f4"),
        ("span_capacity", "<u4"),
        ("padding", "<u4", (15,)),
    ]
)
EXCHANGE = np.dtype(
    [
        ("epoch", "<u4"),
        ("arrived", "<u4"),
        ("received", "<u4"),
        ("holder", "<u4"),
        ("fault", "<u4"),
        ("padding", "<u4"),
        ("record", "<u8"),
    ]
)
FAULT_RECORD = np.dtype(
    [("raised", "<u4"), ("rank", "<u4"), ("expected", "<u4"), ("seen", "<u4"), ("timeout_ns", "<u8")]
)
RECEIVE_ARGUMENTS = np.dtype([("exchange", "<u8"), ("receipt", RECEIPT), ("epoch_bytes", "<u8")])


def attention_arguments(
    shape: AttentionShape,
    config: AttentionConfig,
    inputs: tuple[int, int, int],
    destinations: Destinations,
    scale_log2: float,
    strides: InputStrides | None = None,
) -> NDArray[np.void]:
    """One row of :data:`ATTENTION_ARGUMENTS` for launches that record and complete nothing.

    Args:
        inputs: addresses of q, k and v, each ``[tokens, heads, head_dim]`` bf16.
        scale_log2: softmax scale times log2(e).
        strides: of q, k and v in bytes, from token to token and from head to head; contiguous by default.

    Raises:
        UsageError: the destinations do not fit the shape, or an address is misaligned.
        DeviceError: the driver refuses to describe a tensor.
    """
    destinations.check(shape)
    for name, address in zip("qkv", inputs, strict=True):
        if address <= 0 or address % 16:
            raise UsageError(f"{name} is at {address:#x}", "give device addresses, aligned to 16 bytes")
    arguments = np.zeros(1, ATTENTION_ARGUMENTS)
    row = arguments[0]
    of_query, of_key, of_value = strides or ((shape.heads * shape.row_bytes, shape.row_bytes),) * 3
    row["query"] = input_map(inputs[0], shape.tokens, of_query, shape, WARPGROUP_ROWS)
    row["key"] = input_map(inputs[1], shape.keys, of_key, shape, config.block_n)
    row["value"] = input_map(inputs[2], shape.keys, of_value, shape, config.block_n)
    for rank in range(shape.ranks):
        row["destination"][rank] = head_address(rank, shape, destinations)
        if config.store_flavour == "tma":
            row["output"][rank] = output_map(rank, shape, destinations, WARPGROUP_ROWS)
        if destinations.signals:
            row["signal"][rank] = destinations.signals[rank]
    row["epoch_bytes"] = destinations.epoch_bytes
    row["tokens"], row["kv_tokens"], row["heads"] = shape.tokens, shape.keys, shape.heads
    row["ranks"], row["rank"] = shape.ranks, shape.rank
    row["tile_order"] = TILE_ORDER_NUMBER[config.tile_order]
    row["token_bytes"] = shape.token_bytes
    row["scale_log2"] = scale_log2
    return arguments
