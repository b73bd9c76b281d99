"""Progress of a sweep on stderr: points done, time left, the last point; silent without a terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from xstage_tune.interrupts import stop_if_asked


class SweepProgress:
    """A context manager that shows a sweep's progress; the bar is erased when the sweep ends.

    Args:
        activity: what the sweep does, e.g. ``calibrating``.
        console: where to draw; stderr by default.
    """

    def __init__(self, activity: str, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("left  {task.fields[label]}", style="dim", markup=False),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID = self._progress.add_task(activity, total=None, label="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def planned(self, total: int) -> None:
        """Say how many points the sweep has; may be called again when that changes."""
        self._progress.update(self._task, total=total)

    def advance(self, label: str) -> None:
        """Count one point as done; ``label`` says which.

        Raises:
            KeyboardInterrupt: the user has stopped the program, and a callback dropped that.
        """
        stop_if_asked()
        self._progress.update(self._task, advance=1, label=label)
