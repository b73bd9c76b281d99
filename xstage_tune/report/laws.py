"""The fitted laws as curves to draw through measured points, corners included."""

from __future__ import annotations

import numpy as np

from xstage_tune.calibration.result import GapCurve, IsolatedCurve
from xstage_tune.model import burst_gap
from xstage_tune.platforms.schema import CapacityPoint
from xstage_tune.report.figure import Floats

_GRID_POINTS = 240  # along a curve; its corner is added exactly


class GapLaw:
    """The laws of sections 3.2 to 3.5 for one gap sweep, with the T0 that the fit predicted with."""

    def __init__(self, curve: GapCurve, drain_bytes_per_s: float) -> None:
        self._last_gap_ns = float(curve.gap_ns.max())
        self._path = {
            "volume_bytes": float(curve.producers * curve.burst_bytes),
            "drain_bytes_per_s": drain_bytes_per_s,
        }
        # At the largest gap equation 3 is at T0, or on the branch V/R - G that it never left: either
        # way its least value reproduces the law over the gaps that were swept.
        self._free_issue_ns = float(curve.predicted_issue_ns.min())
        self.drain_ns = float(burst_gap.drain_ns(**self._path))
        self.recovery_gap_ns = float(
            burst_gap.recovery_gap_ns(free_issue_ns=self._free_issue_ns, **self._path)
        )

    @property
    def recovers(self) -> bool:
        """True when G* is inside the sweep, so that its corner was seen."""
        return 0.0 < self.recovery_gap_ns < self._last_gap_ns

    def grid_ns(self) -> Floats:
        grid = np.linspace(0.0, self._last_gap_ns, _GRID_POINTS)
        return np.union1d(grid, [self.recovery_gap_ns]) if self.recovers else grid

    def issue_ns(self, gap_ns: Floats) -> Floats:
        return burst_gap.issue_ns(gap_ns=gap_ns, free_issue_ns=self._free_issue_ns, **self._path)

    def period_ns(self, gap_ns: Floats) -> Floats:
        return burst_gap.steady_period_ns(gap_ns=gap_ns, free_issue_ns=self._free_issue_ns, **self._path)

    def completion_coupled_period_ns(self, gap_ns: Floats) -> Floats:
        return burst_gap.completion_coupled_period_ns(gap_ns=gap_ns, **self._path)


def isolated_law(
    curve: IsolatedCurve, capacity: CapacityPoint | None, drain_bytes_per_s: float
) -> tuple[Floats, Floats, int | None]:
    """Equation 7 as fitted: volumes in ascending order, issue times, and the index of the knee among them.

    T0 is the fit's between the points up to the knee, and from there on the last of them; the knee is
    where that meets ``(V - Q)/R``. Without a knee in the sweep, the predicted points and None.
    """
    order = np.argsort(curve.volume_bytes)
    volume, law_ns = curve.volume_bytes[order], curve.predicted_issue_ns[order]
    if capacity is None or not capacity.knee_reached:
        return volume, law_ns, None
    path = {"drain_bytes_per_s": drain_bytes_per_s, "capacity_bytes": capacity.bytes}
    waiting_ns = burst_gap.isolated_issue_ns(free_issue_ns=0.0, volume_bytes=volume, **path)
    # A profile's numbers are rounded, the predicted times are not.
    free = waiting_ns < law_ns * (1 - 1e-6)
    if not free[0] or free.all():
        return volume, law_ns, None
    below = int(np.argmin(free))  # volumes up to the knee
    knee_bytes = capacity.bytes + drain_bytes_per_s * law_ns[below - 1] / 1e9
    grid = np.union1d(np.geomspace(volume[0], volume[-1], _GRID_POINTS), [*volume, knee_bytes])
    free_ns = np.interp(grid, volume[:below], law_ns[:below])
    law = burst_gap.isolated_issue_ns(free_issue_ns=free_ns, volume_bytes=grid, **path)
    return grid, law, int(np.searchsorted(grid, knee_bytes))
