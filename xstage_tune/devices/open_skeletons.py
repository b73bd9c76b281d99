"""From ``--device`` to where skeletons run."""

from __future__ import annotations

from xstage_tune.devices.spec import DeviceSpec, open_gpu, parse_device
from xstage_tune.launches.archive import recording_file
from xstage_tune.launches.skeleton_recording import EMULATION
from xstage_tune.launches.skeleton_replay import ReplayedSkeletons
from xstage_tune.launches.skeletons import SkeletonDevice

_WITHOUT_GPU = (
    "--device simulator predicts the same from a calibrated platform; --device replay:FILE shows what ran"
)


def parse_spec(spec: str) -> DeviceSpec:
    """``auto``, ``simulator``, ``cuda[:N]`` or ``replay[:NAME|FILE]``.

    Raises:
        UsageError: another spec.
    """
    forms = "auto, cuda, cuda:N, simulator, replay or replay:FILE"
    return parse_device(spec, ("auto", "simulator", "cuda", "replay"), forms)


def open_replay(which: str) -> ReplayedSkeletons:
    """The recording of that name, or in that file.

    Raises:
        UsageError: there is no such recording, or it is damaged.
    """
    return ReplayedSkeletons(recording_file(which, EMULATION.suffix))


def open_cuda_skeletons(which: str) -> SkeletonDevice:
    """GPU number ``which``.

    Raises:
        UsageError: it is no number.
        DeviceError: there is no such GPU, or no packages to run it.
    """
    gpu = open_gpu(which, _WITHOUT_GPU)  # says so where the CUDA packages are missing
    from xstage_tune.cuda.skeletons import CudaSkeletons

    return CudaSkeletons(gpu)
