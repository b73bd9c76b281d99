"""Small spaces, and devices whose times are known."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.configs.cases import BLACKWELL, moe
from tests.h200 import H200
from xstage_tune.base.errors import DeviceError
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.kernel_launch import KERNELS, KernelRun, run_kernel
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload import Workload
from xstage_tune.launches.device import Device, DeviceDescription, LaunchInfo, Outcome
from xstage_tune.search.request import SearchRequest
from xstage_tune.search.space import Space, Value, build_space
from xstage_tune.simulator.fused_kernels import SimulatedKernels

#: Axes of some hundred MegaMoE configs, the default and the heuristics of :func:`drained` among them.
SMALL_AXES: dict[str, tuple[Value, ...]] = {
    "block_m": (64, 128, 192),
    "block_n": (64, 128),
    "block_k": (128,),
    "pipeline_stages": (2, 6),
    "staging_depth": (1, 2, 3),
    "epilogue_warps": (8,),
    "schedule": ("wave", "interleaved", "alternating", "clamped-lag"),
    "experts_per_wave": (1, 2, 4),
    "lead_rows": (2, 6, 12, 24),
    "store_flavour": ("st.v4",),
}


def drained() -> MoeWorkload:
    """A layer whose waves are limited by the drain: short Linear-2 mainloops and four local experts."""
    return moe(
        hidden=4096, intermediate=1024, experts=32, top_k=4, tokens_per_rank=1024,
        routing={"kind": "zipf", "alpha": 0.7, "seed": 1}, precision="w4a8",
    )  # fmt: skip


@functools.cache
def small_space() -> Space:
    return build_space(drained(), BLACKWELL, SMALL_AXES)


def request(**changes: object) -> SearchRequest:
    return SearchRequest(**({"workload": drained(), "platform": BLACKWELL} | changes))  # type: ignore[arg-type]


class RunsKernels:
    """A device of kernels, by a function."""

    kinds = (KERNELS.name,)

    def run_kernel(self, workload: Workload, config: KernelConfig, repeats: int) -> KernelRun:
        raise NotImplementedError

    def run(self, launches: Iterable[Any]) -> Iterator[Outcome[Any, Any]]:
        info = LaunchInfo("kernel", "", 0, 0, 0, 1, 1, "2026-01-01T00:00:00+00:00")
        for launch in launches:
            yield Outcome(launch, self.run_kernel(launch.workload, launch.config, launch.repeats), info)

    def describe(self) -> DeviceDescription:
        return H200

    def label_launches(self, run_id: str) -> None:
        """Not labelled."""

    def close(self) -> None:
        """Nothing is held."""


@dataclass
class TableDevice(RunsKernels):
    """A device whose times are a function of the config; keeps what it was asked.

    Args:
        time_ns: of a config.
        spread_ns: repeats lie between the time and so much more.
        outlier_ns: what the i-th run of a call takes instead, by config and i.
        interrupt_after: single runs after which the user presses Ctrl-C.
        broken: configs that the device cannot run.
    """

    time_ns: Callable[[KernelConfig], float]
    spread_ns: float = 0.0
    outlier_ns: Mapping[tuple[KernelConfig, int], float] = field(default_factory=dict)
    interrupt_after: int | None = None
    broken: Callable[[KernelConfig], bool] = lambda _: False
    identity: str = "table"
    asked: list[KernelConfig] = field(default_factory=list)

    def run_kernel(self, workload: Workload, config: KernelConfig, repeats: int) -> KernelRun:
        del workload
        if self.broken(config):
            raise DeviceError(f"cannot launch {config.label}")
        if repeats == 1:
            if self.interrupt_after is not None and len(self.asked) >= self.interrupt_after:
                raise KeyboardInterrupt
            self.asked.append(config)
        time_ns = self.time_ns(config)
        samples = [time_ns + self.spread_ns * i / max(1, repeats - 1) for i in range(repeats)]
        samples = [self.outlier_ns.get((config, i), ns) for i, ns in enumerate(samples)]
        return KernelRun(tuple(samples), tuple(samples))


class FaultyDevice(RunsKernels):
    """A device on which some runs fail, or return what is no time.

    Args:
        outcome: of a config and the number of the call: what is raised, the latency of all its repeats, or
            None for a run as on ``healthy``.
    """

    identity = "faulty"

    def __init__(
        self,
        outcome: Callable[[KernelConfig, int], BaseException | float | None],
        healthy: Device | None = None,
    ) -> None:
        self._outcome = outcome
        self._healthy = healthy or TableDevice(lambda config: 1e9 + len(config.label))
        self.asked: list[KernelConfig] = []

    def run_kernel(self, workload: Workload, config: KernelConfig, repeats: int) -> KernelRun:
        self.asked.append(config)
        outcome = self._outcome(config, len(self.asked))
        if isinstance(outcome, BaseException):
            raise outcome
        if outcome is not None:
            return KernelRun((outcome,) * repeats, (outcome,) * repeats)
        return run_kernel(self._healthy, workload, config, BLACKWELL.path, repeats)


@dataclass
class CountingSimulator(RunsKernels):
    """The simulator, keeping which configs it was asked to run once."""

    identity: str = "simulator"
    asked: list[KernelConfig] = field(default_factory=list)
    interrupt_after: int | None = None

    def __post_init__(self) -> None:
        self._kernels = SimulatedKernels(BLACKWELL)

    def run_kernel(self, workload: Workload, config: KernelConfig, repeats: int) -> KernelRun:
        if repeats == 1:
            if self.interrupt_after is not None and len(self.asked) >= self.interrupt_after:
                raise KeyboardInterrupt
            self.asked.append(config)
        return self._kernels.run_kernel(workload, config, repeats)


def as_megamoe(config: KernelConfig) -> MegaMoeConfig:
    assert isinstance(config, MegaMoeConfig)
    return config
