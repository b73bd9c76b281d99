"""Ctrl-C: it ends the program where that is safe, and is never lost.

Python runs a signal's handler wherever its interpreter next gets a turn, and ``KeyboardInterrupt`` comes out
of that place. Two kinds of places are wrong for it. Native code that gave a turn to Python may go on as
though nothing had happened, return a result beside the exception, or raise an error of its own instead. And
callbacks whose caller cannot raise (finalisers, weak references, callbacks from C) print it and drop it.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class Stopped(KeyboardInterrupt):
    """Ctrl-C in a program that listens.

    Not the built-in itself: once that has left an ``exec`` of text, which dataclasses and numba use, CPython
    kills the program by SIGINT at its end, whatever was caught and whatever exit code was set since.
    """


class _Asked:
    """Whether the user has asked this process to stop."""

    so_far = False


def listen() -> None:
    """Turn Ctrl-C into :class:`Stopped`, and remember it; for the program, which has the signal to itself.

    A job that a script began in the background is deaf to it, and stays so: it was not meant.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _stop)
        sys.unraisablehook = _report_dropped


def asked_to_stop() -> bool:
    """Whether the user has stopped the program: what fails from then on fails because of it."""
    return _Asked.so_far


def stop_if_asked() -> None:
    """Raise again what a callback dropped.

    Raises:
        Stopped: the user has asked the program to stop.
    """
    if asked_to_stop():
        raise Stopped


def finish() -> None:
    """Let nothing change the exit code any more.

    CPython gives the signal its default action back before it has freed everything, which takes tenths of a
    second here: the program would die of a Ctrl-C then, though its work is done.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """A block that Ctrl-C does not end but at its own end, or where it calls what it is given.

    Only the main thread has signals; elsewhere, and where they are ignored, this does nothing.

    Raises:
        KeyboardInterrupt: the user stopped the program meanwhile.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield lambda: None
        return
    received: list[tuple[int, FrameType | None]] = []

    def deliver() -> None:
        if received:
            handler(*received.pop())

    signal.signal(signal.SIGINT, lambda number, frame: received.append((number, frame)))
    try:
        yield deliver
    finally:
        signal.signal(signal.SIGINT, handler)
        deliver()


def _report_dropped(dropped: sys.UnraisableHookArgs) -> None:
    """What Python reports of an exception in a callback; of a stop, which is remembered, nothing."""
    if not issubclass(dropped.exc_type, Stopped):
        sys.__unraisablehook__(dropped)


def _stop(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - what a handler is given
    _Asked.so_far = True
    raise Stopped
