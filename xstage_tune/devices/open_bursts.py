"""From ``--device`` to where calibration runs."""

from __future__ import annotations

from collections.abc import Callable

from xstage_tune.base.errors import DeviceError
from xstage_tune.devices.spec import open_gpu, parse_device
from xstage_tune.launches.archive import DEFAULT_RECORDING, recording_file
from xstage_tune.launches.burst_recording import CALIBRATION
from xstage_tune.launches.burst_replay import ReplayedBursts
from xstage_tune.launches.device import BurstDevice


def open_device(spec: str, notify: Callable[[str], None]) -> BurstDevice:
    """Open ``auto`` (the first GPU, else the shipped recording), ``cuda[:N]`` or ``replay[:NAME|FILE]``.

    ``notify`` is told when ``auto`` falls back to the recording, and why.

    Raises:
        UsageError: another spec, or no such recording.
        DeviceError: ``cuda`` was asked for and cannot run here.
    """
    forms = "auto, cuda, cuda:N, replay, replay:NAME or replay:FILE"
    asked = parse_device(spec, ("auto", "cuda", "replay"), forms)
    if asked.kind == "replay":
        return _open_replay(asked.which)
    try:
        return _open_cuda(asked.which)
    except DeviceError as error:
        if asked.kind == "cuda":
            raise
        notify(f"no GPU to run on: {error.message}; replaying the recording '{DEFAULT_RECORDING}'")
        return _open_replay(DEFAULT_RECORDING)


def _open_replay(which: str) -> BurstDevice:
    return ReplayedBursts(recording_file(which, CALIBRATION.suffix))


def _open_cuda(which: str) -> BurstDevice:
    gpu = open_gpu(which)  # says so where the CUDA packages are missing
    from xstage_tune.cuda.burst_device import CudaBursts

    return CudaBursts(gpu)
