"""The four panels as data: the laws through the points, the curves chosen, and awkward results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.report import results
from xstage_tune.calibration.result import CalibrationResult
from xstage_tune.report.calibration_figure import (
    calibration_figure,
    choose_gap_curves,
    choose_isolated_curves,
    producer_bands,
)
from xstage_tune.report.figure import Panel, Series

ONE_FLAVOUR = ("st.v4",)
DRAIN_NS = 132 * 8192 / results.DRAIN_BYTES_PER_S * 1e9  # V/R of the largest gap sweep
FREE_NS = results.free_issue_ns(8192, "st.v4")


def panel_of(result: CalibrationResult, key: str) -> Panel:
    return next(panel for panel in calibration_figure(result).panels if panel.key == key)


def series_of(panel: Panel, name: str) -> Series:
    return next(series for series in panel.series if series.name == name)


def test_panels_come_in_the_order_of_the_paper() -> None:
    assert [panel.key for panel in calibration_figure(results.calibration()).panels] == ["a", "b", "c", "d"]


def test_equation_3_passes_through_its_corner_at_the_recovery_gap() -> None:
    panel = panel_of(results.calibration(ONE_FLAVOUR), "a")
    law = series_of(panel, "K = 132, B = 8 KiB, equation 3")
    corner = series_of(panel, "K = 132, B = 8 KiB, G*")
    assert corner.x[0] == pytest.approx(DRAIN_NS - FREE_NS)
    assert corner.y[0] == pytest.approx(FREE_NS)
    assert corner.x[0] in law.x
    assert law.y[0] == pytest.approx(DRAIN_NS)
    assert law.y[-1] == pytest.approx(FREE_NS)


def test_the_max_law_lies_below_the_completion_coupled_sum_by_all_that_overlaps() -> None:
    panel = panel_of(results.calibration(ONE_FLAVOUR), "b")
    law = series_of(panel, "K = 132, B = 8 KiB, max law")
    coupled = series_of(panel, "K = 132, B = 8 KiB, completion-coupled")
    np.testing.assert_allclose(law.y, np.maximum(FREE_NS + law.x, DRAIN_NS))
    np.testing.assert_allclose(coupled.y, coupled.x + DRAIN_NS)


def test_a_sweep_that_stops_before_the_recovery_gap_marks_none() -> None:
    result = results.calibration(ONE_FLAVOUR)
    curve = result.gap_curves[0]
    short = curve.gap_ns < 0.5 * DRAIN_NS
    cut = replace(
        curve,
        **{
            name: getattr(curve, name)[short]
            for name in ("gap_ns", "issue_ns", "period_ns", "predicted_issue_ns", "predicted_period_ns")
        },
    )
    panel = panel_of(replace(result, gap_curves=(cut,)), "a")
    assert not [series for series in panel.series if series.mark == "corner"]
    assert not [entry for entry in panel.legend if "G*" in entry.label]
    law = series_of(panel, "K = 132, B = 8 KiB, equation 3")
    np.testing.assert_allclose(law.y, DRAIN_NS - law.x)


def test_held_out_points_are_set_apart_and_none_is_lost() -> None:
    result = results.calibration(ONE_FLAVOUR)
    curve = next(curve for curve in result.isolated_curves if curve.producers == 132)
    panel = panel_of(result, "c")
    held_out = series_of(panel, "K = 132, held out")
    fitted = series_of(panel, "K = 132, fitted")
    assert (held_out.mark, fitted.mark) == ("hollow", "points")
    assert held_out.x.size == np.count_nonzero(curve.held_out)
    assert held_out.x.size + fitted.x.size == curve.volume_bytes.size


def test_equation_7_bends_at_the_knee_where_the_capacity_is_used_up() -> None:
    panel = panel_of(results.calibration(ONE_FLAVOUR), "c")
    knee = series_of(panel, "K = 132, knee")
    capacity = results.capacity_bytes(132, "st.v4")
    # Q = V_knee - R*T0(V_knee)
    assert knee.x[0] - results.DRAIN_BYTES_PER_S * knee.y[0] / 1e9 == pytest.approx(capacity)
    law = series_of(panel, "K = 132, equation 7")
    beyond = law.x > knee.x[0]
    np.testing.assert_allclose(law.y[beyond], (law.x[beyond] - capacity) / results.DRAIN_BYTES_PER_S * 1e9)


def test_producers_whose_knee_was_not_reached_have_a_bound_and_no_knee() -> None:
    panel = panel_of(results.calibration(ONE_FLAVOUR), "c")
    assert not [series for series in panel.series if series.name == "K = 8, knee"]
    assert [entry for entry in panel.legend if entry.label.startswith("K = 8, Q >= ")]


def test_isolated_bursts_without_a_fitted_capacity_are_drawn_as_predicted() -> None:
    result = results.calibration(ONE_FLAVOUR)
    bare = replace(result, platform=result.platform.model_copy(update={"capacity": ()}))
    law = series_of(panel_of(bare, "c"), "K = 132, equation 7")
    curve = next(curve for curve in result.isolated_curves if curve.producers == 132)
    np.testing.assert_array_equal(law.y, curve.predicted_issue_ns)


def test_every_zero_gap_point_is_drawn_and_those_not_fitted_are_hollow() -> None:
    result = results.calibration()
    dominated = [np.arange(points.volume_bytes.size) % 2 == 0 for points in result.drain_points]
    mixed = tuple(
        replace(points, drain_dominated=part)
        for points, part in zip(result.drain_points, dominated, strict=True)
    )
    panel = panel_of(replace(result, drain_points=mixed), "d")
    drawn = {mark: sum(s.x.size for s in panel.series if s.mark == mark) for mark in ("points", "hollow")}
    assert drawn["points"] == sum(int(part.sum()) for part in dominated)
    assert drawn["points"] + drawn["hollow"] == sum(points.volume_bytes.size for points in mixed)


def test_the_drain_line_has_slope_one_over_the_rate() -> None:
    line = series_of(panel_of(results.calibration(), "d"), "V/R")
    np.testing.assert_allclose(line.x / line.y * 1e9, results.DRAIN_BYTES_PER_S)


def test_a_local_control_that_was_not_run_is_neither_drawn_nor_explained() -> None:
    panel = panel_of(results.calibration(control=False), "a")
    assert "cross" not in {series.mark for series in panel.series}
    assert "local control" not in {entry.label for entry in panel.legend}


def test_points_that_a_log_axis_cannot_show_are_left_out_and_counted() -> None:
    result = results.calibration(ONE_FLAVOUR)
    curve = result.gap_curves[0]
    issue_ns = curve.issue_ns.copy()
    issue_ns[:3] = [0.0, np.nan, np.inf]
    panel = panel_of(replace(result, gap_curves=(replace(curve, issue_ns=issue_ns),)), "a")
    assert series_of(panel, "K = 132, B = 8 KiB, measured").x.size == issue_ns.size - 3
    assert panel.note.startswith("3 points")


def test_labels_name_the_flavour_only_where_there_are_several() -> None:
    one = {series.name for series in panel_of(results.calibration(ONE_FLAVOUR), "a").series}
    two = {series.name for series in panel_of(results.calibration(), "a").series}
    assert "K = 132, B = 8 KiB, measured" in one
    assert {"st.v4 K = 132, B = 8 KiB, measured", "tma K = 132, B = 8 KiB, measured"} <= two


def test_gap_curves_shown_are_the_most_producers_of_each_flavour_and_one_of_half_as_many() -> None:
    chosen = choose_gap_curves(results.calibration().gap_curves)
    assert [(curve.flavour, curve.producers) for curve in chosen] == [
        ("st.v4", 132),
        ("st.v4", 64),
        ("tma", 132),
    ]
    assert panel_of(results.calibration(), "a").note.startswith("3 of 8 curves shown: largest K")


def test_isolated_curves_shown_include_the_fewest_producers() -> None:
    chosen = choose_isolated_curves(results.calibration(ONE_FLAVOUR).isolated_curves)
    assert [curve.producers for curve in chosen] == [132, 64, 8]


@pytest.mark.parametrize(
    ("measured", "shown"),
    [
        ((132,), [132]),
        ((64, 132), [132, 64]),
        ((132, 131, 66), [132, 66]),  # 66 is both the middle and the fewest
        ((132, 132, 132), [132, 132, 132]),
    ],
)
def test_no_curve_is_chosen_twice(measured: tuple[int, ...], shown: list[int]) -> None:
    chosen = choose_isolated_curves([results.isolated_curve("st.v4", count) for count in measured])
    assert [curve.producers for curve in chosen] == shown
    assert len({id(curve) for curve in chosen}) == len(shown)


def test_producers_fall_into_contiguous_bands_that_cover_them() -> None:
    counts = np.array([8, 132, 16, 8, 64, 32, 100, 120])
    bands = producer_bands(counts, 3)
    assert len(bands) == 3
    assert all(sum(low <= count <= high for low, high in bands) == 1 for count in counts)
    assert producer_bands(np.array([], dtype=np.int64), 3) == []
