"""Timing by CUDA graphs: launches back to back in one replay, between events, the GPU busy before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuda.bindings import driver
from cuda.core import Stream

from xstage_tune.devices.cuda.driver import check, synchronize
from xstage_tune.model.checks import NS_PER_S

_MS_PER_S = 1e3
#: A replay lasts about this long, behind an untimed one: clocks follow the power that a kernel draws within
#: milliseconds, events resolve 0.5 us, and the host queues a replay in some tens of us.
_REPLAY_NS = 20e6
_FEWEST_LAUNCHES, _MOST_LAUNCHES = 3, 500


def launches_of_replay(launch_ns: float) -> int:
    """How many launches a replay has, of which each takes about ``launch_ns``."""
    return min(_MOST_LAUNCHES, max(_FEWEST_LAUNCHES, round(_REPLAY_NS / max(launch_ns, 1.0))))


class ReplayGraph:
    """What ``queue`` queues on the stream, ``launches`` times back to back, as a graph.

    Args:
        queue: must have run outside of a capture before, and may neither allocate nor wait.

    Raises:
        DeviceError: something cannot be captured.
    """

    def __init__(self, stream: Stream, queue: Callable[[], None], launches: int) -> None:
        self._stream, self._handle = stream, driver.CUstream(int(stream.handle))
        self.launches = launches
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        check(driver.cuStreamBeginCapture(self._handle, mode), "begin the capture of a graph")
        try:
            for _ in range(launches):
                queue()
        finally:
            # Also after an error: a stream that is left capturing can be used for nothing else.
            ended = driver.cuStreamEndCapture(self._handle)
        graph = check(ended, "end the capture of a graph")
        try:
            self._graph: Any = check(driver.cuGraphInstantiate(graph, 0), "instantiate a graph")
        finally:
            check(driver.cuGraphDestroy(graph), "free a captured graph")

    def time_ns(self, timeout_s: float) -> float:
        """Time of one launch in a replay that follows an untimed one.

        The untimed replay warms up, and the GPU still works on it while the host queues the timed one.

        Raises:
            DeviceError: the replay failed, or did not end in ``timeout_s``.
        """
        return (
            elapsed_ns(self._stream, self._replay, timeout_s, "a graph's replay", before=self._replay)
            / self.launches
        )

    def close(self) -> None:
        """Free the graph; safe to call twice."""
        if self._graph is not None:
            graph, self._graph = self._graph, None
            check(driver.cuGraphExecDestroy(graph), "free a graph")

    def _replay(self) -> None:
        check(driver.cuGraphLaunch(self._graph, self._handle), "replay a graph")


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
    handle = driver.CUstream(int(stream.handle))
    events = [check(driver.cuEventCreate(0), "create an event") for _ in range(2)]
    begin, end = events
    try:
        before()
        check(driver.cuEventRecord(begin, handle), "record an event")
        queue()
        check(driver.cuEventRecord(end, handle), "record an event")
        synchronize(stream, timeout_s, action)
        elapsed_ms = float(check(driver.cuEventElapsedTime(begin, end), f"time {action}"))
    finally:
        for event in events:
            check(driver.cuEventDestroy(event), "free an event")
    return elapsed_ms / _MS_PER_S * NS_PER_S
