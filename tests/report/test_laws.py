"""Laws drawn through measurements: where they bend."""

from __future__ import annotations

import numpy as np
import pytest

from xstage_tune.calibration.result import IsolatedCurve
from xstage_tune.model import burst_gap
from xstage_tune.platforms.schema import CapacityPoint
from xstage_tune.report.calibration_figure import isolated_law

RATE = 52.6e9
CAPACITY = 2.8e6


@pytest.mark.parametrize("rounding", [0.0, 3e-9, -3e-9])
def test_knee_is_where_the_law_leaves_t0_however_numbers_are_rounded(rounding: float) -> None:
    volume = np.geomspace(2.5e5, 1.6e7, 40)
    free_ns = 150 + 2e-4 * volume
    predicted = burst_gap.isolated_issue_ns(
        free_issue_ns=free_ns, volume_bytes=volume, drain_bytes_per_s=RATE, capacity_bytes=CAPACITY
    )
    curve = IsolatedCurve("st.v4", 66, volume, predicted, predicted, np.zeros(40, np.bool_))
    point = CapacityPoint(
        flavour="st.v4", producers=66, bytes=CAPACITY * (1 + rounding), ci95=None, source="test"
    )
    grid, law_ns, knee = isolated_law(curve, point, RATE)
    assert knee is not None
    # V - Q = R * T0(V) at the knee, T0 being that of the last point below it.
    below = volume[volume < grid[knee]][-1]
    assert grid[knee] == pytest.approx(CAPACITY + RATE * (150 + 2e-4 * below) * 1e-9, rel=1e-6)
    assert law_ns[-1] == pytest.approx(predicted[-1], rel=1e-6)
