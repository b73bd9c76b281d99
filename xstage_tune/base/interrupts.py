"""Ctrl-C and SIGTERM: they end the program where that is safe, and are never lost.

SIGTERM is what Slurm, Kubernetes and ``timeout`` send, some time before they kill.

Python runs a signal's handler wherever its interpreter next gets a turn, and ``KeyboardInterrupt`` comes out
of that place. Two kinds of places are wrong for it. Native code that gave a turn to Python may go on as
though nothing had happened, return a result beside the exception, or raise an error of its own instead. And
callbacks whose caller cannot raise (finalisers, weak references, callbacks from C) print it and drop it.

Only the first signal is raised: a second one just behind it would break into the clean end that the first
began. Ctrl-C some time later means that this end takes too long, and ends the process at once; what was
committed to the store is kept.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType

from xstage_tune.base.errors import ExitCode

_EXIT_CODES = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}

#: A second Ctrl-C counts from then on: before, it is of the same impatient hand, or a bouncing key.
_CLEAN_END_S = 1.0

_Handler = Callable[[int, FrameType | None], object]


class Stopped(KeyboardInterrupt):
    """Ctrl-C, or SIGTERM, in a program that listens.

    Not the built-in itself: once that has left an ``exec`` of text, which dataclasses and numba use, CPython
    kills the program by SIGINT at its end, whatever was caught and whatever exit code was set since.
    """


class _Asked:
    """By which signal this process was first asked to stop, and when; and whether its work is done."""

    by: signal.Signals | None = None
    at_s: float = 0.0
    done: bool = False


def listen() -> None:
    """Turn the signals into :class:`Stopped`, and remember them; for the program, which has them to itself.

    One that is ignored stays so: a job that a script began in the background is deaf to Ctrl-C, which was
    not meant for it.
    """
    for number in _EXIT_CODES:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    sys.unraisablehook = _report_dropped
    sys.excepthook = _report_uncaught


def asked_to_stop() -> bool:
    """Whether the program was asked to stop: what fails from then on fails because of it."""
    return _Asked.by is not None


def exit_code() -> ExitCode:
    """Exit code of a program that was stopped: of SIGTERM, else of Ctrl-C."""
    return _EXIT_CODES[_Asked.by or signal.SIGINT]


def stopped_by() -> str:
    """Who stopped the program, for the record."""
    return "SIGTERM" if _Asked.by is signal.SIGTERM else "the user"


def stop_if_asked() -> None:
    """Raise again what a callback dropped.

    Raises:
        Stopped: the program was asked to stop.
    """
    if asked_to_stop():
        raise Stopped


def finish() -> None:
    """Let nothing change the exit code any more.

    CPython gives the signals their default action back before it has freed everything, which takes tenths of
    a second here: the program would die of one then, though its work is done.
    """
    _Asked.done = True
    for number in _EXIT_CODES:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """A block that the signals do not end but at its own end, or where it calls what it is given.

    Only the main thread has signals; elsewhere, and where they are ignored or kill, this does nothing.

    Raises:
        KeyboardInterrupt: the program was asked to stop meanwhile.
    """
    handlers: dict[int, _Handler] = {}
    if threading.current_thread() is threading.main_thread():
        found = {number: signal.getsignal(number) for number in _EXIT_CODES}
        handlers = {number: handler for number, handler in found.items() if callable(handler)}
    received: list[tuple[int, FrameType | None]] = []
    holding = True

    def take(number: int, frame: FrameType | None) -> None:
        if holding:
            received.append((number, frame))
        else:  # a signal came while the handlers were given back, and ended that
            handlers[number](number, frame)

    def deliver() -> None:
        if received:
            number, frame = received.pop(0)
            received.clear()
            handlers[number](number, frame)

    try:
        for number in handlers:
            signal.signal(number, take)
        yield deliver
    finally:
        holding = False
        for number, handler in handlers.items():
            signal.signal(number, handler)
        deliver()


def _report_dropped(dropped: sys.UnraisableHookArgs) -> None:
    """What Python reports of an exception in a callback: nothing once the program is to stop.

    A stop is remembered, and objects that it left half made fail in their finalisers.
    """
    if not asked_to_stop():
        sys.__unraisablehook__(dropped)


def _report_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What Python prints of what nobody caught: of a stop nothing.

    It may come in the program's first and last lines, where nothing stands around to catch it.
    """
    if not isinstance(error, Stopped):
        sys.__excepthook__(kind, error, trace)
        return
    with suppress(OSError, ValueError):  # a reader that is gone, a stream that is closed
        sys.stdout.flush()
    os._exit(exit_code())


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what a handler is given
    if _Asked.done:
        return
    if _Asked.by is None:
        _Asked.by, _Asked.at_s = signal.Signals(number), time.monotonic()
        raise Stopped
    if number == signal.SIGINT and time.monotonic() - _Asked.at_s > _CLEAN_END_S:
        os.write(2, b"xstage-tune: stopped at once; what was committed is kept\n")
        os._exit(exit_code())
