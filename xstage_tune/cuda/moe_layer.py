"""A whole fused MoE layer over ranks, launch after launch: publish, route, the kernel, reduce."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from dataclasses import dataclass

from cuda.core import Device, Stream

from xstage_tune.base.errors import DeviceError
from xstage_tune.cuda.memory import GpuMemory, PinnedMemory
from xstage_tune.cuda.moe_arguments import MOE_FAULT, Dispatch, MoeScales, MoeTensors
from xstage_tune.cuda.moe_kernel import MegaMoe, PreparedMoe, fault_words
from xstage_tune.cuda.moe_reduce import ReduceCombine
from xstage_tune.cuda.moe_routing import RoutedShape, Routing, published_layout
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.model.checks import NS_PER_S

_WORD_BYTES = 4
_SCALE_BYTES = 4
#: Sets of weights whose arguments are kept: those of a model's layers.
_MOST_WEIGHTS = 1024


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Addresses of this rank's experts' weights; see :class:`~xstage_tune.cuda.moe_arguments.MoeTensors`.

    Args:
        scales1, scales2: in w8a8; else 0.
    """

    weights1: int
    weights2: int
    scales1: int = 0
    scales2: int = 0


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """Addresses of what a call reads and writes.

    Args:
        tokens: ``[count, hidden]`` bf16, or e4m3 with ``token_scales`` of ``[count, blocks of hidden]``.
        choices: ``[count, top_k]`` experts, whole numbers of ``choice_bytes``.
        weights: ``[count, top_k]`` of the router, fp32.
        output: ``[count, hidden]`` bf16.
    """

    tokens: int
    token_scales: int
    choices: int
    choice_bytes: int
    weights: int
    output: int
    count: int


class MoeLayer:
    """One rank's part of a layer whose routing is found on the GPU.

    Calls may be captured into CUDA graphs, replayed and mixed: what differs from call to call is on the GPU.
    Every rank makes equally many, in one order, each on one stream after the other.

    Args:
        device: this rank's GPU, whose context is current.
        regions: of each rank the address of its zeroed :class:`~.moe_routing.PublishedLayout`.
        most_ctas: where several ranks share a GPU, this one's part of its SMs; by default all.

    Raises:
        UsageError: a size is out of range, or the kernel has no such variant.
        DeviceError: the GPU is no Hopper, there is no compiler, or too little memory.
    """

    def __init__(
        self,
        device: Device,
        shape: RoutedShape,
        config: MegaMoeConfig,
        regions: tuple[int, ...],
        *,
        most_ctas: int | None = None,
    ) -> None:
        self.shape, self._block_m = shape, config.block_m
        self._regions, self._layout = regions, published_layout(shape)
        self._moe = moe = shape.moe(config.block_m)
        self._most_ctas = most_ctas
        self._prepared: dict[LayerWeights, PreparedMoe] = {}
        with ExitStack() as opened:
            self._record_memory = opened.enter_context(PinnedMemory(MOE_FAULT.itemsize))
            self._record_memory.bytes[:] = 0
            self._record = self._record_memory.bytes.view(MOE_FAULT)
            #: 0 until there is a fault. Written by the GPU, read without waiting for it.
            self.raised = ctypes.c_uint32.from_address(self._record_memory.address)
            self._kernel = MegaMoe(device, moe, config, dispatch=True, most_ctas=most_ctas)
            opened.callback(self._kernel.close)
            rows = moe.pool_rows(config.block_m)
            self._pool = _opened(opened, GpuMemory(device, rows * moe.token_bytes, device))
            scale_bytes = max(16, rows * moe.hidden_blocks * _SCALE_BYTES)
            self._pool_scales = _opened(opened, GpuMemory(device, scale_bytes, device))
            self._routing = Routing(
                device,
                shape,
                config.block_m,
                regions,
                state=self._kernel.state,
                fault=self._kernel.fault,
                record=self._record_memory.address,
                most_ctas=most_ctas,
            )
            opened.callback(self._routing.close)
            self._reduce = ReduceCombine(device, self._kernel)
            self._opened = opened.pop_all()

    def queue(self, weights: LayerWeights, inputs: LayerInputs, stream: Stream, timeout_s: float) -> None:
        """Queue a call: complete on the stream when ``inputs.output`` has the result."""
        timeout_ns = round(timeout_s * NS_PER_S)
        prepared = self._prepared.get(weights) or self._prepare(weights)
        prepared.arguments[0]["timeout_ns"] = timeout_ns
        self._routing.begin(
            stream,
            tokens=inputs.tokens,
            token_scales=inputs.token_scales,
            choices=inputs.choices,
            bytes_of_choice=inputs.choice_bytes,
            output=inputs.output,
            count=inputs.count,
            timeout_ns=timeout_ns,
        )
        self._kernel.launch(prepared, stream)
        own, layout = self._regions[self.shape.rank], self._layout
        arguments = self._reduce.prepare(
            own + layout.combined,
            inputs.weights,
            inputs.output,
            inputs.count,
            self.shape.top_k,
            own + layout.words,
        )
        arguments[0]["timeout_ns"] = timeout_ns
        self._reduce.launch(arguments, stream, ctas=self._most_ctas)
        self._routing.end(stream)

    def fault(self) -> DeviceError | None:
        """What stopped the layer, of the calls that are over; without waiting."""
        fault = self._record[0]
        if not fault["raised"]:
            return None
        return DeviceError(
            fault_words(fault),
            "results are NaNs from then on: close_group, and call on all ranks anew",
        )

    def close(self) -> None:
        """Free the memory, which nothing queued or captured may need any more; safe to call twice."""
        self._opened.close()

    def _prepare(self, weights: LayerWeights) -> PreparedMoe:
        layout, regions, rank = self._layout, self._regions, self.shape.rank
        own, scaled = regions[rank], self.shape.precision == "w8a8"
        prepared = self._kernel.prepare(
            MoeTensors(
                self._pool.address,
                weights.weights1,
                weights.weights2,
                self._routing.address("sources"),
                tuple(region + layout.combined for region in regions),
                signals=tuple(region + layout.words + _WORD_BYTES * rank for region in regions),
                dispatch=Dispatch(
                    tuple(region + layout.tokens for region in regions),
                    tuple(own + layout.ready + _WORD_BYTES * other for other in range(len(regions))),
                    self._routing.address("pulls"),
                    self._routing.address("pull_rows"),
                    0,
                    scales=tuple(region + layout.scales for region in regions) if scaled else (),
                ),
                scales=MoeScales(self._pool_scales.address, weights.scales1, weights.scales2)
                if scaled
                else None,
            )
        )
        row = prepared.arguments[0]
        row["counted_pulls"] = self._routing.address("pull_count")
        row["scheduler"]["tokens_per_expert"] = self._routing.address("tokens_per_expert")
        row["scheduler"]["first_row"] = self._routing.address("first_row")
        if len(self._prepared) >= _MOST_WEIGHTS:
            self._prepared.pop(next(iter(self._prepared)))
        self._prepared[weights] = prepared
        return prepared


def _opened(opened: ExitStack, memory: GpuMemory) -> GpuMemory:
    opened.callback(memory.close)
    return memory
