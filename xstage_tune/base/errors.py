"""Errors that reach the user: one line, a hint, and the exit code of the process.

Exit codes: 0 ok; 1 finding (unstable measurement, bound violated, verification failed);
2 usage; 3 environment; 4 store; 5 internal; 130 interrupted; 143 terminated.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar

from xstage_tune.base.redaction import redacted
from xstage_tune.base.text import printable


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

    def __init__(self, message: str, hint: str = "", others: Sequence[str] = ()) -> None:
        self.message = printable(redacted(message))
        super().__init__(self.message)
        self.hint = printable(redacted(hint))
        self.others = tuple(printable(redacted(other)) for other in others)


class FindingError(XStageError):
    """The work ran, and its outcome must not be trusted or used (exit 1)."""

    exit_code = ExitCode.FINDING


class UsageError(XStageError):
    """An argument, profile or file of the user's is wrong (exit 2)."""

    exit_code = ExitCode.USAGE


class DeviceError(XStageError):
    """This machine cannot do what was asked: no GPU, no peer access, no compiler (exit 3)."""

    exit_code = ExitCode.ENVIRONMENT


class StoreError(XStageError):
    """The store cannot be opened, read or written (exit 4)."""

    exit_code = ExitCode.STORE


class RunInterrupted(XStageError):  # noqa: N818 - not an error: the user's own wish
    """The user stopped a run; what was measured is kept (exit 130, or 143 if it was by SIGTERM)."""

    exit_code = ExitCode.INTERRUPTED
