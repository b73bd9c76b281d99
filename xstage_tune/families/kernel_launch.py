"""The launch of a fused kernel by its workload and config: what a search evaluates."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from pydantic import TypeAdapter

from xstage_tune.base.errors import DeviceError
from xstage_tune.base.fabric import StorePath
from xstage_tune.base.limits import Objective
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.config_files import config_keys
from xstage_tune.families.workload import Workload
from xstage_tune.launches.device import Device, LaunchKind

#: How the identity of a device that runs skeletons begins.
EMULATION_ON = "emulation on "
#: In it, before how the GPU differs from that of the platform which was forced on it.
OTHER_GPU = ", by the profile of another GPU: "


@dataclass(frozen=True, slots=True)
class KernelRun:
    """Repeats of one launch, ``[repeats]`` each, in ns.

    Args:
        latency_ns: from the launch until its last store has arrived, which is when a GPU ends a kernel.
        stall_ns: waits of the mainloop role for a staging slot, a dependency, or operands behind the SM's own
            stores; mean over the SMs. Empty where the device measures none.
    """

    latency_ns: tuple[float, ...]
    stall_ns: tuple[float, ...]

    def samples_ns(self, objective: Objective) -> tuple[float, ...]:
        """Raises DeviceError: the device does not measure it."""
        samples = self.latency_ns if objective == "latency" else self.stall_ns
        if not samples:
            raise DeviceError(f"the device measures no {objective} of a kernel", "give another --objective")
        return samples

    def median_ns(self, objective: Objective) -> float:
        """Raises as :meth:`samples_ns`."""
        return median(self.samples_ns(objective))


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """A config's fused kernel, launched ``repeats`` times.

    Args:
        path: of the remote stores.
    """

    workload: Workload
    config: KernelConfig
    path: StorePath
    repeats: int = 1

    @property
    def kind(self) -> LaunchKind[KernelLaunch, KernelRun, None]:
        """See :class:`~xstage_tune.launches.device.Launch`."""
        return KERNELS


class _Kernels(LaunchKind[KernelLaunch, KernelRun, None]):
    """Their store is the study's trials."""

    name = "kernels"
    figures = TypeAdapter(KernelRun)

    def keys(self, launch: KernelLaunch) -> dict[str, Any]:
        return {
            "workload": launch.workload.model_dump(mode="json", exclude_none=True),
            "config": config_keys(launch.config),
            "path": launch.path,
            "repeats": launch.repeats,
        }

    def words(self, launch: KernelLaunch) -> str:
        return f"{launch.workload.name}, {launch.config.label}"


KERNELS = _Kernels()


def run_kernel(
    device: Device, workload: Workload, config: KernelConfig, path: StorePath, repeats: int = 1
) -> KernelRun:
    """Run a config ``repeats`` times.

    Raises:
        UsageError: the config does not fit the workload.
        DeviceError: the device cannot run it.
        FindingError: data did not arrive at their owner.
    """
    (outcome,) = device.run([KernelLaunch(workload, config, path, repeats)])
    run: KernelRun = outcome.figures
    return run
