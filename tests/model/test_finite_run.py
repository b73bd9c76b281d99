"""The closed form of a finite run against a recursion over its tiles, its limits, and a measured skeleton."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xstage_tune.model.finite_run import run_stall_ns
from xstage_tune.platforms.loader import load_platform

properties = settings(deadline=None, max_examples=200)


class Run(NamedTuple):
    tiles: int
    slots: int
    gap_ns: float
    span_ns: float
    drain_ns: float
    room_ns: float


runs = st.builds(
    Run,
    tiles=st.integers(1, 60),
    slots=st.integers(1, 4),
    gap_ns=st.floats(1e3, 3e4),
    span_ns=st.floats(0, 3e4),
    drain_ns=st.floats(0, 3e4),
    room_ns=st.floats(0, 2e5),
)


def closed_form(run: Run) -> float:
    return float(run_stall_ns(**run._asdict()))


def tile_by_tile(run: Run) -> float:
    """CTAs in step: a mainloop needs a slot, stores go in order, and no byte is accepted without room.

    The path is counted in ns of R: a burst is ``drain_ns`` of it, and ``room_ns`` may be outstanding.
    """
    stored_ns: list[float] = []
    ready_ns = stall_ns = drained_ns = 0.0
    for tile in range(run.tiles):
        free_ns = stored_ns[tile - run.slots] if tile >= run.slots else 0.0
        stall_ns += max(0.0, free_ns - ready_ns)
        ready_ns = max(ready_ns, free_ns) + run.gap_ns
        begin_ns = max(ready_ns, stored_ns[-1] if stored_ns else 0.0)
        # The burst has drained drain_ns after the path is free for it; room is what may be left of it then.
        drained_ns = max(drained_ns, begin_ns) + run.drain_ns
        stored_ns.append(max(begin_ns + run.span_ns, drained_ns - run.room_ns))
    return stall_ns


@given(runs)
@properties
def test_behind_two_slots_a_drain_limited_run_stalls_as_it_does_tile_by_tile(run: Run) -> None:
    run = run._replace(slots=2, span_ns=0.0)
    assert closed_form(run) == pytest.approx(tile_by_tile(run), abs=1e-6 * run.tiles * 6e4)


@given(runs)
@properties
def test_each_slot_beyond_two_moves_it_by_one_gap_at_most(run: Run) -> None:
    run = run._replace(slots=max(2, run.slots), span_ns=0.0)
    off_ns = (run.slots - 2) * run.gap_ns
    assert closed_form(run) == pytest.approx(tile_by_tile(run), abs=off_ns + 1e-3)


@given(runs)
@properties
def test_where_stores_themselves_limit_it_is_too_low_by_at_most_the_room(run: Run) -> None:
    run = run._replace(slots=2, span_ns=max(run.span_ns, run.drain_ns))
    assert closed_form(run) <= tile_by_tile(run) + 1e-3
    assert closed_form(run) + run.room_ns >= tile_by_tile(run) - 1e-3


@given(runs)
@properties
def test_it_grows_with_the_tiles_and_tends_to_the_steady_excess(run: Run) -> None:
    limit_ns = max(run.span_ns, run.drain_ns, run.gap_ns)
    lengths = np.array([run.tiles, 2 * run.tiles, 1_000_000])
    stall_ns = run_stall_ns(**run._replace(tiles=0)._asdict() | {"tiles": lengths})
    assert (np.diff(stall_ns) >= 0).all()
    assert stall_ns[-1] / 1e6 == pytest.approx(limit_ns - run.gap_ns, abs=(run.room_ns + 4 * 3e4) / 1e6)


@pytest.mark.parametrize(("slots", "measured"), [(1, 1.049), (2, 1.044), (3, 1.041)])
def test_the_skeleton_on_an_h200_is_met_where_the_steady_state_is_not(slots: int, measured: float) -> None:
    """12 waves of 16 + 16 tiles of 25.0 and 12.7 us a CTA, V/R = 19.5 us: wave over interleaved.

    2% is the least error of the time-step simulation that was compared with the same measurement.
    """
    host = load_platform("h200-host")
    capacity = next(one for one in host.capacity if (one.flavour, one.producers) == ("st.v4", 132))
    fill_ns = capacity.bytes / host.drain.bytes_per_s * 1e9
    mainloops_ns = 12 * 16 * (25e3 + 12.7e3)
    stall_ns = 12 * closed_form(Run(16, slots, 12.7e3, 0.0, 19.5e3, min(fill_ns, 16 * 25e3)))
    mixed_ns = closed_form(Run(12 * 16, slots, 25e3 + 12.7e3, 0.0, 19.5e3, fill_ns))
    assert mixed_ns == 0
    assert (mainloops_ns + stall_ns) / mainloops_ns == pytest.approx(measured, rel=0.02)
    steady_ns = 12 * 16 * (19.5e3 - 12.7e3)
    assert (mainloops_ns + steady_ns) / mainloops_ns > 1.1 * measured


@pytest.mark.parametrize("name", Run._fields)
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_what_is_no_quantity_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        run_stall_ns(**Run(10, 2, 1e4, 1e3, 2e4, 5e4)._asdict() | {name: value})
