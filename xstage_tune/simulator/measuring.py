"""How a simulated launch was made, as a device tells it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StorePath
from xstage_tune.launches.device import LaunchInfo
from xstage_tune.platforms.schema import PlatformProfile

Simulated = TypeVar("Simulated")

#: What ran them, as results name it.
SIMULATOR = "simulator"


def measure(
    run: Callable[[], Simulated], *, producers: int, kernel: str = SIMULATOR, sha256: str = ""
) -> tuple[Simulated, LaunchInfo]:
    """Run a simulation; how it was made.

    Args:
        producers: SMs that take part.
        sha256: of what it depends on beside the launch.
    """
    started_at, began_ns = datetime.now(UTC), time.perf_counter_ns()
    simulated = run()
    return simulated, LaunchInfo(
        kernel=kernel,
        kernel_sha256=sha256,
        registers=0,
        spill_bytes=0,
        shared_bytes=0,
        timer_tick_ns=1,
        elapsed_ns=time.perf_counter_ns() - began_ns,
        started_at=started_at.isoformat(timespec="microseconds"),
        producers=producers,
    )


def other_path(platform: PlatformProfile, path: StorePath) -> UsageError:
    """What to raise of stores on a path that the platform does not speak of."""
    return UsageError(
        f"platform '{platform.name}' was calibrated for path '{platform.path}', not '{path}'",
        "choose its path, or a platform of this one: xstage-tune platforms list",
    )
