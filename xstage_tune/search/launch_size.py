"""How many tiles a launch has: the simulator's memory and time grow with them."""

from __future__ import annotations

from collections.abc import Iterable

from xstage_tune.configs.schema import AttentionConfig, KernelConfig
from xstage_tune.devices.fused_launch import launch_tiles
from xstage_tune.errors import UsageError
from xstage_tune.workloads.schema import Workload

#: More take the simulator minutes and gigabytes.
MOST_TILES = 20_000_000


def require_simulable(configs: Iterable[KernelConfig], workload: Workload) -> None:
    """Refuse a workload of which a config launches more than ``MOST_TILES`` tiles on one rank.

    Raises:
        UsageError: names the block of the largest launch, and its tiles.
    """
    if reason := too_large(configs, workload):
        raise UsageError(reason, "give it fewer tokens, with --set or in its profile")


def too_large(configs: Iterable[KernelConfig], workload: Workload) -> str:
    """Why a workload is too large to simulate with these configs; empty where it is not."""
    by_tile = {_tile(config): config for config in configs}
    tiles, (block_m, block_n, parts) = max((launch_tiles(workload, of), tile) for tile, of in by_tile.items())
    if tiles <= MOST_TILES:
        return ""
    return (
        f"'{workload.name}' has {tiles:,} {'parts of tiles' if parts > 1 else 'tiles'} on one rank (in "
        f"blocks of {block_m} x {block_n}), more than the {MOST_TILES:,} that a search simulates"
    )


def _tile(config: KernelConfig) -> tuple[int, int, int]:
    """What the number of tiles follows from."""
    return config.block_m, config.block_n, config.kv_splits if isinstance(config, AttentionConfig) else 1
