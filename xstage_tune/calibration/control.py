"""The local control: the same producers storing to their own memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xstage_tune.calibration.reduce import PeriodicFigures
from xstage_tune.platforms.schema import LocalControl


def local_control(runs: Sequence[PeriodicFigures]) -> LocalControl | None:
    """Spread of the local issue time over the gap, of the (K, B) with most runs; None without a sweep.

    Instruction cost does not depend on the gap; what does is a wait, which a local store should not have.
    """
    by_size: dict[tuple[int, int], list[PeriodicFigures]] = {}
    for run in runs:
        by_size.setdefault((run.point.producers, run.point.burst_bytes), []).append(run)
    if not by_size:
        return None
    (producers, burst_bytes), swept = max(by_size.items(), key=lambda item: (len(item[1]), item[0]))
    if len(swept) < 2:
        return None
    times = np.array([run.issue_ns for run in swept])
    median = float(np.median(times))
    return LocalControl(
        producers=producers,
        burst_bytes=burst_bytes,
        issue_ns=median,
        gap_spread=float((times.max() - times.min()) / median),
    )
