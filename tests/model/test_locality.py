"""Weights that a step loads, by hand and against counting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xstage_tune.model import locality


@pytest.mark.parametrize(("cache", "expected"), [(0, 1.0), (25, 0.75), (100, 0.0), (300, 0.0)])
def test_what_does_not_fit_the_cache_is_lost(cache: float, expected: float) -> None:
    assert locality.lost_fraction(cache_bytes=cache, working_set_bytes=100) == expected


@given(row_tiles=st.integers(1, 64), rows=st.integers(1, 32), experts=st.integers(1, 8))
def test_a_step_over_whole_experts_reads_each_weight_tile_once(
    row_tiles: int, rows: int, experts: int
) -> None:
    step = {(expert, column) for expert in range(experts) for _ in range(rows) for column in range(row_tiles)}
    read = locality.distinct_weight_tiles(
        step_tiles=row_tiles * rows * experts, row_tiles=row_tiles, rows=rows
    )
    assert read == pytest.approx(len(step))


@given(row_tiles=st.integers(1, 64), step_tiles=st.integers(1, 200))
def test_a_step_within_an_expert_reads_no_more_than_one_rows_tiles(row_tiles: int, step_tiles: int) -> None:
    step = {tile % row_tiles for tile in range(step_tiles)}
    read = locality.distinct_weight_tiles(step_tiles=step_tiles, row_tiles=row_tiles, rows=10_000)
    assert read == len(step)


def test_loads_show_where_the_mainloops_are_shorter() -> None:
    loads = {"loaded_bytes": [4e6, 8e6], "memory_bytes_per_s": 4e12}
    assert locality.load_ns(**loads).tolist() == [1000, 2000]
    assert locality.exposed_load_ns(**loads, mainloop_ns=1500).tolist() == [0, 500]


def test_tiles_of_rows_and_sms_share_the_load_of_a_step() -> None:
    """132 tiles at once, 4 rows an expert: 33 weight tiles in a step of the whole GPU's bandwidth."""
    share = locality.tile_load_ns(weight_tile_bytes=1e6, rows=4, sms=132, memory_bytes_per_s=4e12)
    assert share == pytest.approx(locality.load_ns(loaded_bytes=33e6, memory_bytes_per_s=4e12))


def test_an_empty_working_set_is_refused() -> None:
    with pytest.raises(ValueError, match="working_set_bytes"):
        locality.lost_fraction(cache_bytes=1, working_set_bytes=0)
