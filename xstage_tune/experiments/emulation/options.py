"""From a command's options to a request: names looked up, what is left out filled in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.devices.platform_choice import accept_gpu, choose_platform
from xstage_tune.experiments.emulation.cases import with_staging_depth
from xstage_tune.experiments.emulation.request import (
    USUAL_MOE_SCHEDULES,
    EmulationRequest,
    ScheduleName,
    parse_given,
)
from xstage_tune.experiments.emulation.sweep import Sweep, parse_sweep
from xstage_tune.families.binding import default_config, family_of, family_of_config
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.config_choice import DEFAULT_CONFIG, is_file_choice, study_of
from xstage_tune.families.config_files import load_config
from xstage_tune.families.launch import GivenTimes
from xstage_tune.families.megamoe.config import MegaMoeConfig, Placement
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload import Workload
from xstage_tune.families.workload_files import load_workload
from xstage_tune.launches.device import DeviceDescription
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.search.journal import stored_result
from xstage_tune.store.facade import Store

ALL_SCHEDULES = "all"


@dataclass(frozen=True, slots=True)
class EmulationOptions:
    """Options as they were given; None, or empty, where they were not.

    Args:
        config: ``default``, ``study:ID`` or a file.
        schedules: names, or ``all``.
        force: whether another GPU's platform is taken.
    """

    workload: str
    overrides: Sequence[str] = ()
    config: str = DEFAULT_CONFIG
    schedules: tuple[str, ...] = ()
    placement: Literal["even", "share", "both"] | None = None
    path: StorePath | None = None
    flavour: StoreFlavour | None = None
    staging_depth: int | None = None
    tile_ns: str | None = None
    dependencies: bool = True
    completion_coupled: bool = False
    sweep: str | None = None
    platform: str | None = None
    repeats: int = 5
    seed: int = 0
    force: bool = False


def check_options(options: EmulationOptions) -> None:
    """Refuse what is wrong with them whatever the GPU, before one is looked for.

    Raises:
        UsageError: a name, file or value is unknown or breaks a schema.
    """
    workload = load_workload(options.workload, options.overrides)
    _given(options)
    _sweep(options, workload)
    require_readable(options.platform, options.config)


def make_request(
    options: EmulationOptions,
    device: DeviceDescription | None,
    store: Store,
    notify: Callable[[str], None],
) -> EmulationRequest:
    """The request of a command.

    Args:
        device: the GPU; None for the simulator.
        store: of the studies.
        notify: is told which platform was taken, and why, if none was named.

    Raises:
        UsageError: a name, file or value is unknown or does not fit.
    """
    workload = load_workload(options.workload, options.overrides)
    sweep = _sweep(options, workload)
    platform = choose_platform(options.platform, notify, device=device, path=options.path)
    path = options.path or platform.path
    config = _config(options, workload, platform, store)
    return EmulationRequest(
        workload=workload,
        platform=platform,
        config=config,
        schedules=_schedules(options, workload, config, sweep),
        path=path,
        placements=_placements(options, config),
        given=_given(options),
        dependencies=options.dependencies,
        completion_coupled=options.completion_coupled,
        repeats=options.repeats,
        seed=options.seed,
        sweep=sweep,
        other_gpu=accept_gpu(device, platform, path, notify) if device and options.force else "",
    )


def require_readable(platform: str | None, config: str) -> None:
    """Refuse a platform, or a config's file, that cannot be read.

    Raises:
        UsageError: there is no such one, or it breaks the schema.
    """
    if platform is not None:
        load_platform(platform)
    if is_file_choice(config):
        load_config(Path(config))


def choose_config(choice: str, workload: Workload, platform: PlatformProfile, store: Store) -> KernelConfig:
    """The config that a ``--config`` names: ``default``, ``study:ID`` or a file.

    Raises:
        UsageError: there is no such study or file, or the file breaks the schema.
    """
    if choice == DEFAULT_CONFIG:
        return default_config(workload, platform)
    if (study := study_of(choice)) is not None:
        return stored_result(store, study).best.config
    return load_config(Path(choice))


def _given(options: EmulationOptions) -> GivenTimes:
    return GivenTimes() if options.tile_ns is None else parse_given(options.tile_ns)


def _sweep(options: EmulationOptions, workload: Workload) -> Sweep | None:
    if options.sweep is None:
        return None
    return parse_sweep(options.sweep, moe=family_of(workload).depends)


def _config(
    options: EmulationOptions, workload: Workload, platform: PlatformProfile, store: Store
) -> KernelConfig:
    config = choose_config(options.config, workload, platform, store)
    if options.flavour is not None:
        config = config.model_copy(update={"store_flavour": options.flavour})
    if options.staging_depth is None:
        return config
    if family_of(workload).depends and family_of_config(config).depends:
        layer, tiles = cast(MoeWorkload, workload), cast(MegaMoeConfig, config)
        return with_staging_depth(tiles, options.staging_depth, layer, platform)
    raise UsageError(
        f"--staging-depth is of MegaMoE; '{workload.name}' is an attention",
        "its config's output_staging says where an output waits",
    )


def _schedules(
    options: EmulationOptions, workload: Workload, config: KernelConfig, sweep: Sweep | None
) -> tuple[ScheduleName, ...]:
    """As named; else the usual ones, and the schedule of a given config before them."""
    every: tuple[Any, ...] = family_of(workload).orders
    if ALL_SCHEDULES in options.schedules:
        return every
    if options.schedules:
        return tuple(dict.fromkeys(cast(ScheduleName, str(name)) for name in options.schedules))
    if family_of_config(config).depends:
        if sweep is not None and sweep.key == "lead":
            return ("interleaved",)
        own: tuple[ScheduleName, ...] = (
            () if options.config == DEFAULT_CONFIG else (cast(MegaMoeConfig, config).schedule.kind,)
        )
        return tuple(dict.fromkeys((*own, *USUAL_MOE_SCHEDULES)))
    return every if sweep is None or not every else (config.model_dump()["tile_order"],)


def _placements(options: EmulationOptions, config: KernelConfig) -> tuple[Placement, ...]:
    if not family_of_config(config).depends:
        if options.placement is not None:
            raise UsageError("--placement is of MegaMoE: an attention's tiles are all output tiles")
        return ("even",)
    if options.placement == "both":
        return get_args(Placement)
    return (options.placement or cast(MegaMoeConfig, config).schedule.placement,)
