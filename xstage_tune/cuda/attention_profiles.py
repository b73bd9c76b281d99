"""The CUDA device of profiling: an attention, its All-to-All and their fusion on one GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TypeVar

from cuda.core import Stream

from xstage_tune.base.spans import SpanTable
from xstage_tune.cuda.attention_buffers import AttentionBuffers
from xstage_tune.cuda.attention_kernel import AttentionA2A, PreparedLaunch
from xstage_tune.cuda.attention_shape import AttentionShape, Destinations
from xstage_tune.cuda.attention_variants import KERNEL, SHARED_BYTES_LIMIT, shared_bytes
from xstage_tune.cuda.compiler import CompiledKernel
from xstage_tune.cuda.driver import synchronize
from xstage_tune.cuda.gpu import Gpu
from xstage_tune.cuda.graph_timing import GraphsInTurn, ReplayGraph, elapsed_ns
from xstage_tune.cuda.serial_a2a import SERIAL, STORE_KERNEL, SerialA2A
from xstage_tune.cuda.sources import ATTENTION_SOURCE, hash_sources, kernels_root, read_sources
from xstage_tune.families.attention_a2a.budget import finishing_warpgroups
from xstage_tune.families.attention_a2a.check import (
    Bits,
    check_attention,
    check_equal,
    random_inputs,
    sampled_tokens,
)
from xstage_tune.families.attention_a2a.spans import MOST_SPANS, sampled_ctas, span_figures
from xstage_tune.families.attention_a2a.timing import (
    NO_SPANS,
    NOT_VERIFIED,
    RECORDING,
    STORE_LOCALLY,
    CheckFigures,
    Figures,
    Implementation,
    ProfileCase,
    ProfileLaunch,
    ReplayFigures,
)
from xstage_tune.launches.device import DeviceDescription, LaunchInfo, Verification

Outcome = TypeVar("Outcome")

#: What one attention kernel does, each with its own build.
_ATTENTIONS: tuple[Implementation, ...] = (*RECORDING, *RECORDING.values())
#: A launch computes at no less than this rate, and stores no slower; the rest is for starting and queueing.
_LEAST_FLOP_PER_S = 20e12
_LEAST_BYTES_PER_S = 1e9
_START_TIMEOUT_S = 10.0
#: The launch whose spans are read is the last of so many back to back, as in a replay.
_LAUNCHES_TO_RECORD = 3
#: Before that the GPU rests, until its clocks owe nothing to the replays, which would be in the spans of the
#: first recording and not of the second.
_REST_S = 0.5
_RANK = 0


class CudaProfiles:
    """One GPU of this process, as a :class:`~xstage_tune.families.attention_a2a.timing.ProfileDevice`."""

    def __init__(self, gpu: Gpu) -> None:
        sources = {
            name: content
            for source in (ATTENTION_SOURCE, SERIAL.source)
            for name, content in read_sources(source, kernels_root()).items()
        }
        #: The GPU and the kernels: times of others are not comparable.
        self.identity = f"{gpu.device.name}, kernels {hash_sources(dict(sorted(sources.items())))[:12]}"
        self._gpu = gpu

    def describe(self) -> DeviceDescription:
        """Identity of the GPU, its driver and its links."""
        return self._gpu.describe()

    def label_launches(self, run_id: str) -> None:
        """See :class:`~xstage_tune.families.attention_a2a.timing.ProfileDevice`."""
        self._gpu.label_launches(run_id)

    def prepare(self, case: ProfileCase) -> CudaPreparedProfile:
        """See :class:`~xstage_tune.families.attention_a2a.timing.ProfileDevice`."""
        return CudaPreparedProfile(self._gpu, case)

    def close(self) -> None:
        """Free what the GPU holds; safe to call twice."""
        self._gpu.close()


@dataclass(frozen=True, slots=True)
class _Attention:
    """A kernel with what it is launched with."""

    kernel: AttentionA2A
    prepared: PreparedLaunch

    def queue(self, stream: Stream) -> None:
        self.kernel.launch(self.prepared, stream)


class CudaPreparedProfile:
    """A case on a GPU; see :class:`~xstage_tune.families.attention_a2a.timing.PreparedProfile`."""

    def __init__(self, gpu: Gpu, case: ProfileCase) -> None:
        self._gpu, self._case = gpu, case
        self._shape = AttentionShape(case.tokens, case.heads, case.head_dim, case.ranks, _RANK)
        self._launch_timeout_s = case.flops / _LEAST_FLOP_PER_S + case.output_bytes / _LEAST_BYTES_PER_S
        self._graphs: dict[Implementation, ReplayGraph] = {}
        self._expected: Bits | None = None
        with ExitStack() as opened:
            kernels = {one: self._kernel(opened, one) for one in _ATTENTIONS}
            self._serial = SerialA2A(gpu, self._shape)
            self._inputs = random_inputs(case.tokens, case.heads, case.head_dim, case.seed)
            self._buffers = AttentionBuffers(gpu, case, self._shape, self._inputs)
            opened.callback(self._buffers.close)
            self._attentions = {
                one: _Attention(kernel, kernel.prepare(*self._buffers.inputs, self._destinations(one)))
                for one, kernel in kernels.items()
            }
            self._opened = opened.pop_all()

    def check(self, implementation: Implementation) -> ProfileLaunch:
        """See :class:`~xstage_tune.families.attention_a2a.timing.PreparedProfile`."""
        self._buffers.poison_ranks()
        if implementation == "attention":
            self._buffers.poison_output()

        def run() -> None:
            self._queue(implementation)
            self._wait(implementation, 1)

        _, (info,) = self._measure([implementation], "check", run)
        figures, verification = self._compare(implementation)
        return self._launch(implementation, figures, info, verification=verification)

    def replay(self, in_turn: Sequence[Implementation]) -> Sequence[ProfileLaunch]:
        """See :class:`~xstage_tune.families.attention_a2a.timing.PreparedProfile`."""
        graphs = [self._graph(one) for one in in_turn]
        replays = GraphsInTurn(self._gpu.stream, graphs)
        timeout_s = self._timeout_s(replays.turns * sum(graph.launches for graph in graphs))
        times_ns, infos = self._measure(in_turn, "replay", lambda: replays.times_ns(timeout_s))
        figures = map(ReplayFigures, replays.launches(), times_ns)
        return [self._launch(*launch) for launch in zip(in_turn, figures, infos, strict=True)]

    def record(self, implementation: Implementation) -> ProfileLaunch:
        """See :class:`~xstage_tune.families.attention_a2a.timing.PreparedProfile`."""
        recording = RECORDING[implementation]

        def run() -> SpanTable:
            for _ in range(_LAUNCHES_TO_RECORD):
                self._queue(recording)
            self._wait(recording, _LAUNCHES_TO_RECORD)
            return self._attentions[recording].kernel.read_spans(self._gpu.stream)

        time.sleep(_REST_S)
        table, (info,) = self._measure([recording], "spans", run)
        figures = span_figures(table, self._case, remote=implementation == "fused")
        kept = sampled_ctas(table, finishing_warpgroups(self._case.config), MOST_SPANS)
        return self._launch(implementation, figures, info, table=kept)

    def close(self) -> None:
        """Free kernels and memory; safe to call twice."""
        for graph in self._graphs.values():
            graph.close()
        self._graphs.clear()
        self._opened.close()

    def _kernel(self, opened: ExitStack, implementation: Implementation) -> AttentionA2A:
        shape = self._shape
        if implementation in STORE_LOCALLY:
            shape = AttentionShape(shape.tokens, shape.heads, shape.head_dim)
        record_spans = implementation in RECORDING.values()
        kernel = AttentionA2A(self._gpu.device, shape, self._case.config, record_spans=record_spans)
        opened.callback(kernel.close)
        return kernel

    def _destinations(self, implementation: Implementation) -> Destinations:
        """Where the kernel of one of :data:`_ATTENTIONS` stores."""
        if implementation in STORE_LOCALLY:
            return Destinations((self._buffers.output,))
        return self._buffers.destinations

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
        assert self._expected is not None, "the attention is checked first"
        found = self._buffers.read_ranks(received=implementation == "serial-permute")
        return check_equal(found, self._expected, case.rows_per_rank)

    def _graph(self, implementation: Implementation) -> ReplayGraph:
        if implementation not in self._graphs:

            def queue() -> None:
                self._queue(implementation)

            one_ns = elapsed_ns(self._gpu.stream, queue, self._timeout_s(2), implementation, before=queue)
            self._graphs[implementation] = ReplayGraph(self._gpu.stream, queue, one_ns)
        return self._graphs[implementation]

    def _measure(
        self, in_turn: Sequence[Implementation], what: str, run: Callable[[], Outcome]
    ) -> tuple[Outcome, list[LaunchInfo]]:
        """Run what launches these one after another, as one measurement; what each of them was."""
        kernels = [self._kernel_of(one) for one in in_turn]
        name, compiled, entry, _ = kernels[0]
        outcome, info = self._gpu.measure(
            run, kernel=name, compiled=compiled, entry=entry, category=what, launches=len(in_turn)
        )
        return outcome, [
            replace(
                info,
                kernel=name,
                kernel_sha256=compiled.sha256,
                registers=compiled.entries[entry].registers,
                spill_bytes=compiled.entries[entry].spill_bytes,
                shared_bytes=shared,
            )
            for name, compiled, entry, shared in kernels
        ]

    def _kernel_of(self, implementation: Implementation) -> tuple[str, CompiledKernel, str, int]:
        """Name of a launch, its first kernel with the entry in it, and that one's shared memory in bytes."""
        config = self._case.config
        name = f"{implementation}[{config.label}]"
        if implementation == "all-to-all":
            return name, self._serial.compiled, STORE_KERNEL, 0
        attention = self._attentions.get(implementation, self._attentions["attention"])
        recording = implementation in RECORDING.values()
        shared = SHARED_BYTES_LIMIT if recording else shared_bytes(config, self._case.head_dim)
        return name, attention.kernel.compiled, KERNEL, shared

    def _launch(
        self,
        implementation: Implementation,
        figures: Figures,
        info: LaunchInfo,
        *,
        table: SpanTable = NO_SPANS,
        verification: Verification = NOT_VERIFIED,
    ) -> ProfileLaunch:
        attention = self._attentions.get(implementation)
        return ProfileLaunch(
            case=self._case,
            implementation=implementation,
            producers=attention.kernel.ctas if attention else self._gpu.sm_count,
            figures=figures,
            table=table,
            verification=verification,
            launch=info,
        )

    def _wait(self, implementation: Implementation, launches: int) -> None:
        synchronize(self._gpu.stream, self._timeout_s(launches), f"'{implementation}'")

    def _timeout_s(self, launches: int) -> float:
        return _START_TIMEOUT_S + launches * self._launch_timeout_s
