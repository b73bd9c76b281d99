"""The launch of a fused kernel by its workload and config: what a search evaluates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from pydantic import TypeAdapter

from xstage_tune.base.errors import DeviceError, Fault
from xstage_tune.base.fabric import StorePath
from xstage_tune.base.limits import Objective
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.config_files import config_keys
from xstage_tune.families.workload import Workload
from xstage_tune.launches.device import Device, GpuState, LaunchKind, throttling
from xstage_tune.launches.in_turn import Interval, ratio_of

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
        against_ns: of :attr:`KernelLaunch.against`, each taken in turn with the one of ``latency_ns``. Empty
            where the device's times need nothing to be compared with.
        cold_ns: latency with an L2 that holds nothing of it; empty where that is not measured.
        exposed_ns: E_res, what the launch takes beyond the same one whose stores all stay local; None where
            it was not asked for.
        mainloop_ns: mean time of a tile's mainloop, of a launch that records spans; None where none did.
        states: of the GPU while it was timed, evenly over the samples.
        busy_ns: what the GPU ran for all of it.
        counters: what else a process of the user's measured, by name.
        marks: what it recorded of a launch: name, lane, begin and end in ns.
        fault, reason: of a recorded launch that failed, under what that comes, and why.
    """

    latency_ns: tuple[float, ...]
    stall_ns: tuple[float, ...] = ()
    against_ns: tuple[float, ...] = ()
    cold_ns: tuple[float, ...] = ()
    exposed_ns: float | None = None
    mainloop_ns: float | None = None
    states: tuple[GpuState, ...] = ()
    busy_ns: float = 0.0
    counters: Mapping[str, float] = field(default_factory=dict)
    marks: tuple[tuple[str, int, float, float], ...] = ()
    fault: Fault | None = None
    reason: str = ""

    @property
    def throttled(self) -> tuple[str, ...]:
        """What slowed the GPU down while it was timed."""
        return throttling(reason for state in self.states for reason in state.throttle_reasons)

    @property
    def ratio(self) -> Interval | None:
        """Latency over that of :attr:`KernelLaunch.against`; None where they were not taken in turn."""
        return ratio_of(self.latency_ns, self.against_ns) if self.against_ns else None

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

    The output is checked first, on inputs of its own; a wrong one has no time. A GPU takes samples of some
    milliseconds each.

    Args:
        path: of the remote stores.
        against: what a GPU is to time in turn with it, at the same clocks; None for itself alone.
        tolerance: up to which the two count as equal: a GPU stops once ``repeats`` samples or more tell
            which is faster, or that neither is. None for ``repeats`` samples, whatever they tell.
        inputs: seed of the inputs.
        exposed: whether to measure E_res too.
        spans: whether to read the spans of a launch that records them too.
    """

    workload: Workload
    config: KernelConfig
    path: StorePath
    repeats: int = 1
    against: KernelConfig | None = None
    tolerance: float | None = None
    inputs: int = 0
    exposed: bool = False
    spans: bool = False

    @property
    def kind(self) -> LaunchKind[KernelLaunch, KernelRun, None]:
        """See :class:`~xstage_tune.launches.device.Launch`."""
        return KERNELS


class _Kernels(LaunchKind[KernelLaunch, KernelRun, None]):
    """Their store is the study's trials. A recording has each config once, whatever it is compared with."""

    name = "kernels"
    figures = TypeAdapter(KernelRun)
    told_apart = True

    def keys(self, launch: KernelLaunch) -> dict[str, Any]:
        return {
            "workload": launch.workload.model_dump(mode="json", exclude_none=True),
            "config": config_keys(launch.config),
            "path": launch.path,
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
