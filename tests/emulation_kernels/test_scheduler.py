"""The kernels' scheduler takes the simulator's order tile by tile, and cannot deadlock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emulation_kernels.host_scheduler import COLUMNS, take_tickets, take_tiles
from tests.simulator.grids import grids, placements, schedules
from xstage_tune.families.megamoe.order import (
    LINEAR1,
    LINEAR2,
    Alternating,
    ClampedLag,
    ExpertWave,
    Interleaved,
    MoeGrid,
    Schedule,
    megamoe_order,
)
from xstage_tune.families.megamoe.placement import share_placement
from xstage_tune.families.megamoe.scheduling import MoeScheduling

SCHEDULES: tuple[Schedule, ...] = (
    ExpertWave(1),
    ExpertWave(4),
    ExpertWave(100),
    Interleaved(1),
    Interleaved(3),
    Interleaved(32),
    Interleaved(10**6),
    Alternating(),
    Alternating(0),
    Alternating(10**6),
    ClampedLag(),
)
#: Tokens of each expert: one expert, hot and empty ones, ragged rows, nobody, more lag units than the lag.
ROUTINGS = {
    "even": (512,) * 8,
    "hot": (1, 0, 9000, 3, 0, 0, 130, 64),
    "empty first and last": (0, 0, 700, 129, 0),
    "one token": (0, 1, 0),
    "nobody": (0, 0, 0),
    "one expert": (2048,),
    "many units": (9000, 5000, 0, 7777, 1),
}


@st.composite
def schedulings(draw: st.DrawFn) -> MoeScheduling:
    grid = draw(grids())
    return MoeScheduling(grid, draw(schedules), draw(st.none() | placements(grid)))


def assert_takes_the_simulators_order(scheduling: MoeScheduling) -> None:
    grid = scheduling.grid
    order = megamoe_order(grid, scheduling.schedule, scheduling.placement)
    taken = take_tiles(scheduling)
    assert [len(tiles) for tiles in taken] == np.diff(order.first).tolist()
    tiles = np.concatenate(taken)
    for column in ("layer", "row", "n_tile"):
        np.testing.assert_array_equal(tiles[column], getattr(order, column))
    np.testing.assert_array_equal(tiles["expert"], grid.expert_of_row[tiles["row"]])
    np.testing.assert_array_equal(tiles["m_block"], tiles["row"] - grid.first_row[tiles["expert"]])
    np.testing.assert_array_equal(tiles["tokens"], grid.row_tokens[tiles["row"]])


@given(scheduling=schedulings())
@settings(deadline=None, max_examples=150)
def test_any_layer_is_taken_in_the_simulators_order(scheduling: MoeScheduling) -> None:
    assert_takes_the_simulators_order(scheduling)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("cta_group", [1, 2])
def test_skewed_layers_are_taken_in_the_simulators_order(
    schedule: Schedule, routing: str, cta_group: int
) -> None:
    grid = MoeGrid(ROUTINGS[routing], 128, l1_tiles=32, l2_tiles=56, sms=133, cta_group=cta_group)
    assert_takes_the_simulators_order(MoeScheduling(grid, schedule))


@given(scheduling=schedulings())
@settings(deadline=None, max_examples=100)
def test_every_tile_is_taken_exactly_once(scheduling: MoeScheduling) -> None:
    grid, tiles = scheduling.grid, np.concatenate(take_tiles(scheduling))
    for layer, width in ((LINEAR1, grid.l1_tiles), (LINEAR2, grid.l2_tiles)):
        mine = tiles[tiles["layer"] == layer]
        number = np.sort(mine["row"].astype(np.int64) * width + mine["n_tile"])
        np.testing.assert_array_equal(number, np.arange(grid.rows * width))


@given(scheduling=schedulings())
@settings(deadline=None, max_examples=100)
def test_instances_that_wait_for_row_counters_all_finish(scheduling: MoeScheduling) -> None:
    """Run the SMs one at a time, each as far as the counters let it, the last first: none is left waiting."""
    grid, taken = scheduling.grid, take_tiles(scheduling)
    written = np.zeros(grid.rows, np.int64)
    cursor = [0] * len(taken)
    moved = True
    while moved:
        moved = False
        for sm in reversed(range(len(taken))):
            while cursor[sm] < len(taken[sm]):
                tile = taken[sm][cursor[sm]]
                if tile["layer"] == LINEAR2 and written[tile["row"]] < grid.l1_tiles:
                    break
                written[tile["row"]] += tile["layer"] == LINEAR1
                cursor[sm] += 1
                moved = True
    assert cursor == [len(tiles) for tiles in taken]


def shares(grid: MoeGrid) -> np.ndarray:
    """As on an H200: 24 SMs with half as much again as the others."""
    return np.where(np.arange(grid.sms) % 11 < 2, 1.38, 0.92)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_placement_by_share_is_taken_in_the_simulators_order(schedule: Schedule) -> None:
    grid = MoeGrid(ROUTINGS["many units"], 128, l1_tiles=32, l2_tiles=56, sms=132, cta_group=1)
    placement = share_placement(grid, shares(grid), l1_ns=12_000, l2_ns=6_000)
    assert_takes_the_simulators_order(MoeScheduling(grid, schedule, placement))


def assert_tickets_are_one_instances_order(scheduling: MoeScheduling, tickets: list[int]) -> None:
    grid = replace(scheduling.grid, sms=1, cta_group=1)
    alone = MoeScheduling(grid, scheduling.schedule)
    (order,) = take_tiles(alone)
    taken = take_tickets(alone, np.array(tickets, np.uint32))
    expected = order[[ticket for ticket in tickets if ticket < len(order)]]
    for column in COLUMNS:
        np.testing.assert_array_equal(taken[column], expected[column])


@given(scheduling=schedulings(), steps=st.lists(st.integers(1, 150), max_size=60))
@settings(deadline=None, max_examples=150)
def test_tickets_are_the_order_of_one_instance(scheduling: MoeScheduling, steps: list[int]) -> None:
    """Every ticket by itself, and some that leave out those of other CTAs; beyond the last there is none."""
    grid = scheduling.grid
    everyone = grid.rows * (grid.l1_tiles + grid.l2_tiles)
    assert_tickets_are_one_instances_order(scheduling, list(range(everyone + 2)))
    assert_tickets_are_one_instances_order(scheduling, np.cumsum(steps).tolist())


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("widths", [(32, 56), (56, 32), (7, 7)], ids=str)
def test_tickets_of_skewed_layers(schedule: Schedule, routing: str, widths: tuple[int, int]) -> None:
    scheduling = MoeScheduling(MoeGrid(ROUTINGS[routing], 128, *widths, sms=1, cta_group=1), schedule)
    for stride in (1, 131, 132, 1000):
        assert_tickets_are_one_instances_order(scheduling, list(range(stride // 2, 20_000, stride)))
