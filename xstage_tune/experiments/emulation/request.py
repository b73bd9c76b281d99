"""What is asked of an emulation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.base.profile_files import check_profile
from xstage_tune.experiments.emulation.sweep import Sweep, sweep_from_keys, sweep_keys
from xstage_tune.families.attention_a2a.config import TileOrder
from xstage_tune.families.binding import family_of
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.config_files import config_from_keys, config_keys
from xstage_tune.families.fused_skeleton import LONGEST_SPIN_NS
from xstage_tune.families.launch import GivenTimes
from xstage_tune.families.megamoe.config import Placement, ScheduleKind
from xstage_tune.families.workload import Workload
from xstage_tune.families.workload_files import workload_from_keys
from xstage_tune.launches.requirements import require_platform_path, require_repeats
from xstage_tune.platforms.schema import PlatformProfile

ScheduleName = ScheduleKind | TileOrder
#: What a MegaMoE emulation compares unless told otherwise: the historical baseline, Algorithm 1, and 1:1.
USUAL_MOE_SCHEDULES: tuple[ScheduleName, ...] = ("wave", "interleaved", "alternating")

_SPINS = {"l1": "l1_ns", "l2": "l2_ns", "q": "q_ns", "epilogue": "epilogue_ns"}
_SPIN_EXAMPLE = "--tile-ns l1=25000,l2=12700 for MegaMoE, --tile-ns q=80000 for attention"


@dataclass(frozen=True, slots=True)
class EmulationRequest:
    """One emulation: a workload's schedules on one path of one GPU.

    Args:
        platform: calibrated, of that path: what the predictions rest on, and the shares of a placement.
        config: tiles, staging, and the parameters of its own schedule.
        schedules: MegaMoE's schedules, or attention's tile orders.
        placements: of each MegaMoE schedule.
        path: of the remote stores.
        given: tile times in place of the compute model's.
        dependencies: False runs Linear-2 as if its inputs were ready.
        completion_coupled: the issue role waits for visibility: the counterfactual.
        repeats: launches of each case.
        seed: of the simulator's start times.
        sweep: a quantity to vary; None for one value of everything.
        other_gpu: how the GPU differs from the platform's, where it was forced on it; else empty.

    Raises:
        UsageError: two of them do not go together, or with the workload.
    """

    workload: Workload
    platform: PlatformProfile
    config: KernelConfig
    schedules: tuple[ScheduleName, ...]
    path: StorePath
    placements: tuple[Placement, ...] = ("even",)
    given: GivenTimes = field(default_factory=GivenTimes)
    dependencies: bool = True
    completion_coupled: bool = False
    repeats: int = 5
    seed: int = 0
    sweep: Sweep | None = None
    other_gpu: str = ""

    def __post_init__(self) -> None:
        family = family_of(self.workload)
        moe = family.depends
        if self.config.kind != family.config_kind:
            raise UsageError(
                f"a config of kind '{self.config.kind}' does not fit the workload '{self.workload.name}'",
                f"give one of kind '{family.config_kind}', or --config default",
            )
        if not family.orders:
            raise UsageError(
                f"a workload of kind '{self.workload.kind}' is not emulated: its family names no tile orders",
                "audit and search serve it",
            )
        known, what = family.orders, family.orders_name
        for name in self.schedules:
            if name not in known:
                raise UsageError(
                    f"--schedule {name} does not fit the workload '{self.workload.name}'",
                    f"its {what} are {', '.join(known)}",
                )
        require_platform_path(self.platform, self.path)
        require_repeats(self.repeats)
        if not moe and not self.dependencies:
            raise UsageError(
                f"--no-dependencies is of MegaMoE; the tiles of '{self.workload.name}' depend on nothing",
                "leave it out",
            )
        if "share" in self.placements and self.platform.arbitration is None:
            raise UsageError(
                f"platform '{self.platform.name}' has no shares of its SMs to place tiles by",
                "leave out --placement, or give a --platform with arbitration",
            )
        _check_given(self.given, moe)
        self._check_sweep(moe)

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

    def keys(self) -> dict[str, Any]:
        """As plain keys; :func:`request_from_keys` reads them back."""
        return {
            "workload": self.workload.model_dump(mode="json", exclude_none=True),
            "platform": self.platform.model_dump(mode="json", exclude_none=True),
            "config": config_keys(self.config),
            "schedules": list(self.schedules),
            "placements": list(self.placements),
            "path": self.path,
            "given": {key: value for key, value in asdict(self.given).items() if value is not None},
            "dependencies": self.dependencies,
            "completion_coupled": self.completion_coupled,
            "repeats": self.repeats,
            "seed": self.seed,
            "sweep": sweep_keys(self.sweep),
            "other_gpu": self.other_gpu,
        }

    def _check_sweep(self, moe: bool) -> None:
        if self.sweep is None:
            return
        key = self.sweep.key
        if not moe and key in ("lead", "staging_depth"):
            raise UsageError(
                f"--sweep {key} is of MegaMoE; '{self.workload.name}' is an attention",
                "sweep tokens or remote_fraction, or change output_staging in a --config",
            )
        if key == "lead" and self.schedules != ("interleaved",):
            raise UsageError(
                "--sweep lead is of the interleaved schedule", "give --schedule interleaved alone"
            )


def request_from_keys(keys: Mapping[str, Any], origin: str) -> EmulationRequest:
    """Keys of :meth:`EmulationRequest.keys` as a request.

    Raises:
        UsageError: they are of another version, or break a schema.
    """
    try:
        return EmulationRequest(
            workload=workload_from_keys(dict(keys["workload"]), f"{origin}, workload"),
            platform=check_profile(PlatformProfile, keys["platform"], f"{origin}, platform"),
            config=config_from_keys(keys["config"], f"{origin}, config"),
            schedules=tuple(keys["schedules"]),
            placements=tuple(keys["placements"]),
            path=keys["path"],
            given=GivenTimes(**keys["given"]),
            dependencies=keys["dependencies"],
            completion_coupled=keys["completion_coupled"],
            repeats=keys["repeats"],
            seed=keys["seed"],
            sweep=sweep_from_keys(keys["sweep"]),
            other_gpu=str(keys.get("other_gpu", "")),
        )
    except UsageError as error:
        where = "" if error.message.startswith(origin) else f"{origin}: "
        raise UsageError(f"{where}{error.message}", error.hint) from None
    except (KeyError, TypeError) as error:
        raise UsageError(f"{origin}: not the request of an emulation: {error}") from None


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


def _check_given(given: GivenTimes, moe: bool) -> None:
    if moe and given.q_ns is not None:
        raise UsageError("--tile-ns q is of attention; a MoE layer takes l1 and l2", _SPIN_EXAMPLE)
    if not moe and (given.l1_ns, given.l2_ns) != (None, None):
        raise UsageError("--tile-ns l1 and l2 are of a MoE layer; attention takes q", _SPIN_EXAMPLE)
    if (given.l1_ns is None) != (given.l2_ns is None):
        raise UsageError("--tile-ns takes l1 and l2 together", _SPIN_EXAMPLE)
