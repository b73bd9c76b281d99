"""Skeletons in place of kernels: a search that evaluates its configs on the real fabric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.families.fused_skeleton import fused_skeleton, require_verified
from xstage_tune.families.kernel_launch import KERNELS, OTHER_GPU, KernelLaunch, KernelRun
from xstage_tune.launches.device import Device, DeviceAround, Outcome
from xstage_tune.launches.requirements import require_device
from xstage_tune.platforms.schema import PlatformProfile


class EmulatedKernels(DeviceAround):
    """A device that runs a kernel's skeleton; mainloops are those of the platform's compute model.

    Args:
        device: runs skeletons.
        other_gpu: how the GPU differs from the platform's, where it was forced on it; else empty.

    Raises:
        UsageError: the platform was calibrated for another GPU.
        DeviceError: the device lacks the platform's path.
    """

    def __init__(self, device: Device, platform: PlatformProfile, other_gpu: str = "") -> None:
        require_device(device.describe(), platform, platform.path, force=bool(other_gpu))
        super().__init__(device)
        self._platform = platform
        self.kinds = (KERNELS.name,)
        self.identity += f"{OTHER_GPU}{other_gpu}" if other_gpu else ""

    def run(self, launches: Iterable[Any]) -> Iterator[Outcome[Any, Any]]:
        """Launch each kernel's skeleton as often as it repeats.

        Raises:
            UsageError: a config does not fit the workload or the platform.
            DeviceError: the device cannot run it, or the launch is of no kernel.
            FindingError: data did not arrive at their owner.
        """
        for launch in launches:
            if launch.kind != KERNELS:
                raise DeviceError(
                    f"{self.identity} runs skeletons of {KERNELS.name} here, no {launch.kind.name}",
                    "give another --device",
                )
            yield self._run(launch)

    def _run(self, launch: KernelLaunch) -> Outcome[KernelLaunch, KernelRun]:
        config = launch.config
        skeleton = fused_skeleton(config.label, launch.workload, config, self._platform, path=launch.path)
        try:
            runs = list(self._device.run([skeleton] * launch.repeats))
        except UsageError as error:
            # To a search this is one config among many, which the device cannot run.
            raise DeviceError(error.message, error.hint) from None
        for run in runs:
            require_verified(run)
        figures = KernelRun(
            latency_ns=tuple(run.figures.makespan_ns for run in runs),
            stall_ns=tuple(run.figures.stall_ns + run.figures.dependency_wait_ns for run in runs),
        )
        return Outcome(launch, figures, runs[-1].info, runs[-1].verification)
