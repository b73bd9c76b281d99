"""The fused MoE layer on a GPU: compiled once, launched many times."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
from cuda.core import Device, Stream
from numpy.typing import NDArray

from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.base.spans import RECORD_DTYPE, SpanTable
from xstage_tune.cuda.compiler import CompiledKernel
from xstage_tune.cuda.driver import allow_shared_memory, launch
from xstage_tune.cuda.fused_loading import (
    SpanBuffers,
    compile_fused,
    load_kernels,
    require_clean,
    require_hopper,
)
from xstage_tune.cuda.memory import GpuMemory
from xstage_tune.cuda.moe_arguments import (
    LAUNCH_STATE,
    MOE_FAULT,
    NO_ROW,
    MoeTensors,
    moe_arguments,
)
from xstage_tune.cuda.moe_shape import MoeShape
from xstage_tune.cuda.moe_variants import KERNEL, THREADS, moe_variant, recording_bytes
from xstage_tune.families.megamoe import order as orders
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.launch import order_schedule
from xstage_tune.families.megamoe.scheduling import MoeScheduling
from xstage_tune.families.megamoe.spans import LANES
from xstage_tune.model.checks import NS_PER_S

#: Over ranks; within one a row comes within milliseconds.
TIMEOUT_S = 300.0
#: A whole mainloop: the slot is free when its next tile is to be staged. On the host path of an H200, with
#: 1/4 of Combine remote, an interleaved layer of 3,919 us takes 4,098 with half of one, and 4,582 storing at
#: once.
PACE = 1.0
_PACE_STEPS = 64
#: ``Wait`` of ``kernels/megamoe/arguments.cuh``; the rest is a wait for rows of Combine.
_LINEAR1, _ARRIVAL, _SOURCE, _CHOICE, _POOL = 1, 2, 3, 5, 6
_LEAST_BYTES = 16
#: Of a consumer: its wait for operands, its products, its wait for a slot.
_SPANS_PER_TILE = 3


@dataclass(frozen=True, slots=True)
class PreparedMoe:
    """The argument block of launches on the same tensors."""

    arguments: NDArray[np.void]


class MegaMoe:
    """One variant for one rank's routed rows on one GPU: compile once, prepare per set of tensors, launch.

    Args:
        device: the GPU; its primary context must be current in the calling thread.
        shape: what this rank computes.
        config: the variant and its schedule.
        tickets: CTAs take the tiles of one order one after the other; else each is dealt its own beforehand,
            as a skeleton's are.
        dispatch: launches pull the tokens that were routed here; else the pool has them.
        most_ctas: where several ranks share a GPU, this one's part of its SMs; by default all.
        pace: part of the next mainloop that a tile's stores are spread over; 0 for all at once.
        record_spans: build the variant that records, for every tile, the waits and the mainloop of both
            consumers, and the issue of Linear-2's stores.
        timeout_s: longest wait for a row's Linear-1.
        withheld_row: for a test of that: this row's Linear-1 is never announced.

    Raises:
        UsageError: the kernel has no such variant, or it spills.
        DeviceError: the GPU is older than Hopper or has another architecture, there is no compiler, or too
            little memory.
    """

    def __init__(
        self,
        device: Device,
        shape: MoeShape,
        config: MegaMoeConfig,
        *,
        tickets: bool = False,
        dispatch: bool = False,
        most_ctas: int | None = None,
        pace: float = PACE,
        record_spans: bool = False,
        timeout_s: float = TIMEOUT_S,
        withheld_row: int = NO_ROW,
    ) -> None:
        require_hopper(device, "MoE")
        self.shape, self.config = shape, config
        self._pace = round(pace * _PACE_STEPS)
        self._timeout_ns, self._withheld_row = round(timeout_s * NS_PER_S), withheld_row
        self._dispatch = dispatch
        variant = moe_variant(
            config, shape.precision, tickets=tickets, dispatch=dispatch, record_spans=record_spans
        )
        self.compiled = compile_fused(variant)
        require_usable(self.compiled, config)
        self._kernel = load_kernels(device, self.compiled)[KERNEL]
        self._shared_bytes = int(variant.defines["SHARED_BYTES"])
        allow_shared_memory(self._kernel, self._shared_bytes, device)
        sms = most_ctas or int(device.properties.multiprocessor_count)
        grid = shape.grid(config, sms)
        tiles = grid.rows * (grid.l1_tiles + grid.l2_tiles)
        #: CTAs of a launch: at most one an SM.
        self.ctas = max(1, min(sms, tiles))
        with ExitStack() as opened:
            self._state = _opened(opened, GpuMemory.zeroed(device, LAUNCH_STATE.itemsize))
            self._fault = _opened(opened, GpuMemory.zeroed(device, MOE_FAULT.itemsize))
            self._counters = _opened(opened, GpuMemory.zeroed(device, 4 * max(4, grid.rows)))
            self._arrivals = _opened(opened, GpuMemory.zeroed(device, 4 * max(4, grid.rows)))
            rows = shape.pool_rows(config.block_m)
            activation_bytes = shape.element_bytes * rows * shape.intermediate
            self._activations = _opened(opened, GpuMemory(device, activation_bytes, device))
            scale_bytes = max(_LEAST_BYTES, 4 * rows * shape.intermediate_blocks)
            self._activation_scales = _opened(opened, GpuMemory(device, scale_bytes, device))
            tables = scheduling(shape, config, self.ctas, tickets=tickets).tables()
            self._scheduler = tables.parameters
            stream = device.create_stream()
            for field, array in tables.arrays.items():
                memory = _opened(opened, GpuMemory(device, max(_LEAST_BYTES, array.nbytes), device))
                memory.write(array, stream)
                self._scheduler[field] = memory.address
            self._recording = None
            if record_spans:
                rounds = -(-tiles // self.ctas)
                staged = recording_bytes(config, shape.precision, dispatch=dispatch)
                fitting = staged // LANES // RECORD_DTYPE.itemsize
                # Tickets may give one CTA more tiles than another.
                capacity = min(fitting, 2 * _SPANS_PER_TILE * rounds)
                self._recording = SpanBuffers(device, self.ctas * LANES, capacity)
                opened.callback(self._recording.close)
            self._opened = opened.pop_all()

    def prepare(self, tensors: MoeTensors) -> PreparedMoe:
        """Arguments of launches on these tensors.

        Raises:
            UsageError: they do not fit the shape.
        """
        if (tensors.dispatch is not None) != self._dispatch:
            raise UsageError("this kernel was built with dispatch, or without: the tensors say otherwise")
        arguments = moe_arguments(
            self.shape, self.config, tensors, self._activations.address, self._activation_scales.address
        )
        row = arguments[0]
        row["scheduler"] = self._scheduler[0]
        row["counters"], row["state"] = self._counters.address, self._state.address
        row["fault"], row["arrivals"] = self._fault.address, self._arrivals.address
        row["pace"] = self._pace
        row["timeout_ns"], row["withheld_row"] = self._timeout_ns, self._withheld_row
        if self._recording is not None:
            row["lanes"], row["spans"] = self._recording.lanes.address, self._recording.spans.address
            row["span_capacity"] = self._recording.capacity
        return PreparedMoe(arguments)

    def launch(self, prepared: PreparedMoe, stream: Stream) -> None:
        """Queue one launch. Allocates and waits for nothing, so it may be captured into a CUDA graph."""
        launch(
            self._kernel,
            stream,
            grid=(self.ctas, 1),
            threads=THREADS,
            shared_bytes=self._shared_bytes,
            arguments=prepared.arguments,
            cooperative=True,
        )

    def require_finished(self, stream: Stream) -> None:
        """Wait for the stream, and refuse what a launch left whose wait ran out.

        Raises:
            DeviceError: says whose, for which row, and what was seen.
        """
        fault = np.zeros(1, MOE_FAULT)
        self._fault.read_into(fault, stream)
        if fault["raised"][0]:
            self._fault.fill_zero(stream)
            raise DeviceError(fault_words(fault[0]), "what this launch has stored is not whole; run it again")

    @property
    def state(self) -> int:
        """Address of what says how many launches have ended, for the reduction behind them."""
        return self._state.address

    @property
    def fault(self) -> int:
        """Address where the reduction says which wait of its own ran out."""
        return self._fault.address

    def read_spans(self, stream: Stream) -> SpanTable:
        """Spans of the last launch; waits for the stream. See :func:`~.megamoe.spans.moe_spans`.

        Raises:
            UsageError: this variant records no spans.
        """
        if self._recording is None:
            raise UsageError("this variant records no spans", "build it with record_spans")
        return self._recording.read(stream)

    def close(self) -> None:
        """Free the buffers; safe to call twice."""
        self._opened.close()


def fault_words(fault: np.void) -> str:
    """What ended a launch, in words."""
    waited = f"waited {fault['timeout_ns'] / NS_PER_S:g} s for"
    rank, row, expected, seen = (int(fault[name]) for name in ("rank", "row", "expected", "seen"))
    cta = f"(CTA {fault['cta']})"
    if fault["wait"] == _LINEAR1:
        return (
            f"rank {rank} {waited} row block {row}: {seen} of its {expected} Linear-1 tiles were stored {cta}"
        )
    if fault["wait"] == _ARRIVAL:
        return f"rank {rank} {waited} row block {row}: {seen} of its {expected} tokens had come {cta}"
    if fault["wait"] == _CHOICE:
        return f"rank {rank}, token {row}: expert {np.uint32(seen).astype(np.int32)} of {expected} is chosen"
    if fault["wait"] == _POOL:
        return f"{seen} rows, with tiles filled up, are routed to rank {rank}, whose pool holds {expected}"
    what = "tokens" if fault["wait"] == _SOURCE else "rows"
    return f"the {what} of rank {rank} did not come: {waited} launch {expected}, seen {seen} {cta}"


def scheduling(shape: MoeShape, config: MegaMoeConfig, ctas: int, *, tickets: bool) -> MoeScheduling:
    """What the scheduler on the device is given.

    With tickets the order is that of one instance. Its warm-up before alternation is that of all CTAs, each
    of which would have its own.
    """
    grid, schedule = shape.grid(config, ctas), order_schedule(config.schedule)
    if not tickets:
        return MoeScheduling(grid, schedule)
    if isinstance(schedule, orders.Alternating):
        schedule = orders.Alternating(ctas * orders.alternating_warmup(grid, schedule))
    return MoeScheduling(replace(grid, sms=1), schedule)


def _opened(opened: ExitStack, memory: GpuMemory) -> GpuMemory:
    opened.callback(memory.close)
    return memory


def require_usable(compiled: CompiledKernel, config: MegaMoeConfig) -> None:
    """See :func:`~xstage_tune.cuda.fused_loading.require_clean`."""
    require_clean(compiled, KERNEL, config.label, "choose a smaller tile")
