"""The outcome of the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from xstage_tune.base.errors import XStageError
from xstage_tune.base.provenance import Software

#: ``fail``: the check ran, and what it looked at is wrong. ``error``: the check broke off. ``not-run``: what
#: the check needs is not there.
Status = Literal["ok", "warn", "fail", "error", "not-run"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str  # stable, e.g. "path.host"
    status: Status
    seen: str  # what was found, or why it could not be looked at
    advice: str = ""  # what to do; empty where there is nothing to do


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """What was asked about, what works, and every check in the order in which one thing needs another."""

    device: str  # as asked for
    runnable: bool  # False when ``device`` names a GPU that cannot be calibrated
    commands: tuple[str, ...]  # calibrations that can run here
    software: Software
    checks: tuple[Check, ...]

    def failed(self) -> list[Check]:
        """The checks that found something wrong."""
        return [check for check in self.checks if check.status in ("fail", "error")]


def guarded(name: str, check: Callable[[], Iterable[Check]]) -> tuple[Check, ...]:
    """The checks of one area; an error of ours that stops it becomes a row of its own."""
    try:
        return tuple(check())
    except XStageError as error:
        return (Check(name, "error", error.message, error.hint),)
