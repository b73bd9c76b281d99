"""``--device`` as it is written, and the GPU that it names."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from xstage_tune.base.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from xstage_tune.cuda.gpu import Gpu

Kind = Literal["auto", "simulator", "cuda", "replay"]

_SPEC = re.compile(rf"(?P<kind>{'|'.join(get_args(Kind))})(:(?P<which>.+))?")
_WITH_WHICH: tuple[Kind, ...] = ("cuda", "replay")


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A ``--device`` option; ``which`` is a GPU's number or a recording's name, empty where none is given."""

    kind: Kind
    which: str = ""


def parse_device(spec: str, kinds: Collection[Kind], forms: str) -> DeviceSpec:
    """``KIND``, or ``KIND:WHICH`` of what there are several of.

    Args:
        kinds: that the command knows.
        forms: all that the command takes, as its hint lists them.

    Raises:
        UsageError: another spec.
    """
    match = _SPEC.fullmatch(spec)
    kind = next((one for one in kinds if match and one == match["kind"]), None)
    which = (match and match["which"]) or ""
    if kind is None or (which and kind not in _WITH_WHICH):
        raise UsageError(f"--device '{spec}' is unknown", f"use {forms}")
    return DeviceSpec(kind, which)


def open_gpu(number: str, otherwise: str = "") -> Gpu:
    """The GPU of that number, counted from 0; the first one where ``number`` is empty.

    Args:
        otherwise: what can be done without a GPU, for the hint.

    Raises:
        UsageError: it is no number.
        DeviceError: there is no such GPU, or no packages to run it.
    """
    number = number or "0"
    if not number.isdecimal():
        raise UsageError(f"--device 'cuda:{number}' names no GPU", "use cuda:N with N counted from 0")
    try:
        # The CUDA packages are an extra: a machine without a GPU replays and simulates without them.
        from xstage_tune.cuda.gpu import Gpu
    except ImportError as error:
        install = "pip install 'xstage-tune[cuda]'"
        raise DeviceError(
            f"the CUDA packages are not installed ({error.name})",
            f"{install}; {otherwise}" if otherwise else install,
        ) from None
    try:
        return Gpu.open(int(number))
    except DeviceError as error:
        raise DeviceError(error.message, otherwise or error.hint) from None
