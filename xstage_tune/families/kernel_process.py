"""How a process of the user's measures the configs of a workload whose kernel is the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class KernelProcess:
    """A process that is asked for the times of a config, by a line of JSON.

    Args:
        command: the program and its arguments, run in ``folder``.
        words: what results call it.
        sources: files whose hash tells versions of the kernel apart.
        request: what it is told of a config of the family; repeats and seed are added.
        unit_ns: of the times that it answers.
        repeats: times that one request asks for.
        in_turn: whether each config is timed in turn with the best so far.
        deadline_s: of one answer.
    """

    command: tuple[str, ...]
    folder: Path
    words: str
    sources: tuple[Path, ...]
    request: Callable[[Any], Mapping[str, Any]]
    unit_ns: float
    repeats: int
    in_turn: bool
    deadline_s: float
