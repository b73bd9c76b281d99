"""From a config to its skeleton, and what must hold of a launch of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from xstage_tune.base.errors import FindingError, UsageError
from xstage_tune.base.fabric import StorePath
from xstage_tune.families.binding import bind
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.config_files import config_keys
from xstage_tune.families.launch import GivenTimes
from xstage_tune.families.workload import Workload
from xstage_tune.launches.skeletons import Skeleton, SkeletonRun
from xstage_tune.platforms.schema import PlatformProfile

#: The longest spin: a launch of a few stays within a device's deadline, and a simulated span holds it.
LONGEST_SPIN_NS = 200e6
#: More take a device minutes, and their spans gigabytes.
_MOST_TILES = 1_000_000
#: Stores are of 16 bytes, in either flavour.
_STORE_BYTES = 16


def fused_skeleton(
    label: str,
    workload: Workload,
    config: KernelConfig,
    platform: PlatformProfile,
    *,
    path: StorePath,
    given: GivenTimes | None = None,
    dependencies: bool = True,
    completion_coupled: bool = False,
    remote: bool = True,
) -> Skeleton:
    """The skeleton of a config's launch on the rank that receives most; stores in whole 16 bytes.

    Args:
        given: tile times in place of the compute model's.
        dependencies: False runs Linear-2 tiles as if their inputs were ready.
        completion_coupled: the issue role waits until its stores are visible.
        remote: False keeps all stores local.

    Raises:
        UsageError: the config cannot run on the platform, the launch has too many tiles, or a tile's
            mainloop is too short or too long to spin.
    """
    bound = bind(workload, platform, config)
    tiles = bound.tiles(config)
    if tiles > _MOST_TILES:
        raise UsageError(
            f"'{workload.name}' has {tiles:,} tiles on one rank, more than the {_MOST_TILES:,} that are "
            "emulated",
            "give it fewer tokens, with --set or in its profile",
        )
    bound.require_feasible(config)
    launch = bound.launch(config, given, dependencies=dependencies)
    streams = launch.streams
    _check_spins(float(streams.mainloop_ns.min(initial=1.0)), float(streams.mainloop_ns.max(initial=1.0)))
    stored = _STORE_BYTES * np.rint((launch.local_bytes + streams.remote_bytes) / _STORE_BYTES)
    remote_bytes = _STORE_BYTES * np.rint(streams.remote_bytes / _STORE_BYTES) * remote
    return Skeleton(
        label=label,
        # A skeleton stores a tile at once, whatever the kernel does.
        streams=replace(streams, remote_bytes=remote_bytes, paced_ns=np.zeros(streams.tiles)),
        local_bytes=stored - remote_bytes,
        staging_slots=launch.staging_slots,
        flavour=launch.flavour,
        path=path,
        scheduling=launch.scheduling,
        completion_coupled=completion_coupled and remote,
        config=config_keys(config),
    )


def require_verified(run: SkeletonRun) -> None:
    """Refuse a launch whose data did not all arrive.

    Raises:
        FindingError: says on which path, of which skeleton.
    """
    wrong, checked = run.verification.mismatched_bytes, run.verification.checked_bytes
    if wrong:
        raise FindingError(
            f"{wrong} of {checked} bytes did not arrive on path '{run.launch.path}' "
            f"({run.launch.label}, {run.launch.flavour})",
            "xstage-tune doctor tests each path",
        )


def _check_spins(shortest_ns: float, longest_ns: float) -> None:
    if shortest_ns <= 0:
        raise UsageError("a tile's mainloop takes 0 ns: there is nothing to spin", "give --tile-ns above 0")
    if longest_ns > LONGEST_SPIN_NS:
        raise UsageError(
            f"a tile's mainloop of {longest_ns:.0f} ns is longer than the deadline of a spin, "
            f"{LONGEST_SPIN_NS:.0f} ns",
            "take a workload with fewer tokens, or give --tile-ns",
        )
