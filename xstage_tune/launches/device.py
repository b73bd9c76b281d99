"""The seam between what is measured and where: launches in, figures and spans out.

A device runs launches of some kinds (bursts, skeletons, a family's fused kernel, ...). Everything above this
module is the same code for a GPU (``cuda``), an event simulation (``simulator``) and a recorded run
(``replay``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from xstage_tune.base.errors import DeviceError
from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.base.field_types import Count, Tally
from xstage_tune.base.spans import LANE_DTYPE, SPAN_DTYPE, SpanTable
from xstage_tune.platforms.identity import SIMULATED_UUID


@dataclass(frozen=True, slots=True)
class Verification:
    """What the owner of the destination found there afterwards, outside timing."""

    checked_bytes: Tally
    mismatched_bytes: Tally


#: Of launches whose data nobody reads.
NOT_VERIFIED = Verification(checked_bytes=0, mismatched_bytes=0)
#: Of launches that record none.
NO_SPANS = SpanTable(np.empty(0, SPAN_DTYPE), np.empty(0, LANE_DTYPE))

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
    """How a launch was made: the kernel, its resources, and the GPU's state around it."""

    kernel: str
    kernel_sha256: str
    registers: Tally
    spill_bytes: Tally
    shared_bytes: Tally
    timer_tick_ns: Tally  # resolution of the common timer
    elapsed_ns: Tally  # host wall time, launch to synchronised
    started_at: str  # ISO 8601, UTC
    before: GpuState | None = None
    after: GpuState | None = None
    producers: Tally = 0  # SMs that take part

    @property
    def throttled(self) -> bool:
        """Whether the GPU was slowed down before or after the launch."""
        states = (state for state in (self.before, self.after) if state)
        return any(throttling(state.throttle_reasons) for state in states)


class Launch(Protocol):
    """Something that a device can run: a frozen value, which says all of what is asked."""

    @property
    def kind(self) -> LaunchKind[Any, Any, Any]:
        """What it is one of."""
        ...


class Point(Protocol):
    """What the store keeps of a launch as asked: a dataclass of which these are columns too."""

    @property
    def mode(self) -> str: ...

    @property
    def path(self) -> StorePath: ...

    @property
    def flavour(self) -> StoreFlavour: ...

    @property
    def burst_bytes(self) -> int:
        """The most that one burst, or one tile, stores remotely from an SM."""
        ...

    @property
    def gap_ns(self) -> int:
        """Between its bursts; 0 where gaps are many."""
        ...


LaunchT = TypeVar("LaunchT", bound=Launch)
FiguresT = TypeVar("FiguresT")
PointT = TypeVar("PointT")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[LaunchT, FiguresT]):
    """What came of one launch.

    Args:
        figures: of the kind; exact, however few spans are in ``table``.
        table: spans and lanes; empty for a launch that records none.
        arrays: what else the launch left, by name; see :attr:`LaunchKind.arrays`.
        kept_fraction: part of the launch whose spans are in ``table``.
    """

    launch: LaunchT
    figures: FiguresT
    info: LaunchInfo
    verification: Verification = NOT_VERIFIED
    table: SpanTable = NO_SPANS
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    kept_fraction: float = 1.0


class LaunchKind(Generic[LaunchT, FiguresT, PointT]):
    """The one description of a kind of launches: what a recording and the store make of them."""

    #: In recordings and errors, in the plural.
    name: ClassVar[str]
    #: How figures are written and read.
    figures: TypeAdapter[FiguresT]
    #: Types of :attr:`Outcome.arrays`, each of :meth:`rows` rows.
    arrays: Mapping[str, np.dtype[Any]] = {}
    #: Whether keys tell repetitions of a launch apart. A recording answers with the one of that repetition
    #: then, however often; else the n-th launch of some keys with the n-th that was recorded.
    told_apart: bool = False
    #: Modes of their rows in the store. Without one, figures alone are kept, as a conclusion of the run.
    modes: tuple[str, ...] = ()
    #: How points are written and read.
    points: TypeAdapter[PointT]

    def keys(self, launch: LaunchT) -> dict[str, Any]:
        """What a launch is found by in a recording, in JSON's types."""
        raise NotImplementedError

    def sha256(self, launch: LaunchT) -> str:
        """Hash of what the keys do not tell; empty where they tell all."""
        del launch
        return ""

    def rows(self, launch: LaunchT) -> int:
        """How many rows the arrays have that a launch leaves."""
        del launch
        return 0

    def words(self, launch: LaunchT) -> str:
        """The launch beside a progress bar, and in errors."""
        raise NotImplementedError

    def recorded_spans(self, outcome: Outcome[LaunchT, FiguresT], before: int) -> SpanTable:
        """What a recording keeps of the spans.

        Args:
            before: how many launches of the same keys it holds already.
        """
        del before
        return outcome.table

    def point(self, outcome: Outcome[LaunchT, FiguresT]) -> PointT:
        """The launch in the store."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class DeviceDescription:
    """Identity of the device: two runs are comparable only if these agree."""

    kind: Literal["cuda", "replay", "simulator", "process", "imported"]
    name: str
    uuid: str
    architecture: str  # e.g. "sm_90a"
    sm_count: Count
    l2_bytes: Tally
    memory_bytes: Tally
    max_sm_clock_mhz: Tally
    driver: str
    cuda: str
    nvrtc: str
    paths: tuple[StorePath, ...]
    link: dict[str, str | int | float] = field(default_factory=dict)
    mig: bool | None = None  # whether it is a slice of a GPU; None in recordings of before that was asked

    @property
    def simulated(self) -> bool:
        """Whether it is a simulation, or a recorded one."""
        return self.kind == "simulator" or self.uuid.startswith(SIMULATED_UUID)


class Device(Protocol):
    """Where launches run."""

    @property
    def identity(self) -> str:
        """What runs them, as results name it: times of different identities are never compared."""
        ...

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the kinds of launches that it runs."""
        ...

    def describe(self) -> DeviceDescription:
        """Identity of the device; cheap."""
        ...

    def label_launches(self, run_id: str) -> None:
        """Name the launches that follow after a run of the store; their numbers start again at 0.

        A launch is then the NVTX range ``<run_id>/<number>`` with the number as its payload, and the row
        (run, number) of the store.
        """
        ...

    def run(self, launches: Iterable[LaunchT]) -> Iterator[Outcome[LaunchT, Any]]:
        """Run launches in order; the outcome of each as soon as it is measured.

        What is dear to make (kernels, memory of a case) is held until another case, or :meth:`close`.

        Raises:
            UsageError: a launch does not fit the device, or was not recorded.
            DeviceError: the device does not run its kind, or cannot run it.
            FindingError: the device contradicts the launch.
        """
        ...

    def close(self) -> None:
        """Free what the device holds; safe to call twice."""
        ...


@runtime_checkable
class LooksAhead(Protocol):
    """A device that gets ready for launches before they are asked for."""

    def expect(self, launches: Sequence[Any]) -> None:
        """Get ready for what may be asked for next, the likeliest first; returns at once."""
        ...


class DeviceAround:
    """A device in front of another, which it closes with itself; what it does in its own way it overrides.

    Args:
        device: the other one.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self.identity, self.kinds = device.identity, device.kinds

    def describe(self) -> DeviceDescription:
        """See :class:`Device`."""
        return self._device.describe()

    def label_launches(self, run_id: str) -> None:
        """See :class:`Device`."""
        self._device.label_launches(run_id)

    def close(self) -> None:
        """See :class:`Device`."""
        self._device.close()


class Runner(Protocol):
    """Runs launches of one kind, or of some that share what they hold, for a device."""

    @property
    def identity(self) -> str:
        """See :attr:`Device.identity`."""
        ...

    @property
    def kinds(self) -> tuple[LaunchKind[Any, Any, Any], ...]:
        """Of the launches that it runs."""
        ...

    def run(self, launches: Iterable[Any]) -> Iterator[Outcome[Any, Any]]:
        """As :meth:`Device.run`, of its kinds."""
        ...

    def close(self) -> None:
        """Free what is held; safe to call twice."""
        ...


class ComposedDevice:
    """A device of runners.

    Args:
        runners: no two of one kind.
    """

    def __init__(self, runners: Sequence[Runner]) -> None:
        self.identity = "; ".join(dict.fromkeys(runner.identity for runner in runners))
        self._runners = {kind.name: runner for runner in runners for kind in runner.kinds}

    @property
    def kinds(self) -> tuple[str, ...]:
        """See :class:`Device`."""
        return tuple(self._runners)

    def run(self, launches: Iterable[LaunchT]) -> Iterator[Outcome[LaunchT, Any]]:
        """See :class:`Device`."""
        for kind, of_kind in groupby(launches, key=attrgetter("kind")):
            if kind.name not in self._runners:
                raise DeviceError(
                    f"{self.identity} runs no {kind.name}: it runs {', '.join(self._runners)}",
                    "give another --device",
                )
            yield from self._runners[kind.name].run(of_kind)

    def close(self) -> None:
        """See :class:`Device`."""
        for runner in dict.fromkeys(self._runners.values()):
            runner.close()
