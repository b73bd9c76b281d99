"""An attention, its All-to-All and their fusion on one GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

from cuda.core import Stream

from xstage_tune.base.bf16 import Bits
from xstage_tune.base.errors import UsageError
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
from xstage_tune.cuda.sources import ATTENTION_SOURCE, installed_sha256
from xstage_tune.families.attention_a2a.budget import finishing_warpgroups
from xstage_tune.families.attention_a2a.check import (
    check_attention,
    check_equal,
    random_inputs,
    sampled_tokens,
)
from xstage_tune.families.attention_a2a.spans import MOST_SPANS, sampled_ctas, span_figures
from xstage_tune.families.attention_a2a.timing import (
    ATTENTIONS,
    RECORDING,
    STORE_LOCALLY,
    AttentionLaunch,
    AttentionOutcome,
    CheckFigures,
    Implementation,
    ProfileCase,
    ReplayFigures,
    replays,
)
from xstage_tune.launches.device import LaunchInfo, Outcome, Verification

Measured = TypeVar("Measured")

#: What one attention kernel does, each with its own build.
_ATTENTIONS: tuple[Implementation, ...] = (*RECORDING, *RECORDING.values())
#: What is checked before a kernel is timed: its output has to equal the attention's own.
_CHECKED_KERNEL: tuple[Implementation, ...] = ("attention", "fused")
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


class CudaAttentions:
    """Runs attentions for a :class:`~xstage_tune.cuda.device.CudaDevice`: profiled ones, and kernels.

    The kernels and memory of the last case are held until another one, or :meth:`close`.
    """

    kinds = (ATTENTIONS,)

    def __init__(self, gpu: Gpu) -> None:
        kernels = installed_sha256(ATTENTION_SOURCE, SERIAL.source)
        #: The GPU and the kernels: times of others are not comparable.
        self.identity = f"{gpu.device.name}, kernels {kernels[:12]}"
        self._gpu = gpu
        self._case: ProfileCase | None = None
        self._prepared: PreparedAttention | None = None
        self._checked = False

    def run(self, launches: Iterable[AttentionLaunch]) -> Iterator[Outcome[Any, Any]]:
        """See :class:`~xstage_tune.launches.device.Runner`.

        Raises:
            UsageError: the kernel or its recording variant lacks the config, or a size is out of its range.
            DeviceError: the GPU cannot run it, there is too little memory (says how much is needed), or a
                launch failed or did not end.
            FindingError: the output of a kernel is wrong.
        """
        coming = iter(launches)
        for launch in coming:
            prepared = self._prepare(launch.case)
            if launch.what == "check":
                yield prepared.check(launch)
            elif launch.what == "spans":
                yield prepared.record(launch)
            else:
                yield from prepared.replay(_all_in_turn(launch, coming))

    def close(self) -> None:
        """Free what is held; safe to call twice."""
        if self._prepared is not None:
            self._prepared.close()
        self._case = self._prepared = None
        self._checked = False

    def _prepare(self, case: ProfileCase) -> PreparedAttention:
        if self._prepared is None or case != self._case:
            self.close()
            self._prepared = PreparedAttention(self._gpu, case)
            self._case = case
        return self._prepared


def _all_in_turn(first: AttentionLaunch, coming: Iterator[Any]) -> tuple[AttentionLaunch, ...]:
    """The launches of all places of a replay, the others being the next ones that are asked for.

    Raises:
        UsageError: they are not.
    """
    expected = replays(first.case, first.in_turn)
    asked = (first, *islice(coming, max(0, len(expected) - 1)))
    if asked != expected:
        raise UsageError("replays that run in turn are asked for together, in their order")
    return expected


@dataclass(frozen=True, slots=True)
class _Attention:
    """A kernel with what it is launched with."""

    kernel: AttentionA2A
    prepared: PreparedLaunch

    def queue(self, stream: Stream) -> None:
        self.kernel.launch(self.prepared, stream)


class PreparedAttention:
    """A case on a GPU, with its kernels and memory; see :class:`AttentionLaunch` for what is done with it."""

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

        _, (info,) = self._measure([implementation], "check", run)
        figures, verification = self._compare(implementation)
        return Outcome(launch, figures, info, verification)

    def replay(self, launches: Sequence[AttentionLaunch]) -> Sequence[AttentionOutcome]:
        """Time graphs of implementations that run in turn, over and over, without a pause.

        Raises:
            DeviceError: a replay failed or did not end.
        """
        in_turn = [launch.implementation for launch in launches]
        graphs = [self._graph(one) for one in in_turn]
        replayed = GraphsInTurn(self._gpu.stream, graphs)
        timeout_s = self._timeout_s(replayed.turns * sum(graph.launches for graph in graphs))
        times_ns, infos = self._measure(in_turn, "replay", lambda: replayed.times_ns(timeout_s))
        figures = map(ReplayFigures, replayed.launches(), times_ns)
        return [Outcome(*measured) for measured in zip(launches, figures, infos, strict=True)]

    def record(self, launch: AttentionLaunch) -> AttentionOutcome:
        """Spans of an implementation of :data:`RECORDING`: of the last of some launches of its variant.

        Raises:
            DeviceError: the launch failed.
        """
        implementation = launch.implementation
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
        return Outcome(launch, figures, info, table=kept)

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
        if self._expected is None:
            raise UsageError(f"the attention is checked before '{implementation}', which has to equal it")
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
        self, in_turn: Sequence[Implementation], what: str, run: Callable[[], Measured]
    ) -> tuple[Measured, list[LaunchInfo]]:
        """Run what launches these one after another, as one measurement; what each of them was."""
        kernels = [self._kernel_of(one) for one in in_turn]
        name, compiled, entry, _ = kernels[0]
        measured, info = self._gpu.measure(
            run,
            kernel=name,
            compiled=compiled,
            entry=entry,
            category=what,
            producers=self._producers(in_turn[0]),
            launches=len(in_turn),
        )
        return measured, [
            replace(
                info,
                kernel=name,
                kernel_sha256=compiled.sha256,
                registers=compiled.entries[entry].registers,
                spill_bytes=compiled.entries[entry].spill_bytes,
                shared_bytes=shared,
                producers=self._producers(one),
            )
            for one, (name, compiled, entry, shared) in zip(in_turn, kernels, strict=True)
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

    def _producers(self, implementation: Implementation) -> int:
        """CTAs of an attention; SMs of what is more or other than one."""
        attention = self._attentions.get(implementation)
        return attention.kernel.ctas if attention else self._gpu.sm_count

    def _wait(self, implementation: Implementation, launches: int) -> None:
        synchronize(self._gpu.stream, self._timeout_s(launches), f"'{implementation}'")

    def _timeout_s(self, launches: int) -> float:
        return _START_TIMEOUT_S + launches * self._launch_timeout_s
