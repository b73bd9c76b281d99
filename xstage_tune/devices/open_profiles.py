"""From ``--device`` to where an attention is profiled."""

from __future__ import annotations

from xstage_tune.base.errors import DeviceError
from xstage_tune.devices.spec import DeviceSpec, open_gpu, parse_device
from xstage_tune.families.attention_a2a.recording import PROFILE
from xstage_tune.families.attention_a2a.replay import ReplayedProfiles
from xstage_tune.families.attention_a2a.timing import ProfileDevice
from xstage_tune.launches.archive import recording_file

_WITHOUT_GPU = "--device replay:FILE shows a recorded run; emulate and audit predict without a GPU"
_HOPPER = "sm_90"


def parse_spec(spec: str) -> DeviceSpec:
    """``auto``, which is the first GPU, ``cuda[:N]`` or ``replay[:NAME|FILE]``.

    Raises:
        UsageError: another spec.
    """
    return parse_device(spec, ("auto", "cuda", "replay"), "auto, cuda, cuda:N, replay or replay:FILE")


def open_replay(which: str) -> ReplayedProfiles:
    """The recording of that name, or in that file.

    Raises:
        UsageError: there is no such recording, or it is damaged.
    """
    return ReplayedProfiles(recording_file(which, PROFILE.suffix))


def open_cuda_profiles(which: str) -> ProfileDevice:
    """GPU number ``which``.

    Raises:
        UsageError: it is no number.
        DeviceError: there is no such GPU, it is no Hopper, or there are no packages to run it.
    """
    gpu = open_gpu(which, _WITHOUT_GPU)  # says so where the CUDA packages are missing
    found = gpu.describe()
    if not found.architecture.startswith(_HOPPER):
        gpu.close()
        raise DeviceError(
            f"{found.name} is of architecture {found.architecture}: the attention kernel needs sm_90a "
            "(Hopper: H100, H200)",
            _WITHOUT_GPU,
        )
    from xstage_tune.cuda.attention_profiles import CudaProfiles

    return CudaProfiles(gpu)
