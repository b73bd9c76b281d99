"""Fused kernels of a search on one GPU: each checked, then timed in turn with another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from xstage_tune.cuda.fused_kernel import FusedKernel, KernelBench, PreparedKernel
from xstage_tune.cuda.gpu import Gpu
from xstage_tune.cuda.graph_timing import GraphsInTurn, ReplayGraph, cold_times_ns, elapsed_ns
from xstage_tune.cuda.memory import GpuMemory
from xstage_tune.cuda.sources import installed_sha256
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.kernel_launch import KERNELS, KernelLaunch, KernelRun
from xstage_tune.launches.device import GpuState, Outcome
from xstage_tune.launches.in_turn import difference_ns, ratio_of

#: A sample is a turn of graphs that last some milliseconds each. So many are taken before the first look at
#: their ratio, and between looks; and so many at most.
_LEAST_SAMPLES = 5
_MOST_SAMPLES = 30
#: Turns run for so long before the first sample: a GPU that was idle raises its clocks meanwhile.
_SETTLING_NS = 30e6
_COLD_ROUNDS = 5
#: Samples of a launch and of the same one whose stores stay local.
_EXPOSED_SAMPLES = 10
#: Of what empties the L2.
_L2_SIZES = 2
_START_TIMEOUT_S = 10.0
#: At a power limit launches take longer than one alone did.
_SLOWER = 4


class CudaKernels:
    """Runs a family's kernels for a :class:`~xstage_tune.cuda.device.CudaDevice`.

    The memory of the last workload and the kernels of the last launch are held until another one, or
    :meth:`close`.
    """

    kinds = (KERNELS,)

    def __init__(self, gpu: Gpu, kernel: FusedKernel) -> None:
        #: The GPU and the kernel's sources: times of others are not comparable.
        self.identity = f"{gpu.device.name}, kernels {installed_sha256(*kernel.sources)[:12]}"
        self._gpu, self._kernel = gpu, kernel
        self._bench: KernelBench | None = None
        self._of: tuple[Any, ...] = ()
        self._held: dict[KernelConfig, _Timed] = {}
        self._flushed = GpuMemory(
            gpu.device, _L2_SIZES * int(gpu.device.properties.l2_cache_size), gpu.device
        )

    def run(self, launches: Iterable[KernelLaunch]) -> Iterator[Outcome[KernelLaunch, KernelRun]]:
        """See :class:`~xstage_tune.launches.device.Runner`.

        Raises:
            UsageError: there is no such variant.
            KernelCompileError, UnusableKernelError: it does not compile, or not to a usable kernel.
            FindingError: its output is wrong.
            ContextError, DeadlineError, DeviceError: a launch failed, or did not end.
        """
        for launch in launches:
            yield self._run(launch)

    def close(self) -> None:
        """Free what is held; safe to call twice."""
        self._let_go()
        self._flushed.close()

    def _run(self, launch: KernelLaunch) -> Outcome[KernelLaunch, KernelRun]:
        bench = self._bench_of(launch)
        wanted = {launch.config, launch.against}
        for config in [config for config in self._held if config not in wanted]:
            self._held.pop(config).close()
        own = self._timed(bench, launch.config)
        other = None if launch.against is None else self._timed(bench, launch.against)
        kernel = own.kernel
        run, info = self._gpu.measure(
            lambda: self._measure(bench, launch, own, other),
            kernel=kernel.name,
            compiled=kernel.compiled,
            entry=kernel.entry,
            category="trial",
            producers=kernel.producers,
        )
        return Outcome(launch, run, replace(info, shared_bytes=kernel.shared_bytes))

    def _measure(
        self, bench: KernelBench, launch: KernelLaunch, own: _Timed, other: _Timed | None
    ) -> KernelRun:
        """Check, then time."""
        trusted = other.kernel if other is not None and other is not own else None
        compare = bench.launch_on(own.kernel, launch.inputs, trusted)
        turns = _Turns(self._gpu, [own, *([] if other is None else [other])])
        turns.settle()
        latency_ns, against_ns = turns.sampled(launch, compare)
        cold_ns = cold_times_ns(
            self._gpu.stream, own.kernel.queue, self._empty_l2, _COLD_ROUNDS, own.timeout_s(_COLD_ROUNDS)
        )
        exposed_ns = self._exposed_ns(bench, launch, own, turns) if launch.exposed else None
        spans = bench.spans(launch.config) if launch.spans else None
        return KernelRun(
            latency_ns=latency_ns,
            stall_ns=() if spans is None else (spans.stall_ns,),
            against_ns=against_ns,
            cold_ns=cold_ns,
            exposed_ns=exposed_ns,
            mainloop_ns=None if spans is None else spans.mainloop_ns,
            states=tuple(turns.states),
            busy_ns=turns.busy_ns + sum(cold_ns),
        )

    def _exposed_ns(self, bench: KernelBench, launch: KernelLaunch, own: _Timed, turns: _Turns) -> float:
        """E_res, of launches in turn with those that store locally."""
        local = _Timed(self._gpu, bench.prepare(launch.config, local=True))
        try:
            both = _Turns(self._gpu, [own, local])
            both.settle()
            fused_ns, local_ns = both.sample(_EXPOSED_SAMPLES)
            turns.busy_ns += both.busy_ns
            return difference_ns(fused_ns, local_ns)
        finally:
            local.close()

    def _bench_of(self, launch: KernelLaunch) -> KernelBench:
        of = (launch.workload, launch.path)
        if self._bench is None or of != self._of:
            self._let_go()
            self._bench, self._of = self._kernel.open(self._gpu, launch.workload, launch.path), of
        return self._bench

    def _timed(self, bench: KernelBench, config: KernelConfig) -> _Timed:
        if config not in self._held:
            self._held[config] = _Timed(self._gpu, bench.prepare(config))
        return self._held[config]

    def _let_go(self) -> None:
        for timed in self._held.values():
            timed.close()
        self._held.clear()
        if self._bench is not None:
            self._bench.close()
            self._bench = None

    def _empty_l2(self) -> None:
        self._flushed.fill_zero(self._gpu.stream)


class _Timed:
    """A kernel, and the graph of its launches once it was launched."""

    def __init__(self, gpu: Gpu, kernel: PreparedKernel) -> None:
        self._gpu, self.kernel = gpu, kernel
        self._graph: ReplayGraph | None = None

    @property
    def graph(self) -> ReplayGraph:
        """Of launches that last some milliseconds."""
        if self._graph is None:
            queue = self.kernel.queue
            action = f"'{self.kernel.name}'"
            one_ns = elapsed_ns(self._gpu.stream, queue, self.timeout_s(2), action, before=queue)
            self._graph = ReplayGraph(self._gpu.stream, queue, one_ns)
        return self._graph

    def timeout_s(self, launches: float) -> float:
        """In which so many launches surely end."""
        return _START_TIMEOUT_S + launches * self.kernel.timeout_s

    def close(self) -> None:
        """Free it; safe to call twice."""
        if self._graph is not None:
            self._graph.close()
            self._graph = None
        self.kernel.close()


class _Turns:
    """Kernels that run in turn, one or two."""

    def __init__(self, gpu: Gpu, timed: list[_Timed]) -> None:
        self._gpu = gpu
        self._graphs = GraphsInTurn(gpu.stream, [one.graph for one in timed])
        self._count = len(timed)
        #: Of the GPU, one for each look at the samples.
        self.states: list[GpuState] = []
        self.busy_ns = 0.0

    def settle(self) -> None:
        """Queue turns, and do not wait."""
        self._graphs.settle(_SETTLING_NS)
        self.busy_ns += max(_SETTLING_NS, self._graphs.turn_ns)

    def sampled(
        self, launch: KernelLaunch, meanwhile: Callable[[], None]
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Samples of a launch, and of what it is timed against: none where it is alone.

        Args:
            meanwhile: work of the host, while the GPU runs the first of them; what it raises ends the launch.
        """
        least = max(launch.repeats, _LEAST_SAMPLES)
        own_ns, other_ns = self.sample(least, meanwhile)
        if launch.tolerance is not None and self._count > 1:
            while len(own_ns) < _MOST_SAMPLES and not ratio_of(own_ns, other_ns).settles(launch.tolerance):
                more = self.sample(_LEAST_SAMPLES)
                own_ns, other_ns = own_ns + more[0], other_ns + more[1]
        return own_ns, other_ns

    def sample(
        self, turns: int, meanwhile: Callable[[], None] = lambda: None
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """So many samples of both."""

        def look() -> None:
            self._look()
            meanwhile()

        timeout_s = _START_TIMEOUT_S + _SLOWER * turns * self._graphs.turn_ns / 1e9
        sampled = self._graphs.samples_ns(turns, timeout_s, look)
        self.busy_ns += turns * self._graphs.turn_ns
        return sampled[0], sampled[1] if len(sampled) > 1 else ()

    def _look(self) -> None:
        state = self._gpu.state()
        if state is not None:
            self.states.append(state)
