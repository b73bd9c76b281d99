"""Compiles the event loops, so that the processes that share out the tests find them compiled."""

from __future__ import annotations

import numpy as np

from xstage_tune.launches.bursts import BurstPoint
from xstage_tune.launches.streams import independent_streams
from xstage_tune.platforms.loader import load_platform
from xstage_tune.simulator.bursts import simulate_bursts
from xstage_tune.simulator.drain import drain_model
from xstage_tune.simulator.pipeline import PipelineConfig, simulate


def compile_loops() -> None:
    """Run each event loop once."""
    drain = drain_model(load_platform("paper-nvlink5"))
    first = np.arange(drain.producers + 1)
    simulate(
        independent_streams(first, np.ones(drain.producers), remote_bytes=1024.0), drain, PipelineConfig()
    )
    simulate_bursts(BurstPoint("isolated", "peer", "st.v4", drain.producers, 1024, 0, bursts=1), drain)


if __name__ == "__main__":
    compile_loops()
