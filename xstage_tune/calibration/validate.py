"""The fitted law against points that the fit never saw (equations 3 and 7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.calibration.capacity import CapacityFit, IsolatedSeries
from xstage_tune.calibration.issue import CurveKey, IssueModel
from xstage_tune.calibration.reduce import Floats, PeriodicFigures
from xstage_tune.calibration.result import GapCurve, IsolatedCurve
from xstage_tune.model import burst_gap
from xstage_tune.platforms.schema import Validation

GapKey = tuple[StoreFlavour, int, int]


@dataclass(frozen=True, slots=True)
class GapSweep:
    """One (flavour, K, B) over the gap, by rising gap: runs that neither R nor T0 came from."""

    flavour: StoreFlavour
    producers: int
    burst_bytes: int
    runs: tuple[PeriodicFigures, ...]
    free_issue_ns: float

    @property
    def volume_bytes(self) -> int:
        """V = K*B."""
        return self.producers * self.burst_bytes

    @property
    def gap_ns(self) -> Floats:
        """Realised gap of each run."""
        return np.array([run.gap_ns for run in self.runs])

    @property
    def issue_ns(self) -> Floats:
        """Measured T_iss of each run."""
        return np.array([run.issue_ns for run in self.runs])

    @property
    def period_ns(self) -> Floats:
        """Measured period of each run."""
        return np.array([run.period_ns for run in self.runs])


def held_out_sweeps(
    runs: Sequence[PeriodicFigures], plateaus: Sequence[PeriodicFigures], issue: IssueModel
) -> list[GapSweep]:
    """Gap sweeps from the runs with a gap that are no plateau: nothing is fitted to them."""
    fitted = {plateau.point for plateau in plateaus}
    by_key: dict[GapKey, list[PeriodicFigures]] = {}
    for run in sorted(
        runs, key=lambda r: (r.point.flavour, r.point.producers, r.point.burst_bytes, r.gap_ns)
    ):
        if run.point.gap_ns > 0 and run.point not in fitted:
            key = (run.point.flavour, run.point.producers, run.point.burst_bytes)
            by_key.setdefault(key, []).append(run)
    return [GapSweep(*key, tuple(members), issue.free_issue_ns(*key)) for key, members in by_key.items()]


def gap_curve(sweep: GapSweep, drain_bytes_per_s: float, local_runs: Iterable[PeriodicFigures]) -> GapCurve:
    """Predict one sweep by equation 3; ``local_runs`` of the same (flavour, K, B) go beside it."""
    predicted = burst_gap.issue_ns(
        gap_ns=sweep.gap_ns,
        free_issue_ns=sweep.free_issue_ns,
        volume_bytes=sweep.volume_bytes,
        drain_bytes_per_s=drain_bytes_per_s,
    )
    key = (sweep.flavour, sweep.producers, sweep.burst_bytes)
    local = [
        run
        for run in sorted(local_runs, key=lambda r: r.gap_ns)
        if (run.point.flavour, run.point.producers, run.point.burst_bytes) == key
    ]
    return GapCurve(
        flavour=sweep.flavour,
        producers=sweep.producers,
        burst_bytes=sweep.burst_bytes,
        gap_ns=sweep.gap_ns,
        issue_ns=sweep.issue_ns,
        period_ns=sweep.period_ns,
        predicted_issue_ns=predicted,
        predicted_period_ns=burst_gap.period_ns(issue_ns=predicted, gap_ns=sweep.gap_ns),
        local_gap_ns=np.array([run.gap_ns for run in local]),
        local_issue_ns=np.array([run.issue_ns for run in local]),
    )


def isolated_curve(
    series: IsolatedSeries,
    fits: Mapping[CurveKey, CapacityFit],
    issue: IssueModel,
    drain_bytes_per_s: float,
) -> IsolatedCurve:
    """Predict one series by equation 7, at the points of the fit as well as at those held out."""
    predicted = burst_gap.isolated_issue_ns(
        free_issue_ns=series.free_issue_ns(issue),
        volume_bytes=series.volume_bytes,
        drain_bytes_per_s=drain_bytes_per_s,
        capacity_bytes=fits[series.key].bytes,
    )
    return IsolatedCurve(
        flavour=series.flavour,
        producers=series.producers,
        volume_bytes=series.volume_bytes,
        issue_ns=series.issue_ns,
        predicted_issue_ns=predicted,
        held_out=series.held_out,
    )


def validate(
    gap_curves: Sequence[GapCurve], isolated_curves: Sequence[IsolatedCurve], reached: set[CurveKey]
) -> Validation | None:
    """Relative errors over all held-out points; None when either kind has no point.

    Args:
        gap_curves: sweeps, all of whose points are held out.
        isolated_curves: series, of which only held-out points count.
        reached: the (flavour, K) whose knee was reached; the others have no Q to predict with.
    """
    isolated = [curve for curve in isolated_curves if (curve.flavour, curve.producers) in reached]
    period = _percent_errors([(c.period_ns, c.predicted_period_ns) for c in gap_curves])
    issue = _percent_errors([(c.issue_ns, c.predicted_issue_ns) for c in gap_curves])
    alone = _percent_errors([(c.issue_ns[c.held_out], c.predicted_issue_ns[c.held_out]) for c in isolated])
    if period.size == 0 or alone.size == 0:
        return None
    return Validation(
        period_median_pct=_quantile(period, 0.5),
        period_p95_pct=_quantile(period, 0.95),
        issue_median_pct=_quantile(issue, 0.5),
        issue_p95_pct=_quantile(issue, 0.95),
        isolated_median_pct=_quantile(alone, 0.5),
        isolated_p95_pct=_quantile(alone, 0.95),
        points=period.size + alone.size,
    )


def _percent_errors(pairs: Sequence[tuple[Floats, Floats]]) -> Floats:
    errors = [100 * np.abs(predicted / measured - 1) for measured, predicted in pairs]
    return np.concatenate([np.zeros(0), *errors])


def _quantile(errors: Floats, fraction: float) -> float:
    return float(np.quantile(errors, fraction))
