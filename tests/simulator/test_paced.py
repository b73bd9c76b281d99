"""Bursts that their kernel spreads over time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulator.cases import paper_drain, repeated
from xstage_tune.simulator.drain import DrainModel
from xstage_tune.simulator.pipeline import PipelineConfig, PipelineRun, simulate

EXACT = 1e-9
SMS, TILES, BURST_BYTES, FREE_NS = 148, 8, 32768.0, 760.0
DRAIN_NS = SMS * BURST_BYTES / 717


def paced(paced_ns: float, drain: DrainModel, mainloop_ns: float = 20_000.0) -> PipelineRun:
    """Mainloops that last longer than V/R, whose operands are not loaded ahead at all."""
    streams = repeated(SMS, TILES, mainloop_ns, BURST_BYTES)
    streams = replace(streams, paced_ns=np.full(streams.tiles, paced_ns))
    return simulate(streams, drain, PipelineConfig(load_cover_ns=0.0))


@pytest.mark.parametrize("own_part", [0.0, 0.9])
@given(excess=st.floats(0.01, 1.5))
@settings(deadline=None, max_examples=20)
def test_a_burst_paced_below_r_finds_the_way_free(own_part: float, excess: float) -> None:
    """K*B/paced < R: what is stored leaves as it comes, so T_RS is the pace and no operand waits."""
    paced_ns = DRAIN_NS * (1 + excess)
    drain = paper_drain()
    drain = replace(drain, own_room_bytes=own_part * drain.capacity_bytes / SMS)
    run = paced(paced_ns, drain, mainloop_ns=3 * DRAIN_NS)
    assert run.issue_ns == pytest.approx(paced_ns, rel=EXACT)
    assert run.times.drained == pytest.approx(run.times.accepted, rel=EXACT)
    assert (run.starved_ns == 0).all()


def test_paced_below_r_it_leaves_no_backlog() -> None:
    assert paced(1.01 * DRAIN_NS, paper_drain()).peak_occupancy_bytes == 0


def test_an_operand_waits_as_long_as_the_burst_outlasts_its_issue() -> None:
    """All of Q in own rooms, so that a burst's own room is empty when V/R is over."""
    drain = paper_drain()
    drain = replace(drain, own_room_bytes=(drain.capacity_bytes - 1.0) / SMS)
    for paced_ns in (0.0, 0.5 * DRAIN_NS):
        run = paced(paced_ns, drain)
        issued_ns = max(FREE_NS, paced_ns)
        assert run.starved_ns[1] == pytest.approx(DRAIN_NS - issued_ns, rel=1e-3)


def test_a_pace_shorter_than_t0_changes_nothing() -> None:
    assert paced(0.9 * FREE_NS, paper_drain()).issue_ns == pytest.approx(FREE_NS, rel=EXACT)


def test_tiles_of_one_size_may_be_paced_differently() -> None:
    streams = repeated(SMS, 2, 20_000.0, BURST_BYTES)
    streams = replace(streams, paced_ns=np.tile([15_000.0, 0.0], SMS))
    run = simulate(streams, paper_drain(), PipelineConfig())
    assert run.issue_ns.reshape(SMS, 2)[0] == pytest.approx([15_000.0, FREE_NS], rel=EXACT)
