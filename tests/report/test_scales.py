"""Axes: every point inside, ticks round, few and labelled with units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xstage_tune.report.figure import Axis, Panel, Series
from xstage_tune.report.scales import Scale, panel_scales

_GAP = Axis("gap", "duration_ns", "linear")
_TIME = Axis("time", "duration_ns", "log")
_VOLUME = Axis("volume", "bytes", "log")
_RESIDUAL = Axis("residual", "duration_ns", "symlog")


def scale_of(axis: Axis, values: list[float]) -> Scale:
    data = np.array(values, dtype=np.float64)
    panel = Panel("a", "", axis, axis, (Series("s", "points", 0, data, data),), ())
    return panel_scales(panel)[0]


@settings(deadline=None, max_examples=200)
@given(
    st.one_of(
        st.tuples(
            st.sampled_from([_GAP, _TIME, _VOLUME]), st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=6)
        ),
        st.tuples(st.just(_RESIDUAL), st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=6)),
    ),
    st.integers(2, 9),
)
def test_points_and_ticks_lie_inside_and_ticks_are_few_and_distinct(
    shown: tuple[Axis, list[float]], most: int
) -> None:
    axis, values = shown
    scale = scale_of(axis, values)
    places = scale.fraction(np.array(values))
    assert ((places >= -1e-9) & (places <= 1 + 1e-9)).all()
    ticks = scale.ticks(most)
    assert 1 <= len(ticks) <= most
    at = scale.fraction(np.array([tick.value for tick in ticks]))
    assert ((at >= -1e-6) & (at <= 1 + 1e-6)).all()
    assert len({tick.label for tick in ticks}) == len(ticks)


def test_a_symlog_axis_shows_small_and_large_residuals_nothing_and_less_than_nothing() -> None:
    values = [-5_948.0, 0.0, 725.0, 11_360.0, 1_340_000.0]
    scale = scale_of(_RESIDUAL, values)
    assert scale.title == "residual, linear below 100 ns"
    labels = ", ".join(tick.label for tick in scale.ticks(9))
    assert labels == "-10 us, -1 us, -100 ns, 0, 100 ns, 1 us, 10 us, 100 us, 1 ms"
    places = scale.fraction(np.array(values))
    assert (np.diff(places) > 0.05).all()
    decades = scale.fraction(np.array([1e2, 1e3, 1e4, 1e5, 1e6]))
    assert np.diff(decades) == pytest.approx(np.full(4, decades[1] - decades[0]))


def test_a_symlog_axis_of_nothing_has_a_range() -> None:
    for values in ([0.0], [0.0, 0.0]):
        scale = scale_of(_RESIDUAL, values)
        assert scale.low < scale.high
        assert 0.0 in {tick.value for tick in scale.ticks(5)}


def test_a_linear_axis_starts_at_zero_and_names_its_unit_once() -> None:
    scale = scale_of(_GAP, [3_000.0, 37_000.0])
    assert scale.low == 0
    assert scale.title == "gap (us)"
    assert [tick.label for tick in scale.ticks(5)] == ["0", "10", "20", "30"]


def test_a_linear_axis_below_one_unit_prints_decimals() -> None:
    assert [tick.label for tick in scale_of(_GAP, [1.1]).ticks(7)] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]


def test_a_logarithmic_axis_puts_the_unit_on_every_tick() -> None:
    assert [tick.label for tick in scale_of(_TIME, [90.0, 21e3]).ticks(4)] == ["100 ns", "1 us", "10 us"]
    assert scale_of(_TIME, [90.0, 21e3]).title == "time"


def test_volumes_get_ticks_at_powers_of_two() -> None:
    labels = [tick.label for tick in scale_of(_VOLUME, [16 * 1024.0, 8 * 2.0**20]).ticks(5)]
    assert labels == ["16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB"]


@pytest.mark.parametrize("axis", [_GAP, _TIME, _VOLUME])
def test_one_value_zero_spread_and_no_data_still_make_an_axis(axis: Axis) -> None:
    for values in ([], [5.0], [5.0, 5.0]):
        scale = scale_of(axis, values)
        assert scale.low < scale.high
        assert scale.ticks(5)


def test_an_axis_of_zeros_is_drawable() -> None:
    scale = scale_of(_GAP, [0.0, 0.0])
    assert scale.low == 0 < scale.high


def test_a_wide_logarithmic_axis_with_room_for_two_ticks_gets_two() -> None:
    assert [tick.label for tick in scale_of(_TIME, [2.5, 1.34e9]).ticks(2)] == ["10 ns", "1 ms"]
