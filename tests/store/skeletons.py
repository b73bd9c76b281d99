"""A small made-up launch of a skeleton for the store to keep."""

from __future__ import annotations

import numpy as np

from tests.store.bursts import make_burst
from xstage_tune.launches.device import Outcome
from xstage_tune.launches.skeleton_figures import LANE_TOTALS_DTYPE, LaunchFigures
from xstage_tune.launches.skeletons import TOTALS, Skeleton, SkeletonRun
from xstage_tune.launches.streams import independent_streams

SMS = 4
TILES = 50  # of each SM
CONFIG = {"kind": "megamoe", "block_m": 128}


def skeleton_run() -> SkeletonRun:
    """Tiles of 10 us, each with 32 KiB for another GPU, and spans that no simulation has a say in."""
    streams = independent_streams(
        np.arange(SMS + 1) * TILES, np.full(SMS * TILES, 10_000.0), remote_bytes=32768.0
    )
    burst = make_burst(seed=21, lanes=SMS, bursts=TILES)
    skeleton = Skeleton(
        "made up", streams, np.zeros(SMS * TILES), 2, "st.v4", "peer", config=CONFIG, repeat=2
    )
    totals = np.zeros(SMS, LANE_TOTALS_DTYPE)
    figures = LaunchFigures(123.5, None, None, None, None, 0.0, 0.0, 0.0, 0.0)
    return Outcome(skeleton, figures, burst.info, burst.verification, burst.table, {TOTALS: totals})
