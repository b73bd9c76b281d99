"""Who is told how far a long piece of work is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol


class Progress(Protocol):
    """Shows how far a run, or a search, is."""

    def planned(self, total: int) -> None:
        """Say how many launches or evaluations there may be; may be called again when that changes."""
        ...

    def advance(self, label: str) -> None:
        """Count one as done; ``label`` says which, or how things stand."""
        ...


class PhaseWatcher(Protocol):
    """Shows what a program is at."""

    def phase(self, activity: str, *, at_once: bool) -> AbstractContextManager[None]:
        """Show ``activity`` while the block lasts; see :func:`phase`."""
        ...


class _Told:
    """Who is told of phases, and whether the user wants to know: one each, as the program has one stderr."""

    watcher: PhaseWatcher | None = None
    quiet = False


def be_quiet(quiet: bool) -> None:
    """Choose whether stderr is for warnings and errors alone: no progress, no advice."""
    _Told.quiet = quiet


def is_quiet() -> bool:
    """Whether stderr is for warnings and errors alone."""
    return _Told.quiet


def phase(activity: str, *, at_once: bool = False) -> AbstractContextManager[None]:
    """A block of work in which nothing can be counted; whoever shows progress says that it is under way.

    Args:
        activity: what is done, e.g. ``fitting``.
        at_once: whether it takes so long that the user is told before it begins.
    """
    watcher = _Told.watcher
    return nullcontext() if watcher is None else watcher.phase(activity, at_once=at_once)


@contextmanager
def watching(watcher: PhaseWatcher) -> Iterator[None]:
    """Let ``watcher`` be told of all phases while the block lasts."""
    before, _Told.watcher = _Told.watcher, watcher
    try:
        yield
    finally:
        _Told.watcher = before


class NoProgress:
    """Progress that nobody sees."""

    def planned(self, total: int) -> None:
        """Not shown."""

    def advance(self, label: str) -> None:
        """Not shown."""
