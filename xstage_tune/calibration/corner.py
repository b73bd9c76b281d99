"""The soft corner near G*: one width, offered only where it predicts left-out sweeps better."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xstage_tune.calibration.reduce import Floats
from xstage_tune.calibration.validate import GapSweep
from xstage_tune.model import burst_gap
from xstage_tune.platforms.schema import Corner

#: Widths tried, as a fraction of V/R.
WIDTHS = np.geomspace(0.002, 0.3, 121)
#: By this much, in percentage points, must the 95th percentile or the median of the error fall.
GAIN_PCT = 0.1


def fit_corner(sweeps: Sequence[GapSweep], drain_bytes_per_s: float) -> Corner | None:
    """The soft law's width if it pays in cross-validation, else None.

    Each sweep is predicted with the width fitted to all others; a single sweep is split by alternating
    gaps. The soft law is offered when neither the median nor the 95th percentile of the period's
    held-out error is worse than the plain law's, and one of them is better by ``GAIN_PCT``.
    """
    points = sum(len(sweep.runs) for sweep in sweeps)
    if points < 4:
        return None
    errors = np.concatenate([_signed_errors(sweep, drain_bytes_per_s) for sweep in sweeps], axis=1)
    plain = np.concatenate([_signed_errors(s, drain_bytes_per_s, np.zeros(1)) for s in sweeps], axis=1)[0]
    fold = np.repeat(np.arange(len(sweeps)), [len(sweep.runs) for sweep in sweeps])
    if len(sweeps) == 1:
        fold = np.arange(points) % 2

    soft = np.empty(points)
    for left_out in np.unique(fold):
        outside = fold == left_out
        soft[outside] = errors[_best(errors[:, ~outside]), outside]
    gain = _summary(plain) - _summary(soft)
    if gain.min() < 0 or gain.max() < GAIN_PCT:
        return None
    return Corner(
        width_fraction=float(WIDTHS[_best(errors)]),
        plain_median_pct=float(_summary(plain)[0]),
        soft_median_pct=float(_summary(soft)[0]),
        plain_p95_pct=float(_summary(plain)[1]),
        soft_p95_pct=float(_summary(soft)[1]),
    )


def _signed_errors(sweep: GapSweep, drain_bytes_per_s: float, widths: NDArray[np.float64] = WIDTHS) -> Floats:
    """Relative errors of the period in percent, ``[widths, runs]``."""
    soft = burst_gap.softened_issue_ns(
        gap_ns=sweep.gap_ns,
        free_issue_ns=sweep.free_issue_ns,
        volume_bytes=sweep.volume_bytes,
        drain_bytes_per_s=drain_bytes_per_s,
        width_fraction=widths[:, None],
    )
    predicted = burst_gap.period_ns(issue_ns=soft, gap_ns=sweep.gap_ns)
    errors: Floats = 100 * (predicted / sweep.period_ns - 1)
    return errors


def _best(errors: Floats) -> int:
    """Index of the width with the least mean absolute error."""
    return int(np.argmin(np.abs(errors).mean(axis=1)))


def _summary(errors: Floats) -> Floats:
    """Median and 95th percentile of the absolute error."""
    return np.quantile(np.abs(errors), (0.5, 0.95))
