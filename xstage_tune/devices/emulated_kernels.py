"""Skeletons as a kernel device: a search that evaluates its configs on the real fabric."""

from __future__ import annotations

from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.fused_skeleton import fused_skeleton, require_verified
from xstage_tune.families.kernel_device import OTHER_GPU, KernelRun
from xstage_tune.families.workload import Workload
from xstage_tune.launches.requirements import require_device
from xstage_tune.launches.skeleton_figures import figures_of
from xstage_tune.launches.skeletons import SkeletonDevice
from xstage_tune.platforms.schema import PlatformProfile


class EmulatedKernels:
    """Runs a config's skeleton on a device; mainloops are those of the platform's compute model.

    Args:
        other_gpu: how the GPU differs from the platform's, where it was forced on it; else empty.

    Raises:
        UsageError: the platform was calibrated for another GPU.
        DeviceError: the device lacks the platform's path.
    """

    def __init__(self, device: SkeletonDevice, platform: PlatformProfile, other_gpu: str = "") -> None:
        require_device(device.describe(), platform, platform.path, force=bool(other_gpu))
        self._device = device
        self._platform = platform
        self.identity = device.identity + (f"{OTHER_GPU}{other_gpu}" if other_gpu else "")

    def close(self) -> None:
        """Free the device's memory."""
        self._device.close()

    def run_kernel(self, workload: Workload, config: KernelConfig, repeats: int = 1) -> KernelRun:
        """Launch a config's skeleton ``repeats`` times.

        Raises:
            UsageError: the config does not fit the workload or the platform.
            DeviceError: the device cannot run it.
            FindingError: data did not arrive at their owner.
        """
        path = self._platform.path
        skeleton = fused_skeleton(config.label, workload, config, self._platform, path=path)
        try:
            runs = list(self._device.run_skeletons([skeleton] * repeats))
        except UsageError as error:
            # To a search this is one config among many, which the device cannot run.
            raise DeviceError(error.message, error.hint) from None
        for run in runs:
            require_verified(run)
        figures = [figures_of(run) for run in runs]
        return KernelRun(
            latency_ns=tuple(one.makespan_ns for one in figures),
            stall_ns=tuple(one.stall_ns + one.dependency_wait_ns for one in figures),
        )
