"""From ``--device`` to where kernels run."""

from __future__ import annotations

import re

from xstage_tune.devices.kernels import KernelDevice
from xstage_tune.devices.simulated_kernels import SimulatedKernels
from xstage_tune.errors import DeviceError, UsageError
from xstage_tune.platforms.schema import PlatformProfile

_SPEC = re.compile(r"auto|simulator|cuda(:\d+)?")


def open_kernel_device(spec: str, platform: PlatformProfile) -> KernelDevice:
    """Open ``auto`` (the simulator), ``simulator`` or ``cuda[:N]``.

    Raises:
        UsageError: another spec.
        DeviceError: ``cuda``: this version has no fused kernels to run there.
    """
    if _SPEC.fullmatch(spec) is None:
        raise UsageError(f"--device '{spec}' is unknown", "use auto, simulator, cuda or cuda:N")
    if spec.startswith("cuda"):
        raise DeviceError(
            f"--device {spec}: this version has no fused kernels to run on a GPU",
            "use --device simulator with a platform that was calibrated on that GPU",
        )
    return SimulatedKernels(platform)
