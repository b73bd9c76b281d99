"""Errors that reach the user: one line, a hint, and the exit code of the process.

Exit codes: 0 ok; 1 finding (unstable measurement, bound violated, verification failed);
2 usage; 3 environment; 4 store; 5 internal; 130 interrupted; 143 terminated.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import ClassVar, Literal

from xstage_tune.base.redaction import redacted
from xstage_tune.base.text import printable

#: What rules a kernel variant out: it does not compile, compiles to what is not worth a launch, does not
#: launch, breaks the GPU's context, does not end, computes something else, or has no time that can be used.
Fault = Literal["compile", "unusable", "launch", "fault", "timeout", "incorrect", "unstable"]


class ExitCode(IntEnum):
    """Exit status of the command line, by kind of outcome."""

    OK = 0
    FINDING = 1
    USAGE = 2
    ENVIRONMENT = 3
    STORE = 4
    INTERNAL = 5
    INTERRUPTED = 130
    TERMINATED = 143


class XStageError(Exception):
    """Base of every error shown to a user, without passwords and in lines that print.

    Args:
        message: what is wrong and where, in one line without a trailing full stop.
        hint: what to do about it, as one line; empty when nothing can be done.
        others: what else is wrong in the same place, each as ``message``.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL
    #: What it is to a search, of the variant that it was raised by.
    fault: ClassVar[Fault] = "launch"

    def __init__(self, message: str, hint: str = "", others: Sequence[str] = ()) -> None:
        self.message = printable(redacted(message))
        super().__init__(self.message)
        self.hint = printable(redacted(hint))
        self.others = tuple(printable(redacted(other)) for other in others)


class FindingError(XStageError):
    """The work ran, and its outcome must not be trusted or used (exit 1)."""

    exit_code = ExitCode.FINDING
    fault = "incorrect"


class UsageError(XStageError):
    """An argument, profile or file of the user's is wrong (exit 2)."""

    exit_code = ExitCode.USAGE


class DeviceError(XStageError):
    """This machine cannot do what was asked: no GPU, no peer access, no compiler (exit 3)."""

    exit_code = ExitCode.ENVIRONMENT


class ContextError(DeviceError):
    """A launch broke the GPU's context (an illegal access, say), or its process: nothing runs there more."""

    fault = "fault"


class DeadlineError(DeviceError):
    """What was launched did not end in time. It cannot be stopped from its own process."""

    fault = "timeout"


class DeviceLost(DeviceError):  # noqa: N818 - named for what became of the device
    """The device is gone: it is of no variant that it runs nothing any more."""


class StoreError(XStageError):
    """The store cannot be opened, read or written (exit 4)."""

    exit_code = ExitCode.STORE


class RunInterrupted(XStageError):  # noqa: N818 - not an error: the user's own wish
    """The user stopped a run; what was measured is kept (exit 130, or 143 if it was by SIGTERM)."""

    exit_code = ExitCode.INTERRUPTED


def described(error: BaseException) -> str:
    """An error that is none of ours: its type, its first line, and where it was raised."""
    lines = str(error).strip().splitlines()
    message = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    return f"{message} ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else message
