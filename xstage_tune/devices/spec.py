"""``--device`` as it is written: what each command takes, and what it falls back to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from xstage_tune.base.errors import UsageError

Kind = Literal["auto", "simulator", "cuda", "replay", "emulate"]

_SPEC = re.compile(rf"(?P<kind>{'|'.join(get_args(Kind))})(:(?P<which>.+))?")
_NUMBERED: tuple[Kind, ...] = ("cuda", "emulate")


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A ``--device`` option; ``which`` is a GPU's number or a recording's name, empty where none is given."""

    kind: Kind
    which: str = ""


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What a command does with ``--device``.

    Args:
        command: its name.
        kinds: that it takes.
        without_gpu: what can be done without a GPU, for hints.
    """

    command: str
    kinds: tuple[Kind, ...]
    without_gpu: str = ""

    def parse(self, spec: str) -> DeviceSpec:
        """``KIND``, or ``KIND:WHICH`` of what there are several of.

        Raises:
            UsageError: another spec.
        """
        match = _SPEC.fullmatch(spec)
        kind = next((one for one in self.kinds if match and one == match["kind"]), None)
        which = (match and match["which"]) or ""
        if kind is None or (which and kind not in (*_NUMBERED, "replay")):
            raise UsageError(f"--device '{spec}' is unknown", f"use {self._forms()}")
        if kind in _NUMBERED and which and not which.isdecimal():
            raise UsageError(f"--device '{spec}' names no GPU", f"use {kind}:N with N counted from 0")
        return DeviceSpec(kind, which)

    def _forms(self) -> str:
        more = {"cuda": ("cuda:N",), "emulate": ("emulate:N",), "replay": ("replay:NAME", "replay:FILE")}
        *others, last = (form for kind in self.kinds for form in (kind, *more.get(kind, ())))
        return f"{', '.join(others)} or {last}"


CALIBRATE = DeviceUse("calibrate", ("auto", "cuda", "simulator", "replay"))
EMULATE = DeviceUse(
    "emulate",
    ("auto", "cuda", "simulator", "replay"),
    "--device simulator predicts the same from a calibrated platform; --device replay:FILE shows what ran",
)
PROFILE = DeviceUse(
    "profile",
    ("auto", "cuda", "replay"),
    "--device replay shows a recorded run; emulate and audit predict without a GPU",
)
SEARCH = DeviceUse(
    "search",
    ("auto", "cuda", "simulator", "emulate", "replay"),
    "--device simulator searches without one",
)
VERIFY = DeviceUse("verify", ("auto", "cuda", "replay"), "--device replay:FILE.xstune has a space on record")
#: Its checks run what a calibration does.
DOCTOR = DeviceUse("calibrate", ("auto", "cuda", "replay"))
