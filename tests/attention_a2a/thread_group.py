"""A group of ranks that are threads of one process."""

from __future__ import annotations

import threading
from typing import Any


class ThreadGroup:
    """One rank's view of a group.

    Args:
        everyone: a place for what each rank gives, the same list for all.
        barrier: at which they meet, with how long they wait for each other.
    """

    def __init__(self, rank: int, everyone: list[Any], barrier: threading.Barrier) -> None:
        self._rank = rank
        self._everyone = everyone
        self._barrier = barrier

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return len(self._everyone)

    def gather(self, value: Any) -> list[Any]:
        self._everyone[self._rank] = value
        self._barrier.wait()
        values = list(self._everyone)
        self._barrier.wait()
        return values
