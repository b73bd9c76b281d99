"""A command in a process of its own, for what cannot be done to the test's: stopping it, filling its disk."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from xstage_tune.base import interrupts
from xstage_tune.base.errors import UsageError
from xstage_tune.store.facade import Store

#: Of processes that are forked from one that has everything imported.
WARM = multiprocessing.get_context("forkserver")
WARM.set_forkserver_preload(["tests.warm"])


class WarmProcess:
    """A program that runs in a process of its own, and the files of what it writes."""

    def __init__(self, process: ForkServerProcess, stdout: Path, stderr: Path) -> None:
        self._process, self._stdout, self._stderr = process, stdout, stderr

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """How it ended, as :mod:`subprocess` has it; None while it runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> bool:
        """Whether it ends in that time."""
        self._process.join(timeout_s)
        return self.returncode is not None

    def communicate(self, timeout_s: float) -> tuple[str, str]:
        """What it wrote to stdout and stderr, once it has ended."""
        assert self.wait(timeout_s)
        return self._stdout.read_text(), self._stderr.read_text()


def start_command(
    folder: Path, *arguments: str, at: Path | None = None, environment: Mapping[str, str] = os.environ
) -> WarmProcess:
    """``xstage-tune arguments`` in a process that has everything imported, so that it is soon at work.

    It works in ``at``, what it writes goes to ``folder``. The first one of a test run waits until all is
    imported.
    """
    return _started(folder, "xstage_tune", arguments, at or Path.cwd(), environment)


def start(folder: Path, module: str, *arguments: str, **environment: str) -> WarmProcess:
    """``python -m module arguments`` in such a process."""
    return _started(folder, module, arguments, Path.cwd(), {**os.environ, **environment})


def _started(
    folder: Path, module: str, arguments: tuple[str, ...], at: Path, environment: Mapping[str, str]
) -> WarmProcess:
    stdout, stderr = (folder / f"{time.monotonic_ns()}.{name}" for name in ("stdout", "stderr"))
    given = (module, arguments, dict(environment), at, stdout, stderr)
    process = WARM.Process(target=_run, args=given)
    process.start()
    while not stderr.exists() and process.is_alive():
        time.sleep(0.001)
    return WarmProcess(process, stdout, stderr)


def _run(
    module: str, arguments: tuple[str, ...], environment: dict[str, str], at: Path, stdout: Path, stderr: Path
) -> None:
    _hold_stops_until_it_listens()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(at)
    for number, file in ((1, stdout), (2, stderr)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__")


def _hold_stops_until_it_listens() -> None:
    """Else one that comes at once would end a process that is no command yet."""
    stops = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    listen = interrupts.listen

    def listening() -> None:
        listen()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stops)

    interrupts.listen = listening


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
