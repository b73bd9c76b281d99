"""Timing by CUDA graphs: launches back to back, graphs in turn without a pause, events between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil
from statistics import fmean

from cuda.core import Event, EventOptions, Stream
from cuda.core.graph import Graph

from xstage_tune.cuda.driver import core_call, synchronize
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
        self._stream = stream
        self.launches = launches_lasting(_GRAPH_NS, launch_ns)
        self.about_ns = self.launches * max(launch_ns, 1.0)
        with core_call("capture a graph"):
            builder = stream.create_graph_builder()
            try:
                builder.begin_building("thread_local")
                try:
                    for _ in range(self.launches):
                        queue()
                finally:
                    # Also after an error: a stream that is left capturing can be used for nothing else.
                    builder.end_building()
                self._graph: Graph = builder.complete()
            finally:
                builder.close()

    def close(self) -> None:
        """Free the graph; safe to call twice."""
        self._graph.close()

    def queue(self) -> None:
        """Queue the graph."""
        with core_call("replay a graph"):
            self._graph.launch(self._stream)


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

    @property
    def turn_ns(self) -> float:
        """About how long one turn takes."""
        return sum(graph.about_ns for graph in self._graphs)

    def settle(self, time_ns: float) -> None:
        """Queue turns for about so long, and do not wait."""
        for graph in ceil(time_ns / self.turn_ns) * list(self._graphs):
            graph.queue()

    def samples_ns(
        self, turns: int, timeout_s: float, meanwhile: Callable[[], None] = lambda: None
    ) -> list[tuple[float, ...]]:
        """Of one launch of each graph, its mean in each turn, ``[graphs][turns]``; waits.

        Args:
            meanwhile: is called once while they run.

        Raises:
            DeviceError: one failed, or they did not end in ``timeout_s``.
        """
        passed_ns = self._timed_ns(turns, timeout_s, meanwhile)
        return [
            tuple(time_ns / graph.launches for time_ns in passed_ns[place :: len(self._graphs)])
            for place, graph in enumerate(self._graphs)
        ]

    def launches(self) -> list[int]:
        """How many launches of each graph are timed."""
        return [self._timed * graph.launches for graph in self._graphs]

    def times_ns(self, timeout_s: float) -> list[float]:
        """Of one launch of each graph: the mean of those that are timed; waits.

        Raises:
            DeviceError: one failed, or they did not end in ``timeout_s``.
        """
        for graph in self._settling * list(self._graphs):
            graph.queue()
        passed_ns = self._timed_ns(self._timed, timeout_s)
        return [
            fmean(passed_ns[place :: len(self._graphs)]) / graph.launches
            for place, graph in enumerate(self._graphs)
        ]

    def _timed_ns(
        self, turns: int, timeout_s: float, meanwhile: Callable[[], None] = lambda: None
    ) -> list[float]:
        """Of each graph of each turn, in their order; waits."""
        events = [record(self._stream)]
        for graph in turns * list(self._graphs):
            graph.queue()
            events.append(record(self._stream))
        meanwhile()
        synchronize(self._stream, timeout_s, "replays of graphs")
        return between_ns(events)


def record(stream: Stream) -> Event:
    """Queue an event that tells times."""
    with core_call("record an event"):
        return stream.record(options=EventOptions(timing_enabled=True))


def between_ns(events: Sequence[Event]) -> list[float]:
    """Times from each to the next one, all of which have passed."""
    with core_call("read an event"):
        return [(second - first) / _MS_PER_S * NS_PER_S for first, second in pairwise(events)]


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
    before()
    begin = record(stream)
    queue()
    end = record(stream)
    synchronize(stream, timeout_s, action)
    return between_ns([begin, end])[0]


def cold_times_ns(
    stream: Stream, queue: Callable[[], None], empty_caches: Callable[[], None], rounds: int, timeout_s: float
) -> tuple[float, ...]:
    """Times of single launches, ``[rounds]``, each behind ``empty_caches``; waits.

    Raises:
        DeviceError: one failed, or they did not end in ``timeout_s``.
    """
    events = []
    for _ in range(rounds):
        empty_caches()
        events.append(record(stream))
        queue()
        events.append(record(stream))
    synchronize(stream, timeout_s, "launches with cold caches")
    return tuple(between_ns(events)[::2])
