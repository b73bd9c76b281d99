"""An attention, its All-to-All and their fusion on one GPU."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace

from cuda.core import Stream

from xstage_tune.base.bf16 import Bits
from xstage_tune.base.errors import UsageError
from xstage_tune.base.spans import SpanTable
from xstage_tune.cuda.attention_buffers import AttentionBuffers
from xstage_tune.cuda.attention_epochs import Exchange, Receipt
from xstage_tune.cuda.attention_kernel import AttentionA2A, PreparedLaunch
from xstage_tune.cuda.attention_shape import AttentionShape, Destinations
from xstage_tune.cuda.attention_variants import KERNEL, SHARED_BYTES_LIMIT, shared_bytes
from xstage_tune.cuda.gpu import Gpu
from xstage_tune.cuda.memory import GpuMemory
from xstage_tune.cuda.profiles import (
    LAUNCHES_TO_RECORD,
    LEAST_BYTES_PER_S,
    LEAST_FLOP_PER_S,
    REST_S,
    CudaProfiles,
    LaunchedKernel,
    PreparedCase,
)
from xstage_tune.cuda.serial_a2a import SERIAL, STORE_KERNEL, SerialA2A
from xstage_tune.cuda.sources import ATTENTION_SOURCE
from xstage_tune.families.attention_a2a.budget import finishing_warpgroups
from xstage_tune.families.attention_a2a.check import (
    check_attention,
    check_equal,
    random_inputs,
    sampled_tokens,
)
from xstage_tune.families.attention_a2a.spans import span_figures
from xstage_tune.families.attention_a2a.timing import (
    ATTENTIONS,
    RECORDING,
    STORE_LOCALLY,
    AttentionLaunch,
    AttentionOutcome,
    Implementation,
    ProfileCase,
)
from xstage_tune.families.profiled import MOST_SPANS, CheckFigures, sampled_ctas
from xstage_tune.launches.device import Outcome, Verification

#: What one attention kernel does.
_ATTENTIONS: tuple[Implementation, ...] = (*RECORDING, "fused-received", *RECORDING.values())
_RECEIPT_TIMEOUT_NS = 10_000_000_000
_RANK = 0
_WORD_BYTES = 4


class CudaAttentions(CudaProfiles):
    """Runs attentions for a :class:`~xstage_tune.cuda.device.CudaDevice`."""

    kinds = (ATTENTIONS,)
    sources = (ATTENTION_SOURCE, SERIAL.source)

    def prepare(self, gpu: Gpu, case: ProfileCase) -> PreparedAttention:
        """See :class:`~xstage_tune.cuda.profiles.CudaProfiles`."""
        return PreparedAttention(gpu, case)


@dataclass(frozen=True, slots=True)
class _Attention:
    """A kernel with what it is launched with."""

    kernel: AttentionA2A
    prepared: PreparedLaunch

    def queue(self, stream: Stream) -> None:
        self.kernel.launch(self.prepared, stream)


class PreparedAttention(PreparedCase[ProfileCase]):
    """See :class:`~xstage_tune.cuda.profiles.PreparedCase`."""

    def __init__(self, gpu: Gpu, case: ProfileCase) -> None:
        timeout_s = case.flops / LEAST_FLOP_PER_S + case.output_bytes / LEAST_BYTES_PER_S
        super().__init__(gpu, case, timeout_s)
        self._shape = AttentionShape(case.tokens, case.heads, case.head_dim, case.ranks, _RANK)
        self._expected: Bits | None = None
        with ExitStack() as opened:
            kernels = {one: self._kernel(opened, one) for one in _ATTENTIONS}
            self._serial = SerialA2A(gpu, self._shape)
            self._inputs = random_inputs(case.tokens, case.heads, case.head_dim, case.seed)
            self._buffers = AttentionBuffers(gpu, case, self._shape, self._inputs)
            opened.callback(self._buffers.close)
            self._exchange = Exchange(gpu.device)
            opened.callback(self._exchange.close)
            self._words = GpuMemory.zeroed(gpu.device, case.ranks * _WORD_BYTES)
            opened.callback(self._words.close)
            self._attentions = {
                one: _Attention(kernel, self._launch(kernel, one)) for one, kernel in kernels.items()
            }
            self._opened = opened.pop_all()

    def check(self, launch: AttentionLaunch) -> AttentionOutcome:
        """Run once on poisoned buffers and compare the output; ``attention`` first.

        Raises:
            DeviceError: the launch failed.
        """
        implementation = launch.implementation
        self._buffers.poison_ranks()
        if implementation == "attention":
            self._buffers.poison_output()

        def run() -> None:
            self._queue(implementation)
            self._wait(implementation, 1)

        _, (info,) = self._measure([self._kernel_of(implementation)], "check", run)
        self._require_finished()
        figures, verification = self._compare(implementation)
        return Outcome(launch, figures, info, verification)

    def record(self, launch: AttentionLaunch) -> AttentionOutcome:
        """Spans of an implementation of :data:`RECORDING`: of the last of some launches of its variant.

        Raises:
            DeviceError: the launch failed.
        """
        implementation = launch.implementation
        recording = RECORDING[implementation]

        def run() -> SpanTable:
            for _ in range(LAUNCHES_TO_RECORD):
                self._queue(recording)
            self._wait(recording, LAUNCHES_TO_RECORD)
            return self._attentions[recording].kernel.read_spans(self._gpu.stream)

        time.sleep(REST_S)
        table, (info,) = self._measure([self._kernel_of(recording)], "spans", run)
        figures = span_figures(table, self._case, remote=implementation == "fused")
        kept = sampled_ctas(table, finishing_warpgroups(self._case.config), MOST_SPANS)
        return Outcome(launch, figures, info, table=kept)

    def _free(self) -> None:
        self._opened.close()

    def _kernel(self, opened: ExitStack, implementation: Implementation) -> AttentionA2A:
        shape = self._shape
        if implementation in STORE_LOCALLY:
            shape = AttentionShape(shape.tokens, shape.heads, shape.head_dim)
        record_spans = implementation in RECORDING.values()
        kernel = AttentionA2A(self._gpu.device, shape, self._case.config, record_spans=record_spans)
        opened.callback(kernel.close)
        return kernel

    def _launch(self, kernel: AttentionA2A, implementation: Implementation) -> PreparedLaunch:
        """Of the kernel of one of :data:`_ATTENTIONS`, to where it stores."""
        buffers = self._buffers
        if implementation in STORE_LOCALLY:
            return kernel.prepare(*buffers.inputs, Destinations((buffers.output,)))
        if implementation != "fused-received":
            return kernel.prepare(*buffers.inputs, buffers.destinations)
        # The other ranks do not run: what this one signals is what it awaits of all of them.
        words = tuple(self._words.address + rank * _WORD_BYTES for rank in range(self._shape.ranks))
        received, output = buffers.receipt
        launch = kernel.prepare(
            *buffers.inputs,
            replace(buffers.destinations, signals=words),
            exchange=self._exchange,
            receipt=Receipt(words[0], received, self._shape.buffer_bytes(_RANK)),
        )
        launch.output.value = output
        launch.timeout_ns.value = _RECEIPT_TIMEOUT_NS
        return launch

    def _require_finished(self) -> None:
        if (fault := self._exchange.fault()) is not None:
            raise fault

    def _queue(self, implementation: Implementation) -> None:
        """Queue one launch of an implementation."""
        stream, buffers = self._gpu.stream, self._buffers
        if implementation in self._attentions:
            self._attentions[implementation].queue(stream)
            return
        if implementation != "all-to-all":
            self._attentions["attention"].queue(stream)
        if implementation in ("all-to-all", "serial-direct"):
            self._serial.store(buffers.output, buffers.destinations, stream)
        elif implementation == "serial-copy":
            self._serial.copy(buffers.output, buffers.destinations, stream)
        elif implementation == "serial-permute":
            self._serial.copy_and_permute(
                buffers.output, buffers.receivers, buffers.received, buffers.permuted, stream
            )

    def _compare(self, implementation: Implementation) -> tuple[CheckFigures, Verification]:
        """What the last launch left."""
        case = self._case
        if implementation == "attention":
            self._expected = self._buffers.read_output()
            tokens = sampled_tokens(case.tokens, case.ranks, case.seed)
            return check_attention(self._expected, self._inputs, tokens)
        if self._expected is None:
            raise UsageError(f"the attention is checked before '{implementation}', which has to equal it")
        found = self._buffers.read_ranks(received=implementation == "serial-permute")
        return check_equal(found, self._expected, case.rows_per_rank)

    def _kernel_of(self, implementation: Implementation) -> LaunchedKernel:
        config = self._case.config
        name = f"{implementation}[{config.label}]"
        producers = self._producers(implementation)
        if implementation == "all-to-all":
            return LaunchedKernel(name, self._serial.compiled, STORE_KERNEL, 0, producers)
        attention = self._attentions.get(implementation, self._attentions["attention"])
        recording = implementation in RECORDING.values()
        shared = SHARED_BYTES_LIMIT if recording else shared_bytes(config, self._case.head_dim)
        return LaunchedKernel(name, attention.kernel.compiled, KERNEL, shared, producers)

    def _producers(self, implementation: Implementation) -> int:
        """CTAs of an attention; SMs of what is more or other than one."""
        attention = self._attentions.get(implementation)
        return attention.kernel.ctas if attention else self._gpu.sm_count
