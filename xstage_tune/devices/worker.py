"""A process that runs one function at a time, and can be ended whatever it does."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

from xstage_tune.base.errors import ContextError, XStageError, described

Answer = TypeVar("Answer")

#: For a process to begin, and to end by itself.
BEGIN_S = 120.0
#: What asking may raise beside what the function does.
NO_ANSWER = (TimeoutError, BrokenProcessPool)


class Worker:
    """A process of the standard library's executor.

    Raises:
        TimeoutError, BrokenProcessPool: it does not begin.
    """

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_stand_alone)
        self._pid = 0
        try:
            self._pid = self.ask(os.getpid, timeout_s=BEGIN_S)
        except BaseException:
            self.kill()
            raise

    def ask(self, function: Callable[..., Answer], *arguments: Any, timeout_s: float) -> Answer:
        """What a function returns there.

        Raises:
            TimeoutError: it did not end in time.
            BrokenProcessPool: the process ended.
            XStageError: what it raised; another exception of its as a :class:`ContextError`.
        """
        future: Future[Answer] = self._pool.submit(_answer, function, arguments)
        return future.result(timeout=timeout_s)

    def end(self) -> None:
        """Let the process end by itself; it must be idle."""
        self._pool.shutdown()

    def kill(self) -> None:
        """End the process, whatever it does."""
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._pool.shutdown(wait=False, cancel_futures=True)


# In the process.


def _stand_alone() -> None:
    """Leave Ctrl-C and SIGTERM to the parent, and end with it: alone this would keep the GPU."""
    # Both may be sent to all processes of a job: what ends here is then no fault of what runs here.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _answer(function: Callable[..., Answer], arguments: tuple[Any, ...]) -> Answer:
    try:
        return function(*arguments)
    except XStageError:
        raise
    except BaseException as error:
        # Whether others can be pickled nobody knows, and one that ends a program is no answer.
        raise ContextError(described(error)) from None
