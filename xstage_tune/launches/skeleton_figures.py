"""What one launch of a skeleton comes to: totals and quantiles of its spans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from xstage_tune.base.field_types import Positive
from xstage_tune.base.medians import median_or_none
from xstage_tune.base.spans import SpanKind
from xstage_tune.launches.skeletons import LANE_TOTALS_DTYPE, SkeletonRun


@dataclass(frozen=True, slots=True)
class LaunchFigures:
    """One launch; times in ns. Quantiles are of the tiles whose spans were kept, all else is of all tiles.

    Args:
        makespan_ns: from the common start until the last store is accepted.
        issue_mean_ns, issue_p50_ns, issue_p90_ns, issue_p99_ns: T_RS of the tiles that store to a remote
            owner; None where none does.
        issue_all_mean_ns: T_RS of all tiles.
        stall_ns, dependency_wait_ns: waits of the mainloop role, mean over the SMs.
        tensor_active: fraction of the launch that an SM's mainloop runs, mean over the SMs.
    """

    makespan_ns: Positive
    issue_mean_ns: float | None
    issue_p50_ns: float | None
    issue_p90_ns: float | None
    issue_p99_ns: float | None
    issue_all_mean_ns: float
    stall_ns: float
    dependency_wait_ns: float
    tensor_active: float


@dataclass(frozen=True, slots=True)
class ReplayedRun(SkeletonRun):
    """A recorded launch: its spans may be a sample, its figures are of all of them."""

    figures: LaunchFigures


def figures_of(run: SkeletonRun) -> LaunchFigures:
    """Reduce a launch; a recorded one keeps the figures that it had."""
    if isinstance(run, ReplayedRun):
        return run.figures
    streams, spans = run.skeleton.streams, run.table.spans
    issued = spans["kind"] == SpanKind.ISSUE
    tile = streams.first[spans["lane"][issued]] + spans["index"][issued]
    remote_ns = run.table.duration_ns()[issued][streams.remote_bytes[tile] > 0]
    quantiles = np.quantile(remote_ns, (0.5, 0.9, 0.99)).tolist() if remote_ns.size else [None] * 3
    total = {name: float(run.totals[name].sum()) for name in LANE_TOTALS_DTYPE.names or ()}
    return LaunchFigures(
        makespan_ns=run.makespan_ns,
        issue_mean_ns=_ratio(total["remote_issue_ns"], total["remote_tiles"]),
        issue_p50_ns=quantiles[0],
        issue_p90_ns=quantiles[1],
        issue_p99_ns=quantiles[2],
        issue_all_mean_ns=_ratio(total["issue_ns"], total["tiles"]) or 0.0,
        stall_ns=total["staging_stall_ns"] / streams.sms,
        dependency_wait_ns=total["dependency_wait_ns"] / streams.sms,
        tensor_active=_ratio(total["mainloop_ns"], run.makespan_ns * streams.sms) or 0.0,
    )


def median_of(launches: Sequence[LaunchFigures], of: Callable[[LaunchFigures], float | None]) -> float | None:
    """Median of a figure over launches; None where they have none."""
    return median_or_none([value for launch in launches if (value := of(launch)) is not None])


def _ratio(total: float, count: float) -> float | None:
    return total / count if count else None
