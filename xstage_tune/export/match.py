"""What a lookup found, and what tells it from an exact answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from xstage_tune.export.record import TunedConfig
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.megamoe.config import Schedule

#: ``exact``: tuned for this workload, on this GPU, by this tool, for these kernels. ``nearest``: for other
#: keys of the same layer, in reach. ``stale``: by another version of the tool or for other kernels.
#: ``forced``: run on another GPU than its platform was calibrated on, by ``--force``, which is this one.
#: ``unfinished``: the best so far of a search that had not ended, else as exact.
#: ``default``: no tuned config is to be relied on, this is the layer's default config.
Match = Literal["exact", "nearest", "stale", "forced", "unfinished", "default"]


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a lookup found: the config to run, how well it fits, and the export behind it.

    Args:
        config: to run; the default config where ``match`` is ``default``.
        match: see :data:`Match`.
        differs: keys of the workload that ``source`` was not tuned for.
        reasons: in words, all that keeps the match from being exact; empty where it is.
        unchecked: what could not be compared, and why; also the files that the bundle left out.
        source: the nearest export, which ``config`` is of unless it is the default.
    """

    config: KernelConfig
    match: Match
    differs: tuple[str, ...]
    reasons: tuple[str, ...]
    unchecked: tuple[str, ...]
    source: TunedConfig

    @property
    def unfinished(self) -> str | None:
        """Why the search behind ``source`` had not ended, so that it is only the best so far; else None."""
        return self.source.objective.unfinished


@dataclass(frozen=True, slots=True)
class ScheduleChoice:
    """A schedule for the routing at hand.

    Args:
        schedule: to run with the tiles of ``found.config``.
        stall_saved_ns: predicted stall of the Tensor Cores that interleaving saves, for each SM.
        locality_cost_ns: predicted cost of interleaving over the wave schedule. Both are None where the
            default config is to be run: its own schedule is taken, and nothing weighed.
        found: the lookup that the schedule rests on.
    """

    schedule: Schedule
    stall_saved_ns: float | None
    locality_cost_ns: float | None
    found: Lookup

    @property
    def match(self) -> Match:
        return self.found.match

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.found.reasons

    @property
    def unchecked(self) -> tuple[str, ...]:
        return self.found.unchecked

    @property
    def source(self) -> TunedConfig:
        return self.found.source
