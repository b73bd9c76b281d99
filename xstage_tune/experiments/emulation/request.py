"""What is asked of an emulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.base.field_types import Whole
from xstage_tune.base.limits import REPEATS, SEED
from xstage_tune.base.request import Request
from xstage_tune.experiments.emulation.sweep import Sweep, swept_by_emulation
from xstage_tune.families.binding import family_of, require_kind
from xstage_tune.families.fields import AnyConfig, AnyWorkload
from xstage_tune.families.fused_skeleton import LONGEST_SPIN_NS
from xstage_tune.families.launch import GivenTimes
from xstage_tune.launches.requirements import require_platform_path
from xstage_tune.platforms.schema import PlatformProfile

_SPINS = {"l1": "l1_ns", "l2": "l2_ns", "q": "q_ns", "epilogue": "epilogue_ns"}
_SPIN_EXAMPLE = "--tile-ns l1=25000,l2=12700 for MegaMoE, --tile-ns q=80000 for attention"


class EmulationRequest(Request):
    """One emulation: a workload's schedules on one path of one GPU.

    Args:
        platform: calibrated, of that path: what the predictions rest on, and the shares of a placement.
        config: tiles, staging, and the parameters of its own schedule.
        schedules, placements: of the workload's family, each of the former with each of the latter.
        path: of the remote stores.
        given: tile times in place of the compute model's.
        dependencies: False runs tiles as if their inputs were ready.
        completion_coupled: the issue role waits for visibility: the counterfactual.
        repeats: launches of each case.
        seed: of the simulator's start times.
        sweep: a quantity to vary; None for one value of everything.
        other_gpu: how the GPU differs from the platform's, where it was forced on it; else empty.

    Raises:
        UsageError: two of them do not go together, or with the workload.
    """

    OF: ClassVar[str] = "an emulation"

    workload: AnyWorkload
    platform: PlatformProfile
    config: AnyConfig
    schedules: tuple[str, ...]
    path: StorePath
    placements: tuple[str, ...] = ("even",)
    given: GivenTimes = Field(default_factory=GivenTimes)
    dependencies: bool = True
    completion_coupled: bool = False
    repeats: Annotated[Whole, REPEATS] = 5
    seed: Annotated[Whole, SEED] = 0
    sweep: Sweep | None = None
    other_gpu: str = ""

    @model_validator(mode="after")
    def _goes_together(self) -> EmulationRequest:
        family, name = family_of(self.workload), self.workload.name
        require_kind(self.config, self.workload)
        if not family.orders:
            raise UsageError(
                f"a workload of kind '{self.workload.kind}' is not emulated: its family names no tile orders",
                "audit and search serve it",
            )
        _refuse_others("--schedule", self.schedules, family.orders, name, family.orders_name)
        _refuse_others("--placement", self.placements, family.placements, name, "placements")
        require_platform_path(self.platform, self.path)
        if not family.depends and not self.dependencies:
            raise UsageError(
                f"--no-dependencies does not fit the workload '{name}': its tiles depend on nothing",
                "leave it out",
            )
        if "share" in self.placements and self.platform.arbitration is None:
            raise UsageError(
                f"platform '{self.platform.name}' has no shares of its SMs to place tiles by",
                "leave out --placement, or give a --platform with arbitration",
            )
        self._check_given(family.mainloops)
        self._check_sweep()
        return self

    @property
    def flavour(self) -> StoreFlavour:
        return self.config.store_flavour

    @property
    def compares_alone(self) -> bool:
        """Whether launches are compared with the same one that keeps all stores local."""
        return not family_of(self.workload).depends

    @property
    def predicted(self) -> bool:
        """Whether the platform speaks of these stores: it does not of the local control."""
        return self.path == self.platform.path

    def _check_given(self, mainloops: tuple[str, ...]) -> None:
        given = [name for name in ("l1", "l2", "q") if getattr(self.given, f"{name}_ns") is not None]
        if given and set(given) != set(mainloops):
            own = f"it takes {' and '.join(mainloops)} together" if mainloops else "it takes none"
            raise UsageError(
                f"--tile-ns {' and '.join(given)} does not fit the workload '{self.workload.name}': {own}",
                _SPIN_EXAMPLE,
            )

    def _check_sweep(self) -> None:
        if self.sweep is None:
            return
        key, swept = self.sweep.key, swept_by_emulation(self.workload)
        _refuse_others("--sweep", [key], tuple(swept), self.workload.name, "sweeps")
        knob = family_of(self.workload).knobs.get(key)
        if knob is not None and knob.order is not None and self.schedules != (knob.order,):
            raise UsageError(
                f"--sweep {key} is of the {knob.order} schedule", f"give --schedule {knob.order} alone"
            )


def _refuse_others(
    option: str, named: Sequence[str], known: tuple[str, ...], workload: str, what: str
) -> None:
    for name in named:
        if name not in known:
            raise UsageError(
                f"{option} {name} does not fit the workload '{workload}'",
                f"its {what} are {', '.join(known)}",
            )


def parse_given(text: str) -> GivenTimes:
    """``l1=25000,l2=12700``, ``q=80000``, each with or without ``epilogue=1600``; in ns.

    Raises:
        UsageError: it is not of that form, or a time is no positive number of ns that a spin may last.
    """
    times: dict[str, float] = {}
    for part in text.split(","):
        key, separator, value = (piece.strip() for piece in part.partition("="))
        if not separator or key not in _SPINS:
            raise UsageError(f"--tile-ns {text}: '{part}' is none of {'=, '.join(_SPINS)}=", _SPIN_EXAMPLE)
        if _SPINS[key] in times:
            raise UsageError(f"--tile-ns {text}: {key} is there twice")
        times[_SPINS[key]] = _spin_ns(key, value, text)
    return GivenTimes(**times)


def _spin_ns(key: str, value: str, text: str) -> float:
    try:
        time_ns = float(value)
    except ValueError:
        raise UsageError(f"--tile-ns {text}: {value!r} is no number", _SPIN_EXAMPLE) from None
    if not math.isfinite(time_ns) or time_ns < 0 or (time_ns == 0 and key != "epilogue"):
        raise UsageError(f"--tile-ns {text}: a mainloop of {value} ns cannot be spun", "give a time above 0")
    if time_ns > LONGEST_SPIN_NS:
        raise UsageError(
            f"--tile-ns {text}: {key} of {value} ns is longer than the deadline of a spin, "
            f"{LONGEST_SPIN_NS:.0f} ns",
            "times are in ns",
        )
    return time_ns
