"""Graphs in turn on a stream that only keeps a list."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from cuda.core import EventOptions

from xstage_tune.cuda import graph_timing
from xstage_tune.cuda.graph_timing import GraphsInTurn, launches_lasting

Queue = list[str]


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> Queue:
    """What was queued; a graph's name is how many microseconds it takes."""
    found: Queue = []
    monkeypatch.setattr(
        graph_timing, "synchronize", lambda _, timeout_s, __: found.append(f"waited {timeout_s:g}")
    )
    return found


@dataclass(frozen=True)
class PassedEvent:
    """An event behind all that was queued before it, which it takes 1% longer for each turn before it."""

    at_ms: float

    def __sub__(self, before: PassedEvent) -> float:
        return self.at_ms - before.at_ms


class FakeStream:
    def __init__(self, queued: Queue) -> None:
        self._queued, self._at_ms, self._timed = queued, 0.0, 0

    def record(self, options: EventOptions) -> PassedEvent:
        assert options.timing_enabled
        if self._queued[-1] != "event" and "event" in self._queued:
            self._at_ms += float(self._queued[-1]) * 1e-3 * (1 + 0.01 * self._timed)
            self._timed += 1
        self._queued.append("event")
        return PassedEvent(self._at_ms)


def graph(queued: Queue, name: str, launches: int, about_ns: float) -> Any:
    return SimpleNamespace(launches=launches, about_ns=about_ns, queue=lambda: queued.append(name))


def test_graphs_run_in_turn_settle_and_are_then_timed_one_by_one(queued: Queue) -> None:
    turns = GraphsInTurn(FakeStream(queued), [graph(queued, "2000", 4, 5e6), graph(queued, "6000", 2, 7.5e6)])  # type: ignore[arg-type]
    # Turns of 12.5 ms: eight take 100 ms, four 50 ms.
    assert (turns.turns, turns.launches()) == (12, [16, 8])
    times_ns = turns.times_ns(9)
    assert queued == [
        *["2000", "6000"] * 8, "event", *["2000", "event", "6000", "event"] * 4, "waited 9",
    ]  # fmt: skip
    assert times_ns == pytest.approx([2e6 * 1.03 / 4, 6e6 * 1.04 / 2])


def test_a_graph_that_takes_longer_is_run_once_to_settle_and_timed_three_times(queued: Queue) -> None:
    turns = GraphsInTurn(FakeStream(queued), [graph(queued, "300000", 1, 300e6)])  # type: ignore[arg-type]
    assert turns.times_ns(9) == [pytest.approx(300e6 * 1.01)]
    assert queued == ["300000", "event", *["300000", "event"] * 3, "waited 9"]


@pytest.mark.parametrize(("launch_ns", "launches"), [(0.0, 500), (1e3, 500), (1e6, 20), (22e6, 1), (1e9, 1)])
def test_short_launches_are_more(launch_ns: float, launches: int) -> None:
    assert launches_lasting(20e6, launch_ns) == launches
