"""From ``--device`` to where skeletons run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from xstage_tune.devices.archive import shipped_file
from xstage_tune.devices.skeleton_recording import SUFFIX
from xstage_tune.devices.skeleton_replay import DEFAULT_RECORDING, ReplayedSkeletons
from xstage_tune.devices.skeletons import SkeletonDevice
from xstage_tune.errors import DeviceError, UsageError

_SPEC = re.compile(r"(?P<kind>auto|simulator|cuda|replay)(:(?P<which>.+))?")
_WITHOUT_GPU = (
    "--device simulator predicts the same from a calibrated platform; --device replay has a real run"
)


@dataclass(frozen=True, slots=True)
class SkeletonSpec:
    """A ``--device`` option; ``which`` is a GPU's number or a recording's name, empty where none is given."""

    kind: Literal["auto", "simulator", "cuda", "replay"]
    which: str = ""


def parse_spec(spec: str) -> SkeletonSpec:
    """``auto``, ``simulator``, ``cuda[:N]`` or ``replay[:NAME|FILE]``.

    Raises:
        UsageError: another spec.
    """
    match = _SPEC.fullmatch(spec)
    if match is None or (match["which"] and match["kind"] in ("auto", "simulator")):
        raise UsageError(
            f"--device '{spec}' is unknown", "use auto, cuda, cuda:N, simulator, replay or replay:FILE"
        )
    kind = match["kind"]
    if kind == "cuda":
        return SkeletonSpec("cuda", match["which"] or "0")
    if kind == "replay":
        return SkeletonSpec("replay", match["which"] or "")
    return SkeletonSpec("auto" if kind == "auto" else "simulator")


def open_replay(spec: SkeletonSpec) -> ReplayedSkeletons:
    """The recording of a ``replay`` spec.

    Raises:
        UsageError: there is no such recording, or it is damaged.
    """
    return ReplayedSkeletons(shipped_file(spec.which or DEFAULT_RECORDING, SUFFIX))


def open_cuda_skeletons(which: str) -> SkeletonDevice:
    """GPU number ``which``.

    Raises:
        UsageError: it is no number.
        DeviceError: there is no such GPU, or no packages to run it.
    """
    if not which.isdecimal():
        raise UsageError(f"--device 'cuda:{which}' names no GPU", "use cuda:N with N counted from 0")
    try:
        # The CUDA packages are an extra: a machine without a GPU simulates and replays without them.
        from xstage_tune.devices.cuda.skeletons import CudaSkeletons
    except ImportError as error:
        raise DeviceError(
            f"the CUDA packages are not installed ({error.name})",
            f"pip install 'xstage-tune[cuda]'; {_WITHOUT_GPU}",
        ) from None
    try:
        return CudaSkeletons.open(int(which))
    except DeviceError as error:
        raise DeviceError(error.message, _WITHOUT_GPU) from None
