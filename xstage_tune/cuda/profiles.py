"""Profiles on one GPU: what runs of all families share, which is all but what an implementation queues."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from xstage_tune.base.errors import UsageError
from xstage_tune.cuda.compiler import CompiledKernel
from xstage_tune.cuda.driver import synchronize
from xstage_tune.cuda.gpu import Gpu
from xstage_tune.cuda.graph_timing import GraphsInTurn, ReplayGraph, elapsed_ns
from xstage_tune.cuda.sources import installed_sha256
from xstage_tune.families.profiled import ProfiledLaunch, ReplayFigures
from xstage_tune.launches.device import LaunchInfo, LaunchKind, Outcome

Measured = TypeVar("Measured")
CaseT = TypeVar("CaseT")

#: A launch computes at no less than this rate, and stores no slower; the rest is for starting and queueing.
LEAST_FLOP_PER_S = 20e12
LEAST_BYTES_PER_S = 1e9
_START_TIMEOUT_S = 10.0
#: The launch whose spans are read is the last of so many back to back, as in a replay.
LAUNCHES_TO_RECORD = 3
#: Before that the GPU rests, until its clocks owe nothing to the replays, which would be in the spans of the
#: first recording and not of the second.
REST_S = 0.5


class LaunchedKernel(NamedTuple):
    """What a launch of an implementation is, in results.

    Args:
        entry: of its first kernel in ``compiled``.
        shared_bytes: of that one.
        producers: SMs that take part.
    """

    name: str
    compiled: CompiledKernel
    entry: str
    shared_bytes: int
    producers: int


class PreparedCase(ABC, Generic[CaseT]):
    """A case on a GPU, with its kernels and memory.

    Args:
        launch_timeout_s: in which a launch of any implementation surely ends.
    """

    def __init__(self, gpu: Gpu, case: CaseT, launch_timeout_s: float) -> None:
        self._gpu, self._case = gpu, case
        self._launch_timeout_s = launch_timeout_s
        self._graphs: dict[str, ReplayGraph] = {}

    @abstractmethod
    def check(self, launch: Any) -> Outcome[Any, Any]:
        """Run once on poisoned buffers and compare the output.

        Raises:
            DeviceError: the launch failed.
        """

    @abstractmethod
    def record(self, launch: Any) -> Outcome[Any, Any]:
        """Spans of the last of :data:`LAUNCHES_TO_RECORD` launches of a variant that records them.

        Raises:
            DeviceError: the launch failed.
        """

    @abstractmethod
    def _queue(self, implementation: Any) -> None:
        """Queue one launch of an implementation; graphs capture it."""

    @abstractmethod
    def _kernel_of(self, implementation: Any) -> LaunchedKernel:
        """What that is."""

    @abstractmethod
    def _free(self) -> None:
        """Free kernels and memory; safe to call twice."""

    def _require_finished(self) -> None:
        """Refuse what a launch left whose wait ran out; here none waits."""

    def replay(self, launches: Sequence[ProfiledLaunch[Any, Any]]) -> Sequence[Outcome[Any, Any]]:
        """Time graphs of implementations that run in turn, over and over, without a pause.

        Raises:
            DeviceError: a replay failed or did not end.
        """
        in_turn = [launch.implementation for launch in launches]
        graphs = [self._graph(one) for one in in_turn]
        replayed = GraphsInTurn(self._gpu.stream, graphs)
        timeout_s = self._timeout_s(replayed.turns * sum(graph.launches for graph in graphs))
        kernels = [self._kernel_of(one) for one in in_turn]
        times_ns, infos = self._measure(kernels, "replay", lambda: replayed.times_ns(timeout_s))
        self._require_finished()
        figures = map(ReplayFigures, replayed.launches(), times_ns)
        return [Outcome(*measured) for measured in zip(launches, figures, infos, strict=True)]

    def close(self) -> None:
        """Free graphs, kernels and memory; safe to call twice."""
        for graph in self._graphs.values():
            graph.close()
        self._graphs.clear()
        self._free()

    def _graph(self, implementation: Any) -> ReplayGraph:
        if implementation not in self._graphs:

            def queue() -> None:
                self._queue(implementation)

            one_ns = elapsed_ns(self._gpu.stream, queue, self._timeout_s(2), implementation, before=queue)
            self._graphs[implementation] = ReplayGraph(self._gpu.stream, queue, one_ns)
        return self._graphs[implementation]

    def _measure(
        self, kernels: Sequence[LaunchedKernel], what: str, run: Callable[[], Measured]
    ) -> tuple[Measured, list[LaunchInfo]]:
        """Run what launches these one after another, as one measurement; what each of them was."""
        first = kernels[0]
        measured, info = self._gpu.measure(
            run,
            kernel=first.name,
            compiled=first.compiled,
            entry=first.entry,
            category=what,
            producers=first.producers,
            launches=len(kernels),
        )
        return measured, [
            replace(
                info,
                kernel=one.name,
                kernel_sha256=one.compiled.sha256,
                registers=one.compiled.entries[one.entry].registers,
                spill_bytes=one.compiled.entries[one.entry].spill_bytes,
                shared_bytes=one.shared_bytes,
                producers=one.producers,
            )
            for one in kernels
        ]

    def _wait(self, implementation: str, launches: int) -> None:
        synchronize(self._gpu.stream, self._timeout_s(launches), f"'{implementation}'")

    def _timeout_s(self, launches: int) -> float:
        return _START_TIMEOUT_S + launches * self._launch_timeout_s


class CudaProfiles(ABC):
    """Runs a family's profiled launches for a :class:`~xstage_tune.cuda.device.CudaDevice`.

    The kernels and memory of the last case are held until another one, or :meth:`close`.
    """

    kinds: ClassVar[tuple[LaunchKind[Any, Any, Any], ...]]
    #: Whose hash tells kernels apart.
    sources: ClassVar[tuple[str, ...]]

    def __init__(self, gpu: Gpu) -> None:
        #: The GPU and the kernels: times of others are not comparable.
        self.identity = f"{gpu.device.name}, kernels {installed_sha256(*self.sources)[:12]}"
        self._gpu = gpu
        self._case: Any = None
        self._prepared: PreparedCase[Any] | None = None

    @abstractmethod
    def prepare(self, gpu: Gpu, case: Any) -> PreparedCase[Any]:
        """A case's kernels and memory."""

    def run(self, launches: Iterable[ProfiledLaunch[Any, Any]]) -> Iterator[Outcome[Any, Any]]:
        """See :class:`~xstage_tune.launches.device.Runner`.

        Raises:
            UsageError: the kernel or its recording variant lacks the config, or a size is out of its range.
            DeviceError: the GPU cannot run it, there is too little memory (says how much is needed), or a
                launch failed or did not end.
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

    def _prepare(self, case: Any) -> PreparedCase[Any]:
        if self._prepared is None or case != self._case:
            self.close()
            self._prepared = self.prepare(self._gpu, case)
            self._case = case
        return self._prepared


def _all_in_turn(
    first: ProfiledLaunch[Any, Any], coming: Iterator[Any]
) -> tuple[ProfiledLaunch[Any, Any], ...]:
    """The launches of all places of a replay, the others being the next ones that are asked for.

    Raises:
        UsageError: they are not.
    """
    expected = first.turns()
    asked = (first, *islice(coming, max(0, len(expected) - 1)))
    if asked != expected:
        raise UsageError("replays that run in turn are asked for together, in their order")
    return expected
