"""From ``--device`` to where kernels run."""

from __future__ import annotations

import re
from collections.abc import Callable

from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.devices import open_skeletons
from xstage_tune.devices.emulated_kernels import EmulatedKernels
from xstage_tune.devices.platform_choice import accept_gpu
from xstage_tune.families.kernel_device import KernelDevice
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.simulator.fused_kernels import SimulatedKernels

_SPEC = re.compile(r"auto|simulator|cuda(:\d+)?|emulate(:(?P<gpu>\d+))?")


def open_kernel_device(
    spec: str, platform: PlatformProfile, notify: Callable[[str], None], *, force: bool = False
) -> KernelDevice:
    """Open ``auto`` (the simulator), ``simulator``, ``emulate[:N]`` (skeletons on a GPU) or ``cuda[:N]``.

    Args:
        notify: is told of a platform of another GPU, which ``force`` accepts.

    Raises:
        UsageError: another spec, or ``emulate`` with a platform of another GPU.
        DeviceError: ``emulate`` without a GPU; or ``cuda``: search does not run fused kernels.
    """
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise UsageError(f"--device '{spec}' is unknown", "use auto, simulator, emulate or emulate:N")
    if spec.startswith("emulate"):
        gpu = open_skeletons.open_cuda_skeletons(match["gpu"] or "0")
        other = accept_gpu(gpu.describe(), platform, platform.path, notify) if force else ""
        return EmulatedKernels(gpu, platform, other)
    if spec.startswith("cuda"):
        raise DeviceError(
            f"--device {spec}: search does not run fused kernels in this version",
            "use --device emulate (their skeletons) or simulator; profile runs the fused attention",
        )
    return SimulatedKernels(platform)
