"""What one launch of a skeleton comes to: totals and quantiles of its spans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.field_types import Positive
from xstage_tune.base.medians import median_or_none
from xstage_tune.base.spans import SpanKind, SpanTable
from xstage_tune.launches.streams import Streams

#: What one SM did in all, exact however few of its spans were kept; times in ns.
LANE_TOTALS_DTYPE = np.dtype(
    [
        ("tiles", "<u4"),
        ("remote_tiles", "<u4"),  # of them, those with remote bytes
        ("mainloop_ns", "<f8"),
        ("staging_stall_ns", "<f8"),
        ("dependency_wait_ns", "<f8"),
        ("issue_ns", "<f8"),  # T_RS of all tiles
        ("remote_issue_ns", "<f8"),  # T_RS of the tiles with remote bytes
        ("completion_ns", "<f8"),  # waits for visibility, after T_RS; completion-coupled only
        ("signal_ns", "<f8"),  # from a tile's last local store accepted to its counter's being raised
        ("finish_ns", "<f8"),  # from the common start until its last store is accepted
    ]
)


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


def figures_of(
    streams: Streams, table: SpanTable, totals: NDArray[np.void], makespan_ns: float
) -> LaunchFigures:
    """Reduce a launch.

    Args:
        table: spans of some or all of its tiles.
        totals: ``[SMs]`` of :data:`LANE_TOTALS_DTYPE`, over all tiles.
        makespan_ns: from the common start until the last store of the last SM is accepted.
    """
    spans = table.spans
    issued = spans["kind"] == SpanKind.ISSUE
    tile = streams.first[spans["lane"][issued]] + spans["index"][issued]
    remote_ns = table.duration_ns()[issued][streams.remote_bytes[tile] > 0]
    quantiles = np.quantile(remote_ns, (0.5, 0.9, 0.99)).tolist() if remote_ns.size else [None] * 3
    total = {name: float(totals[name].sum()) for name in LANE_TOTALS_DTYPE.names or ()}
    return LaunchFigures(
        makespan_ns=makespan_ns,
        issue_mean_ns=_ratio(total["remote_issue_ns"], total["remote_tiles"]),
        issue_p50_ns=quantiles[0],
        issue_p90_ns=quantiles[1],
        issue_p99_ns=quantiles[2],
        issue_all_mean_ns=_ratio(total["issue_ns"], total["tiles"]) or 0.0,
        stall_ns=total["staging_stall_ns"] / streams.sms,
        dependency_wait_ns=total["dependency_wait_ns"] / streams.sms,
        tensor_active=_ratio(total["mainloop_ns"], makespan_ns * streams.sms) or 0.0,
    )


def median_of(launches: Sequence[LaunchFigures], of: Callable[[LaunchFigures], float | None]) -> float | None:
    """Median of a figure over launches; None where they have none."""
    return median_or_none([value for launch in launches if (value := of(launch)) is not None])


def _ratio(total: float, count: float) -> float | None:
    return total / count if count else None
