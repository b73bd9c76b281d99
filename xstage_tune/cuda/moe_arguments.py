"""The argument block of a MoE launch, as ``kernels/megamoe`` reads it, and its tensor maps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
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
LAUNCH_STATE = np.dtype([("ticket", "<u4"), ("finished", "<u4"), ("epoch", "<u4"), ("combined", "<u4")])
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
_TABLES = ("destination", "signal", "origin", "origin_scales", "ready")
_POINTERS = (
    "pulls", "pull_rows", "pool", "token_scales", "activation_scales", "weight_scales1", "weight_scales2",
    "arrivals", "sources", "counters", "state", "fault", "lanes", "spans", "counted_pulls",
    "timeout_ns",
)  # fmt: skip
_NUMBERS = (
    "hidden", "intermediate", "rank", "pace", "span_capacity", "pull_count", "pool_rows", "withheld_row",
)  # fmt: skip
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
_CHUNK_BYTES = 128


@dataclass(frozen=True, slots=True)
class Dispatch:
    """From where a launch pulls the tokens that were routed to it.

    The n-th launch of a kernel reads a rank's tokens when that rank's word is n or more, and has read them
    when its signals are n. It reads the tables anew, so they may change between launches of as many pulls and
    of as many rows an expert.

    Args:
        origins: of each rank the address of its tokens, ``[its tokens, hidden]``.
        ready: of each rank the address of a ``uint32`` that says for how many launches its tokens were there.
            One thread of every CTA looks at it over and over: it belongs into this GPU's memory.
        pulls: ``[pulls]`` of :data:`PULL`; see :class:`~.megamoe.dispatch.RankTables`.
        pull_rows: ``[rows]`` of ``uint32``, rows of the pool.
        pull_count: how many pulls there are.
        scales: in w8a8 of each rank the address of its tokens' scales, ``[its tokens, token_scales]`` of
            :class:`~xstage_tune.cuda.moe_shape.MoeShape`.
    """

    origins: tuple[int, ...]
    ready: tuple[int, ...]
    pulls: int
    pull_rows: int
    pull_count: int
    scales: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MoeScales:
    """Addresses of the fp32 scales of e4m3 operands, contiguous. A block is of 128, the last may be shorter.

    Args:
        tokens: ``[blocks of hidden, pool rows]``; with dispatch the launch fills it.
        weights1: ``[experts, 2, blocks of intermediate, blocks of hidden]``.
        weights2: ``[experts, blocks of hidden, blocks of intermediate]``.
    """

    tokens: int
    weights1: int
    weights2: int


@dataclass(frozen=True, slots=True)
class MoeTensors:
    """Addresses of what a launch reads and writes, contiguous, aligned to 16 bytes.

    Operands are bf16 or e4m3, by the shape's precision; what is stored is bf16.

    Args:
        pool: ``[pool rows, hidden]``, the tokens of every expert from its place on.
        weights1: ``[experts, 2, intermediate, hidden]``, gate then up.
        weights2: ``[experts, hidden, intermediate]``.
        sources: ``[pool rows]`` of :data:`ROW_SOURCE`: the rank whose token a row is, and its slot there.
        destinations: of each rank the base of its slots, rows of ``hidden``; in any memory that the GPU can
            store to.
        signals: of each rank the address of a ``uint32`` of this sender, to which a launch writes how many
            have ended, behind its rows; empty for launches that signal nothing. The rank's reduction looks at
            it over and over: it belongs into that rank's GPU.
        dispatch: what fills the pool; None where it is full.
        scales: of the operands in w8a8.
    """

    pool: int
    weights1: int
    weights2: int
    sources: int
    destinations: tuple[int, ...]
    signals: tuple[int, ...] = ()
    dispatch: Dispatch | None = None
    scales: MoeScales | None = None

    def check(self, shape: MoeShape) -> None:
        """Refuse addresses that do not fit.

        Raises:
            UsageError: one is missing or misaligned, or there is not one destination a rank.
        """
        scaled = shape.precision == "w8a8"
        if (self.scales is not None) != scaled:
            raise UsageError(
                f"operands of {shape.precision} have {'' if scaled else 'no '}scales",
                "give them with w8a8, and with no other precision",
            )
        per_rank = {"destinations": self.destinations}
        per_rank |= {"signals": self.signals} if self.signals else {}
        if self.dispatch is not None:
            per_rank |= {"origins": self.dispatch.origins, "ready words": self.dispatch.ready}
            per_rank |= {"origins of scales": self.dispatch.scales} if scaled else {}
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
        if self.scales is not None:
            named |= {f"scales of {name}": one for name, one in asdict(self.scales).items()}
        for name, address in named.items():
            if address <= 0 or address % _ALIGNMENT:
                raise UsageError(
                    f"{name} is at {address:#x}", f"give device addresses, aligned to {_ALIGNMENT} bytes"
                )


def moe_arguments(
    shape: MoeShape, config: MegaMoeConfig, tensors: MoeTensors, activations: int, activation_scales: int = 0
) -> NDArray[np.void]:
    """One row of :data:`MOE_ARGUMENTS` without the kernel's own memory, for launches that record nothing.

    Args:
        activations: address of ``[pool rows, intermediate]``, for what Linear-1 makes.
        activation_scales: of ``[blocks of intermediate, pool rows]``, in w8a8.

    Raises:
        UsageError: the tensors do not fit the shape.
        DeviceError: the driver refuses to describe a tensor.
    """
    tensors.check(shape)
    arguments = np.zeros(1, MOE_ARGUMENTS)
    row = arguments[0]
    pool_rows = shape.pool_rows(config.block_m)
    each = shape.element_bytes
    chunk = _CHUNK_BYTES // each
    row["tokens"] = _rows_map(tensors.pool, pool_rows, shape.hidden, config.block_m, each)
    row["activations"] = _rows_map(activations, pool_rows, shape.intermediate, config.block_m, each)
    row["swiglu"] = encode_map(
        activations,
        sizes=(shape.intermediate, pool_rows, 1, 1, 1),
        stride_bytes=(shape.intermediate * each, *[pool_rows * shape.intermediate * each] * 3),
        box=(chunk, _PART_ROWS, 1, 1, 1),
        element_bytes=each,
    )
    expert_bytes = shape.intermediate * shape.hidden * each
    row["weights1"] = encode_map(
        tensors.weights1,
        sizes=(shape.hidden, shape.intermediate, 2, shape.experts),
        stride_bytes=(shape.hidden * each, expert_bytes, 2 * expert_bytes),
        box=(chunk, config.block_n // 2, *((1, 1) if tensors.scales is not None else (2, 1))),
        element_bytes=each,
    )
    row["weights2"] = encode_map(
        tensors.weights2,
        sizes=(shape.intermediate, shape.hidden, 1, shape.experts),
        stride_bytes=(shape.intermediate * each, expert_bytes, expert_bytes),
        box=(chunk, config.block_n // (2 if tensors.scales is not None else 1), 1, 1),
        element_bytes=each,
    )
    row["pool_rows"] = pool_rows
    if tensors.scales is not None:
        row["token_scales"], row["activation_scales"] = tensors.scales.tokens, activation_scales
        row["weight_scales1"], row["weight_scales2"] = tensors.scales.weights1, tensors.scales.weights2
    row["destination"][: shape.ranks] = tensors.destinations
    row["sources"], row["pool"] = tensors.sources, tensors.pool
    if tensors.signals:
        row["signal"][: shape.ranks] = tensors.signals
    if tensors.dispatch is not None:
        dispatch = tensors.dispatch
        row["origin"][: shape.ranks], row["ready"][: shape.ranks] = dispatch.origins, dispatch.ready
        row["pulls"], row["pull_rows"] = dispatch.pulls, dispatch.pull_rows
        row["pull_count"] = dispatch.pull_count
        if dispatch.scales:
            row["origin_scales"][: shape.ranks] = dispatch.scales
    row["hidden"], row["intermediate"] = shape.hidden, shape.intermediate
    row["rank"] = shape.rank
    row["withheld_row"] = NO_ROW
    return arguments


def _rows_map(address: int, rows: int, columns: int, box_rows: int, element_bytes: int) -> NDArray[np.uint8]:
    matrix_bytes = rows * columns * element_bytes
    return encode_map(
        address,
        sizes=(columns, rows, 1, 1),
        stride_bytes=(columns * element_bytes, matrix_bytes, matrix_bytes),
        box=(_CHUNK_BYTES // element_bytes, box_rows, 1, 1),
        element_bytes=element_bytes,
    )
