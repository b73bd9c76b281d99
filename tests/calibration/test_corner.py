"""The soft corner is offered only where it predicts left-out sweeps better."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.calibration.conftest import TRUTH
from tests.calibration.points import KIB, periodic_figures, periodic_point
from xstage_tune.calibration.corner import fit_corner
from xstage_tune.calibration.validate import GapSweep
from xstage_tune.model import burst_gap

R = TRUTH.drain_bytes_per_s
FREE_NS = 200.0


def sweep(k: int, width_fraction: float, noise: float = 0.001) -> GapSweep:
    """A sweep whose periods follow the soft law with ``width_fraction``, to within ``noise``."""
    burst_bytes = 16 * KIB
    rng = np.random.default_rng(k)
    volume = k * burst_bytes
    template = periodic_figures(TRUTH, periodic_point(4, burst_bytes, 20_000))
    runs = []
    for factor in (0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.3, 2.0):
        gap_ns = factor * volume / R * 1e9
        soft = burst_gap.softened_issue_ns(
            gap_ns=gap_ns,
            free_issue_ns=FREE_NS,
            volume_bytes=volume,
            drain_bytes_per_s=R,
            width_fraction=width_fraction,
        )
        period_ns = (float(soft) + gap_ns) * (1 + noise * rng.standard_normal())
        point = replace(template.point, producers=k, gap_ns=int(gap_ns))
        runs.append(replace(template, point=point, gap_ns=gap_ns, bytes_per_s=volume / period_ns * 1e9))
    return GapSweep("st.v4", k, burst_bytes, tuple(runs), FREE_NS)


def test_width_of_a_soft_corner_is_recovered_and_pays() -> None:
    corner = fit_corner([sweep(k, 0.06) for k in (8, 16, 33)], R)
    assert corner is not None
    assert corner.width_fraction == pytest.approx(0.06, rel=0.1)
    assert corner.soft_p95_pct is not None
    assert corner.plain_p95_pct is not None
    assert corner.soft_p95_pct < corner.plain_p95_pct - 1


def test_sharp_corner_is_left_sharp() -> None:
    assert fit_corner([sweep(k, 0.0) for k in (8, 16, 33)], R) is None


def test_width_that_does_not_carry_over_to_other_sweeps_is_not_offered() -> None:
    assert fit_corner([sweep(8, 0.15), sweep(33, 0.0)], R) is None


def test_a_single_sweep_is_split() -> None:
    corner = fit_corner([sweep(16, 0.06)], R)
    assert corner is not None
    assert corner.width_fraction == pytest.approx(0.06, rel=0.1)


def test_too_few_points_are_no_corner() -> None:
    assert fit_corner([], R) is None
    one = sweep(16, 0.06)
    assert fit_corner([replace(one, runs=one.runs[:3])], R) is None
