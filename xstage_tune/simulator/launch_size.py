"""How many tiles a launch has: the simulator's memory and time grow with them."""

from __future__ import annotations

from collections.abc import Iterable

from xstage_tune.base.errors import UsageError
from xstage_tune.families.binding import bind
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.workload import Workload
from xstage_tune.platforms.schema import PlatformProfile

#: More take the simulator minutes and gigabytes.
MOST_TILES = 20_000_000


def require_simulable(configs: Iterable[KernelConfig], workload: Workload, platform: PlatformProfile) -> None:
    """Refuse a workload of which a config launches more than ``MOST_TILES`` tiles on one rank.

    Raises:
        UsageError: names the block of the largest launch, and its tiles.
    """
    if reason := too_large(configs, workload, platform):
        raise UsageError(reason, "give it fewer tokens, with --set or in its profile")


def too_large(configs: Iterable[KernelConfig], workload: Workload, platform: PlatformProfile) -> str:
    """Why a workload is too large to simulate with these configs; empty where it is not."""
    bound = bind(workload, platform)
    sizes = [(bound.tiles(config), config) for config in configs]
    tiles = max(size for size, _ in sizes)
    if tiles <= MOST_TILES:
        return ""
    label = max(config.label for size, config in sizes if size == tiles)
    return (
        f"'{workload.name}' has {tiles:,} tiles on one rank (of {label}), more than the {MOST_TILES:,} that "
        "are simulated"
    )
