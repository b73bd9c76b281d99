"""A launch over ranks whose routing is found on the GPU: what the ranks publish, and each launch's tables."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from cuda.core import Device, Stream
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError
from xstage_tune.cuda.driver import launch
from xstage_tune.cuda.fused_loading import compile_fused, load_kernels
from xstage_tune.cuda.memory import GpuMemory
from xstage_tune.cuda.moe_arguments import PULL, ROW_SOURCE
from xstage_tune.cuda.moe_shape import MAX_RANKS, MoeShape
from xstage_tune.cuda.variants import KernelVariant
from xstage_tune.families.megamoe.workload import Precision

ROUTING_SOURCE = "megamoe/routing.cu"
PUBLISH, COUNT, PLACE, LIST, SETTLE = "publish_tokens", "count_rows", "place_rows", "list_pulls", "settle"
_PER_RANK = ("told_choices", "told_counts", "announcements")
_NUMBERS = (
    "count", "most_tokens", "top_k", "hidden", "experts", "all_experts", "rank", "ranks", "block_m",
    "pool_rows", "choice_bytes", "padding",
)  # fmt: skip
_INPUTS = (
    "tokens", "token_scales", "choices", "published", "published_scales", "all_choices", "all_counts",
)  # fmt: skip
_OWN = (
    "words", "state", "fault", "record", "finished", "counts", "firsts", "tokens_per_expert", "first_row",
    "pull_count", "sources", "row_of", "pulls", "pull_rows", "output", "timeout_ns",
)  # fmt: skip
#: The struct of ``kernels/megamoe/routing.cu``.
ROUTING_ARGUMENTS = np.dtype(
    [
        *((name, "<u8") for name in _INPUTS),
        *((name, "<u8", (MAX_RANKS,)) for name in _PER_RANK),
        *((name, "<u8") for name in _OWN),
        *((name, "<u4") for name in _NUMBERS),
    ]
)
_ROUTING_THREADS, _PUBLISH_THREADS = 512, 256
_MOST_ROUTING_CTAS = 128
_PUBLISH_CTAS_PER_SM = 4
#: A CTA that publishes has at least so many bytes.
_CTA_BYTES = 16 << 10
_WORD_BYTES, _SCALE_BYTES, _BF16_BYTES = 4, 4, 2
_GRANULE_BYTES = 256


def routing_variant(precision: Precision) -> KernelVariant:
    """The kernels of a precision."""
    names = (PUBLISH, COUNT, PLACE, LIST, SETTLE)
    return KernelVariant(ROUTING_SOURCE, names, {"FORMAT": int(precision == "w8a8")})


@dataclass(frozen=True, slots=True)
class RoutedShape:
    """A layer over ranks, as large as its calls may be.

    Args:
        experts: of all ranks.
        most_tokens: of one rank in a call.
        most_rows: that are routed to one rank; None for as many as there can be.

    Raises:
        UsageError: a size is out of range.
    """

    hidden: int
    intermediate: int
    experts: int
    top_k: int
    ranks: int
    rank: int
    most_tokens: int
    precision: Precision
    most_rows: int | None = None

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.experts < 1 or self.experts % self.ranks:
            raise UsageError(f"{self.experts} experts do not divide among {self.ranks} ranks")
        if not 1 <= self.top_k <= self.experts:
            raise UsageError(f"top_k = {self.top_k} of {self.experts} experts", "give 1 to all of them")
        if self.most_tokens < 1:
            raise UsageError(f"max_tokens = {self.most_tokens}", "give the most tokens of a call")

    @property
    def local_experts(self) -> int:
        """On one rank."""
        return self.experts // self.ranks

    def moe(self, block_m: int) -> MoeShape:
        """What the kernel is made for: a pool that holds every routing that fits.

        All of it stands under the first expert; how the rows are spread is found launch by launch.
        """
        most = self.ranks * self.most_tokens * min(self.top_k, self.local_experts)
        rows = most if self.most_rows is None else min(most, self.most_rows)
        padded = block_m * -(-rows // block_m) + self.local_experts * block_m
        tokens = (padded, *[0] * (self.local_experts - 1))
        return MoeShape(
            self.hidden, self.intermediate, tokens, self.ranks, self.rank, precision=self.precision
        )


class PublishedLayout(NamedTuple):
    """Where in a rank's memory, which all ranks address, what lies; offsets in bytes.

    Args:
        tokens: ``[most tokens, hidden]`` of the layer's format.
        scales: of tokens, in w8a8.
        choices: ``[ranks, most tokens, top_k]`` of ``uint32``, which each rank stores here.
        token_counts: ``uint32[ranks]``.
        ready: ``uint32[ranks]``, for how many launches each rank's tokens are there.
        combined: ``[most tokens, top_k, hidden]`` bf16.
        words: ``uint32[ranks]``, how many launches each sender has ended.
        nbytes: of all of it.
    """

    tokens: int
    scales: int
    choices: int
    token_counts: int
    ready: int
    combined: int
    words: int
    nbytes: int


def published_layout(shape: RoutedShape) -> PublishedLayout:
    """The same on all ranks."""
    moe = shape.moe(1)
    words = MAX_RANKS * _WORD_BYTES
    sizes = (
        shape.most_tokens * moe.token_bytes,
        shape.most_tokens * moe.token_scales * _SCALE_BYTES,
        shape.ranks * choice_bytes(shape),
        words,
        words,
        shape.most_tokens * shape.top_k * moe.row_bytes,
        words,
    )
    ends = np.cumsum([_GRANULE_BYTES * -(-max(1, size) // _GRANULE_BYTES) for size in sizes]).tolist()
    return PublishedLayout(0, *ends)


def choice_bytes(shape: RoutedShape) -> int:
    """Of one rank's choices."""
    return shape.most_tokens * shape.top_k * _WORD_BYTES


class Routing:
    """The kernels around a launch, with the memory that is this rank's own.

    Args:
        device: this rank's GPU, whose context is current.
        block_m: of the tiles.
        regions: of each rank the address of its :class:`PublishedLayout`.
        state, fault, record: of the launches.
        most_ctas: where several ranks share a GPU, of each kernel.

    Raises:
        DeviceError: there is no compiler, or too little memory.
    """

    def __init__(
        self,
        device: Device,
        shape: RoutedShape,
        block_m: int,
        regions: tuple[int, ...],
        *,
        state: int,
        fault: int,
        record: int,
        most_ctas: int | None = None,
    ) -> None:
        self._kernels = load_kernels(device, compile_fused(routing_variant(shape.precision)))
        self._most_ctas = most_ctas or _PUBLISH_CTAS_PER_SM * int(device.properties.multiprocessor_count)
        self._shape, moe = shape, shape.moe(block_m)
        layout, pool_rows = published_layout(shape), moe.pool_rows(block_m)
        most = shape.ranks * shape.most_tokens
        sizes = {
            "finished": _WORD_BYTES,
            "counts": _WORD_BYTES * shape.local_experts,
            "firsts": _WORD_BYTES * shape.local_experts,
            "tokens_per_expert": _WORD_BYTES * shape.local_experts,
            "first_row": _WORD_BYTES * (shape.local_experts + 1),
            "pull_count": _WORD_BYTES,
            "sources": ROW_SOURCE.itemsize * pool_rows,
            "row_of": _WORD_BYTES * most * shape.top_k,
            "pulls": PULL.itemsize * most,
            "pull_rows": _WORD_BYTES * most * shape.top_k,
        }
        self._arguments: NDArray[np.void] = np.zeros(1, ROUTING_ARGUMENTS)
        row = self._arguments[0]
        with ExitStack() as opened:
            for name, nbytes in sizes.items():
                memory = GpuMemory.zeroed(device, max(16, nbytes))
                opened.callback(memory.close)
                row[name] = memory.address
            self._opened = opened.pop_all()
        own = regions[shape.rank]
        row["published"], row["published_scales"] = own + layout.tokens, own + layout.scales
        row["all_choices"], row["all_counts"] = own + layout.choices, own + layout.token_counts
        row["words"] = own + layout.ready
        for rank, region in enumerate(regions):
            row["told_choices"][rank] = region + layout.choices + shape.rank * choice_bytes(shape)
            row["told_counts"][rank] = region + layout.token_counts + _WORD_BYTES * shape.rank
            row["announcements"][rank] = region + layout.ready + _WORD_BYTES * shape.rank
        row["state"], row["fault"], row["record"] = state, fault, record
        row["most_tokens"], row["top_k"], row["hidden"] = shape.most_tokens, shape.top_k, shape.hidden
        row["experts"], row["all_experts"] = shape.local_experts, shape.experts
        row["rank"], row["ranks"], row["block_m"] = shape.rank, shape.ranks, block_m
        row["pool_rows"] = pool_rows

    def address(self, name: str) -> int:
        """Of one of the tables that a launch reads."""
        return int(self._arguments[0][name])

    def begin(
        self,
        stream: Stream,
        *,
        tokens: int,
        token_scales: int,
        choices: int,
        bytes_of_choice: int,
        output: int,
        count: int,
        timeout_ns: int,
    ) -> None:
        """Queue what comes before a launch. Allocates and waits for nothing on the host.

        Args:
            tokens: address of ``[count, hidden]`` bf16, or e4m3 with ``token_scales``, which else are 0.
            choices: of ``[count, top_k]`` whole numbers of ``bytes_of_choice`` each.
            output: of ``[count, hidden]`` bf16, where the reduction puts the result.
        """
        row = self._arguments[0]
        row["tokens"], row["token_scales"], row["choices"], row["output"] = (
            tokens, token_scales, choices, output
        )  # fmt: skip
        row["choice_bytes"], row["count"], row["timeout_ns"] = bytes_of_choice, count, timeout_ns
        published = count * self._shape.hidden * _BF16_BYTES
        self._launch(PUBLISH, stream, -(-published // _CTA_BYTES), _PUBLISH_THREADS)
        experts = min(self._shape.local_experts, _MOST_ROUTING_CTAS)
        self._launch(COUNT, stream, experts, _ROUTING_THREADS)
        self._launch(PLACE, stream, experts, _ROUTING_THREADS)
        most = self._shape.ranks * self._shape.most_tokens
        self._launch(LIST, stream, min(_MOST_ROUTING_CTAS, -(-most // _PUBLISH_THREADS)), _PUBLISH_THREADS)

    def end(self, stream: Stream) -> None:
        """Queue what comes behind the reduction of the launch that was begun last."""
        self._launch(SETTLE, stream, 1, _PUBLISH_THREADS)

    def close(self) -> None:
        """Free the memory; safe to call twice."""
        self._opened.close()

    def _launch(self, name: str, stream: Stream, ctas: int, threads: int) -> None:
        launch(
            self._kernels[name],
            stream,
            grid=(max(1, min(ctas, self._most_ctas)), 1),
            threads=threads,
            shared_bytes=0,
            arguments=self._arguments,
            cooperative=False,
        )
