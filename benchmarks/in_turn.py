"""Times of work on this GPU, in turn: all of it has the clocks of all together."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

SETTLING_S, TURNS, GRAPH_S = 0.25, 8, 6e-3


def times_us(queues: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Of one call of each, which queues its work on torch's current stream: means over turns.

    They run as graphs of some milliseconds each.
    """
    import torch

    graphs = {name: _graph(queue) for name, queue in queues.items()}
    passed: dict[str, list[tuple[Any, Any]]] = {name: [] for name in graphs}

    def turn(timed: bool) -> None:
        for name, (graph, _) in graphs.items():
            events = torch.cuda.Event(True), torch.cuda.Event(True)
            events[0].record()
            graph.replay()
            events[1].record()
            if timed:
                passed[name].append(events)

    until = time.monotonic() + SETTLING_S
    while time.monotonic() < until:
        turn(timed=False)
        torch.cuda.synchronize()
    for _ in range(TURNS):
        turn(timed=True)
    torch.cuda.synchronize()
    return {
        name: 1e3 * sum(a.elapsed_time(b) for a, b in passed[name]) / TURNS / calls
        for name, (_, calls) in graphs.items()
    }


def _graph(queue: Callable[[], None]) -> tuple[Any, int]:
    """Of so many calls."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        queue()
        torch.cuda.synchronize()
        begin = time.monotonic()
        queue()
        torch.cuda.synchronize()
        calls = max(1, int(GRAPH_S / (time.monotonic() - begin)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(calls):
                queue()
    return graph, calls
