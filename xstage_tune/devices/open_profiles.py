"""From ``--device`` to where an attention is profiled."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from xstage_tune.devices.archive import shipped_file
from xstage_tune.devices.attention_profiles import ProfileDevice
from xstage_tune.devices.attention_recording import SUFFIX
from xstage_tune.devices.attention_replay import DEFAULT_RECORDING, ReplayedProfiles
from xstage_tune.errors import DeviceError, UsageError

_SPEC = re.compile(r"(?P<kind>auto|cuda|replay)(:(?P<which>.+))?")
_WITHOUT_GPU = "--device replay:FILE shows a recorded run; emulate and audit predict without a GPU"
_HOPPER = "sm_90"


@dataclass(frozen=True, slots=True)
class ProfileSpec:
    """A ``--device`` option; ``which`` is a GPU's number or a recording's name, empty where none is given."""

    kind: Literal["cuda", "replay"]
    which: str = ""


def parse_spec(spec: str) -> ProfileSpec:
    """``auto``, which is the first GPU, ``cuda[:N]`` or ``replay[:NAME|FILE]``.

    Raises:
        UsageError: another spec.
    """
    match = _SPEC.fullmatch(spec)
    if match is None or (match["which"] and match["kind"] == "auto"):
        raise UsageError(f"--device '{spec}' is unknown", "use auto, cuda, cuda:N, replay or replay:FILE")
    if match["kind"] == "replay":
        return ProfileSpec("replay", match["which"] or "")
    return ProfileSpec("cuda", match["which"] or "0")


def open_replay(spec: ProfileSpec) -> ReplayedProfiles:
    """The recording of a ``replay`` spec.

    Raises:
        UsageError: there is no such recording, or it is damaged.
    """
    return ReplayedProfiles(shipped_file(spec.which or DEFAULT_RECORDING, SUFFIX))


def open_cuda_profiles(which: str) -> ProfileDevice:
    """GPU number ``which``.

    Raises:
        UsageError: it is no number.
        DeviceError: there is no such GPU, it is no Hopper, or there are no packages to run it.
    """
    if not which.isdecimal():
        raise UsageError(f"--device 'cuda:{which}' names no GPU", "use cuda:N with N counted from 0")
    try:
        # The CUDA packages are an extra: a machine without a GPU replays without them.
        from xstage_tune.devices.cuda.attention_profiles import CudaProfiles
    except ImportError as error:
        raise DeviceError(
            f"the CUDA packages are not installed ({error.name})",
            f"pip install 'xstage-tune[cuda]'; {_WITHOUT_GPU}",
        ) from None
    try:
        device = CudaProfiles.open(int(which))
    except DeviceError as error:
        raise DeviceError(error.message, _WITHOUT_GPU) from None
    found = device.describe()
    if not found.architecture.startswith(_HOPPER):
        device.close()
        raise DeviceError(
            f"{found.name} is of architecture {found.architecture}: the attention kernel needs sm_90a "
            "(Hopper: H100, H200)",
            _WITHOUT_GPU,
        )
    return device
