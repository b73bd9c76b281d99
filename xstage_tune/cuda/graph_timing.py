"""Timing by CUDA graphs: launches back to back, graphs in turn without a pause, events between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil
from statistics import fmean
from typing import Any

from cuda.bindings import driver
from cuda.core import Stream

from xstage_tune.cuda.driver import check, synchronize
from xstage_tune.model.checks import NS_PER_S

_MS_PER_S = 1e3
#: A graph lasts about this long. A GPU at its power limit takes tens of milliseconds to change its clocks, so
#: graphs that follow each other have the same ones; events resolve 0.5 us.
_GRAPH_NS = 2.5e6
_MOST_LAUNCHES = 500
#: Graphs run in turn for so long before they are timed, until clocks are those of all of them; then for so
#: long while they are.
_SETTLING_NS, _TIMED_NS = 100e6, 50e6
#: Long launches are timed so often at least: one turn of them sees clocks change.
_FEWEST_TURNS = 3


def launches_lasting(time_ns: float, launch_ns: float) -> int:
    """How many launches of about ``launch_ns`` take about ``time_ns``; of the shortest fewer."""
    return min(_MOST_LAUNCHES, max(1, round(time_ns / max(launch_ns, 1.0))))


class ReplayGraph:
    """What ``queue`` queues on the stream, as often as takes some milliseconds, back to back, as a graph.

    Args:
        queue: must have run outside of a capture before, and may neither allocate nor wait.
        launch_ns: about how long one takes.

    Raises:
        DeviceError: something cannot be captured.
    """

    def __init__(self, stream: Stream, queue: Callable[[], None], launch_ns: float) -> None:
        self._handle = driver.CUstream(int(stream.handle))
        self.launches = launches_lasting(_GRAPH_NS, launch_ns)
        self.about_ns = self.launches * max(launch_ns, 1.0)
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        check(driver.cuStreamBeginCapture(self._handle, mode), "begin the capture of a graph")
        try:
            for _ in range(self.launches):
                queue()
        finally:
            # Also after an error: a stream that is left capturing can be used for nothing else.
            ended = driver.cuStreamEndCapture(self._handle)
        graph = check(ended, "end the capture of a graph")
        try:
            self._graph: Any = check(driver.cuGraphInstantiate(graph, 0), "instantiate a graph")
        finally:
            check(driver.cuGraphDestroy(graph), "free a captured graph")

    def close(self) -> None:
        """Free the graph; safe to call twice."""
        if self._graph is not None:
            graph, self._graph = self._graph, None
            check(driver.cuGraphExecDestroy(graph), "free a graph")

    def queue(self) -> None:
        """Queue the graph."""
        check(driver.cuGraphLaunch(self._graph, self._handle), "replay a graph")


class GraphsInTurn:
    """Graphs that run one after the other, over and over, without a pause.

    On a GPU at its power limit each of them then has the clocks of all of them together, so that their times
    differ by what they do. Timed alone, one that computes less is faster by up to a tenth, and the next one
    slower or faster by what ran in the tenths of a second before.
    """

    def __init__(self, stream: Stream, graphs: Sequence[ReplayGraph]) -> None:
        self._stream, self._graphs = stream, graphs
        turn_ns = sum(graph.about_ns for graph in graphs)
        self._settling = ceil(_SETTLING_NS / turn_ns)
        self._timed = max(_FEWEST_TURNS, ceil(_TIMED_NS / turn_ns))

    @property
    def turns(self) -> int:
        """How often each graph runs."""
        return self._settling + self._timed

    def launches(self) -> list[int]:
        """How many launches of each graph are timed."""
        return [self._timed * graph.launches for graph in self._graphs]

    def times_ns(self, timeout_s: float) -> list[float]:
        """Of one launch of each graph: the mean of those that are timed; waits.

        Raises:
            DeviceError: one failed, or they did not end in ``timeout_s``.
        """
        with Events(self._stream) as events:
            for _ in range(self._settling):
                self._queue_turn()
            events.record()
            for _ in range(self._timed):
                self._queue_turn(events)
            synchronize(self._stream, timeout_s, "replays of graphs")
            passed_ns = events.between_ns()
        return [
            fmean(passed_ns[place :: len(self._graphs)]) / graph.launches
            for place, graph in enumerate(self._graphs)
        ]

    def _queue_turn(self, events: Events | None = None) -> None:
        for graph in self._graphs:
            graph.queue()
            if events is not None:
                events.record()


class Events:
    """Events on a stream, freed at the end of a ``with``."""

    def __init__(self, stream: Stream) -> None:
        self._handle = driver.CUstream(int(stream.handle))
        self._events: list[Any] = []

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        for event in self._events:
            check(driver.cuEventDestroy(event), "free an event")

    def record(self) -> None:
        """Queue the next one."""
        self._events.append(check(driver.cuEventCreate(0), "create an event"))
        check(driver.cuEventRecord(self._events[-1], self._handle), "record an event")

    def between_ns(self) -> list[float]:
        """Times from each to the next one, all of which have passed."""
        return [
            float(check(driver.cuEventElapsedTime(first, second), "read an event")) / _MS_PER_S * NS_PER_S
            for first, second in pairwise(self._events)
        ]


def elapsed_ns(
    stream: Stream,
    queue: Callable[[], None],
    timeout_s: float,
    action: str,
    *,
    before: Callable[[], None] = lambda: None,
) -> float:
    """Time on the GPU of what ``queue`` queues, between two events, behind what ``before`` queues; waits.

    Raises:
        DeviceError: it failed, or did not end in ``timeout_s``.
    """
    with Events(stream) as events:
        before()
        events.record()
        queue()
        events.record()
        synchronize(stream, timeout_s, action)
        (passed_ns,) = events.between_ns()
    return passed_ns
