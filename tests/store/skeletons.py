"""A small launch of a skeleton for the store to keep."""

from __future__ import annotations

import numpy as np

from xstage_tune.devices.simulator.skeletons import SimulatedSkeletons
from xstage_tune.devices.skeletons import Skeleton, SkeletonRun
from xstage_tune.devices.streams import independent_streams
from xstage_tune.platforms.loader import load_platform


def skeleton_run(tiles: int = 3) -> SkeletonRun:
    """``tiles`` tiles of 10 us on each SM of the paper's platform, each with 32 KiB for another GPU."""
    streams = independent_streams(
        np.arange(149) * tiles, np.full(148 * tiles, 10_000.0), remote_bytes=32768.0
    )
    skeleton = Skeleton("made up", streams, np.zeros(148 * tiles), 2, "st.v4", "peer")
    (run,) = SimulatedSkeletons(load_platform("paper-nvlink5")).run_skeletons([skeleton])
    return run
