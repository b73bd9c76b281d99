"""A command in a process of its own, for what cannot be done to the test's: stopping it, filling its disk."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

from xstage_tune import cli
from xstage_tune.base.errors import UsageError
from xstage_tune.store.facade import Store


def start(module: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """``python -m module arguments`` in the checkout, its output piped."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=Path(__file__).parents[1],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


_WARM = multiprocessing.get_context("forkserver")
_WARM.set_forkserver_preload(["tests.warm"])


class WarmCommand(NamedTuple):
    """A command that runs, and the files of what it writes."""

    process: ForkServerProcess
    stdout: Path
    stderr: Path


def start_warm(
    folder: Path, *arguments: str, at: Path | None = None, environment: Mapping[str, str] = os.environ
) -> WarmCommand:
    """``xstage-tune arguments`` in a process that has everything imported, so that it is soon at work.

    It works in ``at``, what it writes goes to ``folder``. The first one of a test run waits until all is
    imported.
    """
    stdout, stderr = (folder / f"{time.monotonic_ns()}.{name}" for name in ("stdout", "stderr"))
    given = (arguments, dict(environment), at or Path.cwd(), stdout, stderr)
    process = _WARM.Process(target=_run_warm, args=given)
    process.start()
    while not stderr.exists() and process.is_alive():
        time.sleep(0.001)
    return WarmCommand(process, stdout, stderr)


def _run_warm(
    arguments: tuple[str, ...], environment: dict[str, str], at: Path, stdout: Path, stderr: Path
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(at)
    for number, file in ((1, stdout), (2, stderr)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    sys.argv = ["xstage-tune", *arguments]
    cli.entry()


def wait_for_launches(store: Path, count: int) -> None:
    """Until the last run of a store has so many launches."""
    _wait_for(store, count, "launches", lambda opened: opened.launches(opened.run().id))


def wait_for_trials(store: Path, count: int) -> None:
    """Until the last study of a store has so many trials."""
    _wait_for(store, count, "trials", lambda opened: opened.studies.trials(opened.studies.get().id))


def _wait_for(store: Path, count: int, what: str, kept: Callable[[Store], Sequence[object]]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if store.exists():
            with Store.open(store) as opened, suppress(UsageError):  # nothing was begun yet
                if len(kept(opened)) >= count:
                    return
        time.sleep(0.05)
    raise AssertionError(f"no {count} {what} in {store}")


def interrupt() -> None:
    """What Ctrl-C does."""
    raise KeyboardInterrupt
