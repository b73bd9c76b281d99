"""The argument block of a MoE launch, as ``kernels/megamoe`` reads it, and its tensor maps."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError
from xstage_tune.cuda.attention_maps import MAP_BYTES, encode_map
from xstage_tune.cuda.moe_shape import MAX_RANKS, MoeShape
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.scheduling import SCHEDULER_PARAMETERS

#: The structs of ``kernels/megamoe``.
ROW_SOURCE = np.dtype([("rank", "<u4"), ("slot", "<u4")])
PULL = np.dtype([("rank", "<u4"), ("token", "<u4"), ("first_row", "<u4"), ("rows", "<u4")])
MOE_FAULT = np.dtype(
    [
        ("raised", "<u4"),
        ("wait", "<u4"),
        ("rank", "<u4"),
        ("row", "<u4"),
        ("expected", "<u4"),
        ("seen", "<u4"),
        ("cta", "<u4"),
        ("padding", "<u4"),
        ("timeout_ns", "<u8"),
    ]
)
LAUNCH_STATE = np.dtype([("ticket", "<u4"), ("finished", "<u4"), ("epoch", "<u4"), ("padding", "<u4")])
REDUCE_ARGUMENTS = np.dtype(
    [
        ("combined", "<u8"),
        ("weights", "<u8"),
        ("output", "<u8"),
        ("words", "<u8"),
        ("state", "<u8"),
        ("fault", "<u8"),
        ("timeout_ns", "<u8"),
        ("ranks", "<u4"),
        ("tokens", "<u4"),
        ("top_k", "<u4"),
        ("hidden", "<u4"),
    ]
)
_MAPS = ("tokens", "weights1", "activations", "swiglu", "weights2")
_TABLES = ("destination", "signal", "origin", "ready")
_POINTERS = (
    "pulls", "pull_rows", "pool", "arrivals", "sources", "counters", "state", "fault", "lanes", "spans",
    "timeout_ns",
)  # fmt: skip
_NUMBERS = ("hidden", "intermediate", "rank", "pace", "span_capacity", "pull_count", "withheld_row")
_FIELDS: list[tuple[str, Any]] = [
    *((name, ("u1", (MAP_BYTES,))) for name in _MAPS),
    ("scheduler", SCHEDULER_PARAMETERS),
    *((name, ("<u8", (MAX_RANKS,))) for name in _TABLES),
    *((name, "<u8") for name in _POINTERS),
    *((name, "<u4") for name in _NUMBERS),
]
#: Without gaps but behind the last field: tensor maps are aligned to 64 bytes.
_PACKED = np.dtype([(name, *(of if isinstance(of, tuple) else (of,))) for name, of in _FIELDS])
MOE_ARGUMENTS = np.dtype(
    {
        "names": list(_PACKED.names or ()),
        "formats": [_PACKED[name] for name in _PACKED.names or ()],
        "offsets": [_PACKED.fields[name][1] for name in _PACKED.names or ()] if _PACKED.fields else [],
        "itemsize": 64 * ceil(_PACKED.itemsize / 64),
    }
)
NO_ROW = 2**32 - 1
_PART_ROWS = 64
_ALIGNMENT = 16
_CHUNK = 64
_BF16 = 2


@dataclass(frozen=True, slots=True)
class Dispatch:
    """From where a launch pulls the tokens that were routed to it.

    Args:
        origins: of each rank the address of its tokens, ``[its tokens, hidden]`` bf16.
        ready: of each rank the address of a ``uint32`` that says for how many launches its tokens were there.
        pulls: ``[pulls]`` of :data:`PULL`; see :class:`~.megamoe.dispatch.RankTables`.
        pull_rows: ``[rows]`` of ``uint32``, rows of the pool.
        pull_count: how many pulls there are.
    """

    origins: tuple[int, ...]
    ready: tuple[int, ...]
    pulls: int
    pull_rows: int
    pull_count: int


@dataclass(frozen=True, slots=True)
class MoeTensors:
    """Addresses of what a launch reads and writes, bf16 and contiguous, aligned to 16 bytes.

    Args:
        pool: ``[pool rows, hidden]``, the tokens of every expert from its place on.
        weights1: ``[experts, 2, intermediate, hidden]``, gate then up.
        weights2: ``[experts, hidden, intermediate]``.
        sources: ``[pool rows]`` of :data:`ROW_SOURCE`: the rank whose token a row is, and its slot there.
        destinations: of each rank the base of its slots, rows of ``hidden``; in any memory that the GPU can
            store to.
        signals: of each rank the address of a ``uint32`` of this sender, to which a launch writes how many
            have ended, behind its rows; empty for launches that signal nothing.
        dispatch: what fills the pool; None where it is full.
    """

    pool: int
    weights1: int
    weights2: int
    sources: int
    destinations: tuple[int, ...]
    signals: tuple[int, ...] = ()
    dispatch: Dispatch | None = None

    def check(self, shape: MoeShape) -> None:
        """Refuse addresses that do not fit.

        Raises:
            UsageError: one is missing or misaligned, or there is not one destination a rank.
        """
        per_rank = {"destinations": self.destinations}
        per_rank |= {"signals": self.signals} if self.signals else {}
        if self.dispatch is not None:
            per_rank |= {"origins": self.dispatch.origins, "ready words": self.dispatch.ready}
        for name, addresses in per_rank.items():
            if len(addresses) != shape.ranks:
                raise UsageError(f"{len(addresses)} {name} for {shape.ranks} ranks", "give one a rank")
        named = {
            "pool": self.pool,
            "weights1": self.weights1,
            "weights2": self.weights2,
            "sources": self.sources,
        }
        named |= {f"destination of rank {rank}": one for rank, one in enumerate(self.destinations)}
        for name, address in named.items():
            if address <= 0 or address % _ALIGNMENT:
                raise UsageError(
                    f"{name} is at {address:#x}", f"give device addresses, aligned to {_ALIGNMENT} bytes"
                )


def moe_arguments(
    shape: MoeShape, config: MegaMoeConfig, tensors: MoeTensors, activations: int
) -> NDArray[np.void]:
    """One row of :data:`MOE_ARGUMENTS` without the kernel's own memory, for launches that record nothing.

    Args:
        activations: address of ``[pool rows, intermediate]`` bf16, for what Linear-1 makes.

    Raises:
        UsageError: the tensors do not fit the shape.
        DeviceError: the driver refuses to describe a tensor.
    """
    tensors.check(shape)
    arguments = np.zeros(1, MOE_ARGUMENTS)
    row = arguments[0]
    pool_rows = shape.pool_rows(config.block_m)
    row["tokens"] = _rows_map(tensors.pool, pool_rows, shape.hidden, config.block_m)
    row["activations"] = _rows_map(activations, pool_rows, shape.intermediate, config.block_m)
    row["swiglu"] = encode_map(
        activations,
        sizes=(shape.intermediate, pool_rows, 1, 1, 1),
        stride_bytes=(shape.intermediate * _BF16, *[pool_rows * shape.intermediate * _BF16] * 3),
        box=(_CHUNK, _PART_ROWS, 1, 1, 1),
    )
    expert_bytes = shape.intermediate * shape.hidden * _BF16
    row["weights1"] = encode_map(
        tensors.weights1,
        sizes=(shape.hidden, shape.intermediate, 2, shape.experts),
        stride_bytes=(shape.hidden * _BF16, expert_bytes, 2 * expert_bytes),
        box=(_CHUNK, config.block_n // 2, 2, 1),
    )
    row["weights2"] = encode_map(
        tensors.weights2,
        sizes=(shape.intermediate, shape.hidden, 1, shape.experts),
        stride_bytes=(shape.intermediate * _BF16, expert_bytes, expert_bytes),
        box=(_CHUNK, config.block_n, 1, 1),
    )
    row["destination"][: shape.ranks] = tensors.destinations
    row["sources"], row["pool"] = tensors.sources, tensors.pool
    if tensors.signals:
        row["signal"][: shape.ranks] = tensors.signals
    if tensors.dispatch is not None:
        dispatch = tensors.dispatch
        row["origin"][: shape.ranks], row["ready"][: shape.ranks] = dispatch.origins, dispatch.ready
        row["pulls"], row["pull_rows"] = dispatch.pulls, dispatch.pull_rows
        row["pull_count"] = dispatch.pull_count
    row["hidden"], row["intermediate"] = shape.hidden, shape.intermediate
    row["rank"] = shape.rank
    row["withheld_row"] = NO_ROW
    return arguments


def _rows_map(address: int, rows: int, columns: int, box_rows: int) -> NDArray[np.uint8]:
    matrix_bytes = rows * columns * _BF16
    return encode_map(
        address,
        sizes=(columns, rows, 1, 1),
        stride_bytes=(columns * _BF16, matrix_bytes, matrix_bytes),
        box=(_CHUNK, box_rows, 1, 1),
    )
