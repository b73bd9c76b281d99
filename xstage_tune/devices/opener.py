"""Opens what ``--device`` names: the runners that a command needs, on a GPU; a simulation; a recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from xstage_tune.base.errors import DeviceError
from xstage_tune.devices.emulated_kernels import EmulatedKernels
from xstage_tune.devices.platform_choice import accept_gpu
from xstage_tune.devices.spec import CALIBRATE, EMULATE, PROFILE, SEARCH, DeviceSpec, DeviceUse
from xstage_tune.launches.device import Device
from xstage_tune.launches.recording import recording_file
from xstage_tune.launches.replay import ReplayedDevice
from xstage_tune.platforms.schema import PlatformProfile

if TYPE_CHECKING:
    from xstage_tune.cuda.gpu import Gpu
    from xstage_tune.launches.device import Runner

_HOPPER = "sm_90"


def open_replay(use: DeviceUse, which: str = "") -> ReplayedDevice:
    """The recording of that name, or in that file.

    Raises:
        UsageError: there is no such recording, it is damaged, or of another command.
    """
    return ReplayedDevice(recording_file(which, use.command), use.command)


def open_simulator(platform: PlatformProfile, *, seed: int = 0) -> Device:
    """A platform, simulated; ``seed`` is that of skeletons' start times."""
    # numba is not imported where nothing is simulated.
    from xstage_tune.simulator.device import SimulatedDevice

    return SimulatedDevice(platform, seed=seed)


def open_cuda(use: DeviceUse, which: str = "") -> Device:
    """GPU number ``which``, with the runners of a command.

    Raises:
        DeviceError: there is no such GPU, it cannot run them, or there are no packages to run it.
    """
    gpu = _open_gpu(which, use.without_gpu)  # says so where the CUDA packages are missing
    from xstage_tune.cuda.device import CudaDevice

    try:
        return CudaDevice(gpu, [_RUNNERS[use.command](gpu)])
    except BaseException:
        gpu.close()
        raise


def open_any_cuda(
    spec: DeviceSpec, use: DeviceUse, notify: Callable[[str], None], otherwise: str
) -> Device | None:
    """The GPU that ``cuda`` or ``auto`` names; None where ``auto`` finds none to run on.

    Args:
        notify: is told so, and why.
        otherwise: what the command does then.

    Raises:
        DeviceError: ``cuda`` was asked for and cannot run here.
    """
    try:
        return open_cuda(use, spec.which)
    except DeviceError as error:
        if spec.kind == "cuda":
            raise
        notify(f"no GPU to run on: {error.message}; {otherwise}")
        return None


def open_kernels(
    spec: DeviceSpec, platform: PlatformProfile, notify: Callable[[str], None], *, force: bool = False
) -> Device:
    """Where a search runs kernels: ``auto`` is the simulator; ``emulate`` their skeletons on a GPU.

    Args:
        notify: is told of a platform of another GPU, which ``force`` accepts.

    Raises:
        UsageError: ``emulate`` with a platform of another GPU.
        DeviceError: ``emulate`` without a GPU; or ``cuda``: search does not run fused kernels.
    """
    if spec.kind == "emulate":
        gpu = open_cuda(EMULATE, spec.which)
        try:
            other = accept_gpu(gpu.describe(), platform, platform.path, notify) if force else ""
            return EmulatedKernels(gpu, platform, other)
        except BaseException:
            gpu.close()
            raise
    if spec.kind == "cuda":
        shown = f"cuda:{spec.which}" if spec.which else "cuda"
        raise DeviceError(
            f"--device {shown}: search does not run fused kernels in this version",
            "use --device emulate (their skeletons) or simulator; profile runs the fused attention",
        )
    return open_simulator(platform)


def _bursts(gpu: Gpu) -> Runner:
    from xstage_tune.cuda.burst_device import CudaBursts

    return CudaBursts(gpu)


def _skeletons(gpu: Gpu) -> Runner:
    from xstage_tune.cuda.skeletons import CudaSkeletons

    return CudaSkeletons(gpu)


def _attentions(gpu: Gpu) -> Runner:
    found = gpu.describe()
    if not found.architecture.startswith(_HOPPER):
        raise DeviceError(
            f"{found.name} is of architecture {found.architecture}: the attention kernel needs sm_90a "
            "(Hopper: H100, H200)",
            PROFILE.without_gpu,
        )
    from xstage_tune.cuda.attention_profiles import CudaAttentions

    return CudaAttentions(gpu)


#: What runs a command's launches on a GPU.
_RUNNERS: dict[str, Callable[[Gpu], Runner]] = {
    CALIBRATE.command: _bursts,
    EMULATE.command: _skeletons,
    PROFILE.command: _attentions,
    SEARCH.command: _attentions,
}


def _open_gpu(number: str, otherwise: str) -> Gpu:
    """The GPU of that number, counted from 0; the first one where ``number`` is empty.

    Args:
        otherwise: what can be done without a GPU, for the hint.

    Raises:
        DeviceError: there is no such GPU, or no packages to run it.
    """
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
        return Gpu.open(int(number or "0"))
    except DeviceError as error:
        raise DeviceError(error.message, otherwise or error.hint) from None
