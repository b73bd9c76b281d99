"""Progress on stderr: what is done, of how many, the time left, how things stand.

A bar on a terminal, gone when the work ends. Elsewhere (a job's log, a pipe) a line every few seconds, the
first of them soon, so that nobody takes a long run for a hung one. ``--quiet`` turns both off.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from xstage_tune.base.interrupts import stop_if_asked
from xstage_tune.base.progress import is_quiet, watching

#: Without a terminal: until the first line, and between two.
_FIRST_LINE_S = 1.0
_LINES_APART_S = 5.0


class SweepProgress:
    """A context manager that shows how far a piece of work is, and is told of its phases.

    Args:
        activity: what is counted, e.g. ``calibrating``.
        console: where to draw; stderr by default.
    """

    def __init__(self, activity: str, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        terminal = self._console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            _StandingColumn(),
            console=self._console,
            transient=True,
            disable=is_quiet() or not terminal,
        )
        self._count = self._bar.add_task(activity, total=None, label="")
        self._lines = None if is_quiet() or terminal else _Lines(self._line, self._console)
        self._shown = ExitStack()

    def __enter__(self) -> Self:
        self._shown.enter_context(watching(self))
        self._shown.enter_context(self._bar)
        if self._lines is not None:
            self._shown.enter_context(self._lines)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.close()

    def planned(self, total: int) -> None:
        """Say how many points the sweep has; may be called again when that changes."""
        self._bar.update(self._count, total=total)

    def advance(self, label: str) -> None:
        """Count one point as done; ``label`` says which.

        Raises:
            KeyboardInterrupt: the user has stopped the program, and a callback dropped that.
        """
        stop_if_asked()
        self._bar.update(self._count, advance=1, label=label)

    def refresh(self) -> None:
        """Draw the bar as things stand now; it is drawn ten times a second anyway."""
        self._bar.refresh()

    def phase(self, activity: str, *, at_once: bool) -> AbstractContextManager[None]:
        """Show what is done where nothing can be counted; see :func:`xstage_tune.base.progress.phase`."""
        return self._phase(activity, at_once)

    @contextmanager
    def _phase(self, activity: str, at_once: bool) -> Iterator[None]:
        shown = self._bar.add_task(activity, total=None, label="")
        self._show_last()
        if at_once and self._lines is not None:
            self._lines.write()
        try:
            yield
        finally:
            self._bar.remove_task(shown)
            self._show_last()

    def _show_last(self) -> None:
        """Show what began last, which is what is being done, and nothing else."""
        *others, last = self._bar.task_ids
        for task in others:
            self._bar.update(task, visible=False)
        self._bar.update(last, visible=True)

    def _line(self) -> str:
        """What is being done, and how far it is."""
        task = self._bar.tasks[-1]
        standing = _standing(task)
        return f"{task.description}: {standing}" if standing else task.description


class _StandingColumn(ProgressColumn):
    """How far a task is."""

    def render(self, task: Task) -> Text:
        return Text(_standing(task), style="dim")


def _standing(task: Task) -> str:
    """How far a task is: done of how many, time left, its label; seconds so far where nothing is counted."""
    if not task.completed:
        return f"{task.elapsed:.0f} s" if task.elapsed and task.elapsed >= 1 else ""
    parts = [f"{task.completed:.0f}" + ("" if task.total is None else f" of {task.total:.0f}")]
    left_s = task.time_remaining
    if left_s is not None and not task.finished:
        minutes, seconds = divmod(round(left_s), 60)
        parts.append(f"{minutes} min {seconds} s left" if minutes else f"{seconds} s left")
    return ", ".join(filter(None, (*parts, str(task.fields["label"]))))


class _Lines:
    """A context manager that writes a line to stderr every few seconds.

    Its own thread does: while machine code is made, or a GPU works, the main one has no turn to.
    """

    def __init__(self, line: Callable[[], str], console: Console) -> None:
        self._line, self._console = line, console
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._next_at = time.monotonic() + _FIRST_LINE_S
        self._thread = threading.Thread(target=self._write_often, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def write(self) -> None:
        """Write a line now; the next one follows in its time."""
        with self._lock:
            self._next_at = time.monotonic() + _LINES_APART_S
            stderr = self._console.file
            if stderr is not None:  # closed by the shell
                stderr.write(f"xstage-tune: {self._line()}\n")
                stderr.flush()

    def _write_often(self) -> None:
        while not self._ended.wait(max(0.0, self._next_at - time.monotonic())):
            if time.monotonic() >= self._next_at:
                self.write()
