"""From ``--device`` to a device."""

from __future__ import annotations

import re
from collections.abc import Callable

from xstage_tune.devices.base import BurstDevice
from xstage_tune.devices.replay import DEFAULT_RECORDING, ReplayDevice, recording_file
from xstage_tune.errors import DeviceError, UsageError

_SPEC = re.compile(r"auto|(?P<kind>cuda|replay)(:(?P<which>.+))?")


def open_device(spec: str, notify: Callable[[str], None]) -> BurstDevice:
    """Open ``auto`` (the first GPU, else the shipped recording), ``cuda[:N]`` or ``replay[:NAME|FILE]``.

    ``notify`` is told when ``auto`` falls back to the recording, and why.

    Raises:
        UsageError: another spec, or no such recording.
        DeviceError: ``cuda`` was asked for and cannot run here.
    """
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise UsageError(
            f"--device '{spec}' is unknown", "use auto, cuda, cuda:N, replay, replay:NAME or replay:FILE"
        )
    kind, which = match["kind"], match["which"]
    if kind == "replay":
        return ReplayDevice(recording_file(which or DEFAULT_RECORDING))
    if kind == "cuda":
        return _open_cuda(which or "0")
    try:
        return _open_cuda("0")
    except DeviceError as error:
        notify(f"no GPU to run on: {error.message}; replaying the recording '{DEFAULT_RECORDING}'")
        return ReplayDevice(recording_file(DEFAULT_RECORDING))


def _open_cuda(which: str) -> BurstDevice:
    if not which.isdecimal():
        raise UsageError(f"--device 'cuda:{which}' names no GPU", "use cuda:N with N counted from 0")
    try:
        # The CUDA packages are an extra: a machine without a GPU replays, audits and searches without them.
        from xstage_tune.devices.cuda.device import CudaDevice
    except ImportError as error:
        raise DeviceError(
            f"the CUDA packages are not installed ({error.name})", "pip install 'xstage-tune[cuda]'"
        ) from None
    return CudaDevice.open(int(which))
