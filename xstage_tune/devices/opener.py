"""Opens what ``--device`` names: the runners that a command needs, on a GPU; a simulation; a recording."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.devices.compile_ahead import CompileAhead, CompilingDevice, KernelBuilder
from xstage_tune.devices.emulated_kernels import EmulatedKernels
from xstage_tune.devices.fused_kernels import fused_kernel, has_kernel, profiling_runner, require_kernel
from xstage_tune.devices.isolated import DEFAULT_DEADLINE_S, IsolatedDevice
from xstage_tune.devices.platform_choice import accept_gpu
from xstage_tune.devices.present_gpu import present_gpu
from xstage_tune.devices.process_kernels import ProcessKernels, open_process_kernels
from xstage_tune.devices.recorded_kernels import ReplayedKernels
from xstage_tune.devices.spec import CALIBRATE, EMULATE, PROFILE, SEARCH, DeviceSpec, DeviceUse
from xstage_tune.families.binding import family_of
from xstage_tune.families.kernel_launch import OTHER_GPU
from xstage_tune.families.workload import Workload
from xstage_tune.launches.device import Device
from xstage_tune.launches.recording import recording_file
from xstage_tune.launches.replay import ReplayedDevice
from xstage_tune.launches.requirements import require_device
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


def open_cuda(use: DeviceUse, which: str = "", kind: str = "") -> Device:
    """GPU number ``which``, with the runners of a command.

    Args:
        kind: of the workload, where they differ by it.

    Raises:
        DeviceError: there is no such GPU, it cannot run them, or there are no packages to run it.
    """
    gpu = _open_gpu(which, use.without_gpu)  # says so where the CUDA packages are missing
    from xstage_tune.cuda.device import CudaDevice

    try:
        runner = _profiles(gpu, kind) if use is PROFILE else _RUNNERS[use.command](gpu)
        return CudaDevice(gpu, [runner])
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
    spec: DeviceSpec,
    platform: PlatformProfile,
    notify: Callable[[str], None],
    *,
    kind: str,
    workload: Workload | None = None,
    force: bool = False,
    deadline_s: float = DEFAULT_DEADLINE_S,
) -> Device:
    """Where a search runs kernels of a kind of workload.

    ``cuda``: the kernels, in a process of their own. ``emulate``: their skeletons on a GPU. ``auto``: the
    kernels where there are some and a GPU that the platform is of, else the simulator. ``replay``: kernels as
    they were measured. A kernel of the user's own is measured by its process, under ``auto``.

    Args:
        workload: the only one that is to be searched; None for many.
        notify: is told what ``auto`` takes, and of a platform of another GPU, which ``force`` accepts.
        deadline_s: of one launch on a GPU.

    Raises:
        UsageError: a GPU with a platform of another one.
        DeviceError: there is no such GPU, or no kernel of this kind.
    """
    process = None if workload is None else family_of(workload).process_of(workload)
    if process is not None and spec.kind != "replay":
        if spec.kind != "auto":
            raise UsageError(
                f"--device {spec.kind} knows nothing of a kernel of your own: its process measures it",
                "leave out --device, or replay:FILE.xstune",
            )
        return open_process_kernels(process, platform, force=force)
    if spec.kind == "emulate":
        gpu = open_cuda(EMULATE, spec.which)
        try:
            other = accept_gpu(gpu.describe(), platform, platform.path, notify) if force else ""
            return EmulatedKernels(gpu, platform, other)
        except BaseException:
            gpu.close()
            raise
    if spec.kind == "replay":
        replayed = _replayed_kernels(spec.which, workload)
        try:
            if process is None:  # what the user's process ran on only that process knows
                require_device(replayed.describe(), platform, platform.path)
        except BaseException:
            replayed.close()
            raise
        return replayed
    if spec.kind == "cuda":
        return _isolated_kernels(spec.which, kind, workload, platform, notify, force, deadline_s)
    if spec.kind == "auto" and has_kernel(kind, workload) and present_gpu() is not None:
        try:
            return _isolated_kernels("", kind, workload, platform, notify, force, deadline_s)
        except (DeviceError, UsageError) as error:
            notify(f"no kernel is timed: {error.message}; simulating")
    return open_simulator(platform)


def _isolated_kernels(
    which: str,
    kind: str,
    workload: Workload | None,
    platform: PlatformProfile,
    notify: Callable[[str], None],
    force: bool,
    deadline_s: float,
) -> Device:
    device = _in_processes(kind, workload, which, deadline_s)
    try:
        found = device.describe()
        other = ""
        if force:
            other = accept_gpu(found, platform, platform.path, notify)
        else:
            require_device(found, platform, platform.path)
    except BaseException:
        device.close()
        raise
    device.identity += f"{OTHER_GPU}{other}" if other else ""
    return device


def open_measured_kernels(spec: DeviceSpec, workload: Workload) -> Device:
    """What times the kernels of a workload, in a process of their own; or a recording of that.

    Raises:
        UsageError: the recording is of another workload.
        DeviceError: there is no such GPU, or no kernel for the workload.
    """
    if spec.kind == "replay":
        return _replayed_kernels(spec.which, workload)
    if process := family_of(workload).process_of(workload):
        return ProcessKernels(process)
    return _in_processes(workload.kind, workload, spec.which, DEFAULT_DEADLINE_S)


def _replayed_kernels(which: str, workload: Workload | None) -> ReplayedKernels:
    replayed = ReplayedKernels(recording_file(which, SEARCH.command))
    try:
        if workload is not None:
            replayed.require_workload(workload)
    except BaseException:
        replayed.close()
        raise
    return replayed


def _in_processes(kind: str, workload: Workload | None, which: str, deadline_s: float) -> CompilingDevice:
    require_kernel(kind, workload)  # before a process is begun
    isolated = IsolatedDevice(partial(open_fused_kernels, kind, which), deadline_s)
    return CompilingDevice(isolated, CompileAhead(KernelBuilder()))


def open_fused_kernels(kind: str, which: str = "") -> Device:
    """GPU number ``which`` with the kernels of a kind of workload, in this process.

    Raises:
        DeviceError: there is no such GPU, it cannot run them, or there are no packages to run it.
    """
    gpu = _open_gpu(which, SEARCH.without_gpu)
    from xstage_tune.cuda.device import CudaDevice
    from xstage_tune.cuda.kernel_trials import CudaKernels

    try:
        kernel = fused_kernel(kind)
        if gpu.architecture != kernel.architecture:
            raise DeviceError(
                f"{gpu.describe().name} is of architecture {gpu.architecture}: the kernel needs "
                f"{kernel.architecture}",
                SEARCH.without_gpu,
            )
        return CudaDevice(gpu, [CudaKernels(gpu, kernel)])
    except BaseException:
        gpu.close()
        raise


def _bursts(gpu: Gpu) -> Runner:
    from xstage_tune.cuda.burst_device import CudaBursts

    return CudaBursts(gpu)


def _skeletons(gpu: Gpu) -> Runner:
    from xstage_tune.cuda.skeletons import CudaSkeletons

    return CudaSkeletons(gpu)


def _profiles(gpu: Gpu, kind: str) -> Runner:
    found = gpu.describe()
    if not found.architecture.startswith(_HOPPER):
        raise DeviceError(
            f"{found.name} is of architecture {found.architecture}: the {kind} kernel needs sm_90a "
            "(Hopper: H100, H200)",
            PROFILE.without_gpu,
        )
    return profiling_runner(kind)(gpu)


#: What runs a command's launches on a GPU.
_RUNNERS: dict[str, Callable[[Gpu], Runner]] = {
    CALIBRATE.command: _bursts,
    EMULATE.command: _skeletons,
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
