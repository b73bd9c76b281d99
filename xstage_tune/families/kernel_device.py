"""The seam where fused kernels run: a workload and a config in, times out."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Literal, Protocol

from xstage_tune.families.config import KernelConfig
from xstage_tune.families.workload import Workload

#: ``latency``: time of the launch. ``stall``: time that a Tensor Core role waits, mean over the SMs.
Objective = Literal["latency", "stall"]

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
            stores; mean over the SMs.
    """

    latency_ns: tuple[float, ...]
    stall_ns: tuple[float, ...]

    def samples_ns(self, objective: Objective) -> tuple[float, ...]:
        return self.latency_ns if objective == "latency" else self.stall_ns

    def median_ns(self, objective: Objective) -> float:
        return median(self.samples_ns(objective))


class KernelDevice(Protocol):
    """Where kernels run."""

    #: What ran them, as results name it: times of different identities are never compared.
    identity: str

    def run_kernel(self, workload: Workload, config: KernelConfig, repeats: int) -> KernelRun:
        """Run a config ``repeats`` times.

        Raises:
            UsageError: the config does not fit the workload.
            DeviceError: the device cannot run it.
        """
        ...

    def close(self) -> None:
        """Free what the device holds; safe to call twice."""
        ...
