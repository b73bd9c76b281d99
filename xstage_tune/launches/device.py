"""The seam between what is measured and where: points in, runs out.

A device runs burst points and returns spans. Everything above this module is the same code for a
GPU (``cuda``), a recorded run (``replay``) and an event simulation (``simulator``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, Protocol

from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.base.spans import SpanTable

BurstMode = Literal["periodic", "isolated"]


@dataclass(frozen=True, slots=True)
class BurstPoint:
    """One microbenchmark: K producers, each storing bursts of B bytes (section 3.1).

    ``periodic``: every producer repeats (burst, spin for ``gap_ns``) until ``window_ns`` after a
    common start, so that all are active up to the same deadline. ``isolated``: ``bursts`` bursts,
    each starting on a common deadline, ``gap_ns`` from start to start.

    The hardware chooses the SMs, unless ``idle_sms`` names those that are to stay idle: then every other SM
    has a producer. Two points that compare equal ask for the same measurement; ``repeat`` tells repetitions
    apart.
    """

    mode: BurstMode
    path: StorePath
    flavour: StoreFlavour
    producers: int
    burst_bytes: int
    gap_ns: int
    window_ns: int = 0  # periodic only
    bursts: int = 0  # isolated only
    repeat: int = 0
    idle_sms: tuple[int, ...] = ()

    @property
    def volume_bytes(self) -> int:
        """Aggregate burst volume V = K*B."""
        return self.producers * self.burst_bytes


@dataclass(frozen=True, slots=True)
class Verification:
    """What the owner of the destination found there afterwards, outside timing."""

    checked_bytes: int
    mismatched_bytes: int


#: Clock events that slow a GPU below what was asked of it. Idling and clocks that a user set are none.
_THROTTLING = frozenset(
    {"sw_power_cap", "hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake"}
)


def throttling(events: Iterable[str]) -> tuple[str, ...]:
    """Those of a GPU's clock events that slow it down, sorted."""
    return tuple(sorted(_THROTTLING.intersection(events)))


@dataclass(frozen=True, slots=True)
class GpuState:
    """Clocks, power and throttling of the GPU at one moment; None is what the driver does not tell."""

    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    power_watts: float | None
    temperature_c: int | None
    throttle_reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchInfo:
    """How a run was made: the kernel, its resources, and the GPU's state around it."""

    kernel: str
    kernel_sha256: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    timer_tick_ns: int  # resolution of the common timer
    elapsed_ns: int  # host wall time, launch to synchronised
    started_at: str  # ISO 8601, UTC
    before: GpuState | None = None
    after: GpuState | None = None

    @property
    def throttled(self) -> bool:
        """Whether the GPU was slowed down before or after the run."""
        states = (state for state in (self.before, self.after) if state)
        return any(throttling(state.throttle_reasons) for state in states)


@dataclass(frozen=True, slots=True)
class BurstRun:
    """The outcome of one :class:`BurstPoint`."""

    point: BurstPoint
    table: SpanTable
    verification: Verification
    launch: LaunchInfo


@dataclass(frozen=True, slots=True)
class CopyRate:
    """Rate of the copy engine on a path, the yardstick that R may not exceed.

    Everywhere it is the median of the samples: where R is judged by it, in a profile, and in "R is x% of it".
    A sample that others' traffic slowed does not move it, nor does one that was timed short.
    """

    path: StorePath
    copy_bytes: int
    samples_bytes_per_s: tuple[float, ...]

    @property
    def bytes_per_s(self) -> float | None:
        """The rate; None without a sample."""
        return median(self.samples_bytes_per_s) if self.samples_bytes_per_s else None


@dataclass(frozen=True, slots=True)
class DeviceDescription:
    """Identity of the device: two runs are comparable only if these agree."""

    kind: Literal["cuda", "replay", "simulator"]
    name: str
    uuid: str
    architecture: str  # e.g. "sm_90a"
    sm_count: int
    l2_bytes: int
    memory_bytes: int
    max_sm_clock_mhz: int
    driver: str
    cuda: str
    nvrtc: str
    paths: tuple[StorePath, ...]
    link: dict[str, str | int | float] = field(default_factory=dict)
    mig: bool | None = None  # whether it is a slice of a GPU; None in recordings of before that was asked


class BurstDevice(Protocol):
    """Where calibration runs."""

    def describe(self) -> DeviceDescription:
        """Identity of the device; cheap."""
        ...

    def label_launches(self, run_id: str) -> None:
        """Name the launches that follow after a run of the store; their numbers start again at 0.

        A launch is then the NVTX range ``<run_id>/<number>`` with the number as its payload, and the row
        (run, number) of the store.
        """
        ...

    def copy_rate(self, path: StorePath) -> CopyRate:
        """Rate of the copy engine from the GPU to the owner of ``path``."""
        ...

    def run_bursts(self, points: Sequence[BurstPoint]) -> Iterator[BurstRun]:
        """Run the points in order, yielding each as soon as it is measured.

        Raises:
            DeviceError: the device cannot run a point.
        """
        ...

    def close(self) -> None:
        """Free what the device holds; safe to call twice."""
        ...
