"""Timelines and distributions of simulated launches, and tracks in SVG."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from tests.report.conftest import Kept
from xstage_tune.experiments.study import Case, Simulations
from xstage_tune.report.figure import Axis, Bars, Panel, Plate, Track, TrackPanel
from xstage_tune.report.study_figures import distribution_plate, quantile_curve
from xstage_tune.report.svg import render_svg
from xstage_tune.report.timeline import activity_plate, fullest_window, timeline_plate
from xstage_tune.search.study_case import load_study
from xstage_tune.simulator.traces import occupancy
from xstage_tune.store.facade import Store

_SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def pair(kept: Kept) -> tuple[Case, Case]:
    """A wave and another schedule of the MoE study."""
    with Store.open(kept.file) as store:
        study = load_study(store, kept.moe)
    contrast = study.contrast()
    assert contrast is not None
    simulations = Simulations(study.workload, study.platform)
    wave, other = contrast
    return simulations.case(wave), simulations.case(other)


def tracks_of(plate: Plate) -> list[TrackPanel]:
    return [panel for panel in plate.panels if isinstance(panel, TrackPanel)]


def test_both_windows_have_one_length_and_the_same_sms(pair: tuple[Case, Case]) -> None:
    left, right = tracks_of(timeline_plate(pair))
    assert left.x.limits == right.x.limits
    assert left.tracks == right.tracks
    assert [track.label for track in left.tracks] == ["math", "issue"] * 3


def test_bars_lie_in_the_window_and_a_role_does_one_thing_at_a_time(pair: tuple[Case, Case]) -> None:
    for panel in tracks_of(timeline_plate(pair)):
        assert panel.x.limits is not None
        begin = np.concatenate([bars.begin for bars in panel.bars])
        end = np.concatenate([bars.end for bars in panel.bars])
        track = np.concatenate([bars.track for bars in panel.bars])
        assert (begin >= 0).all()
        assert (end > begin).all()
        assert (end <= panel.x.limits[1]).all()
        for number in range(len(panel.tracks)):
            order = np.argsort(begin[track == number])
            # Times are whole ticks of 1/16 ns.
            gaps = begin[track == number][order][1:] - end[track == number][order][:-1]
            assert (gaps >= -0.125).all()


def test_window_is_where_the_queue_holds_most(pair: tuple[Case, Case]) -> None:
    for case in pair:
        length_ns = case.run.end_ns / 7
        window = fullest_window(case, length_ns)
        series = occupancy(case.run)

        def held(begin_ns: float, series=series, length_ns=length_ns) -> float:  # type: ignore[no-untyped-def]
            grid = np.linspace(begin_ns, begin_ns + length_ns, 4001)
            return float(np.interp(grid, series.time_ns, series.value).mean())

        rivals = np.linspace(0.0, case.run.end_ns - length_ns, 60)
        # The window begins at a breakpoint, so a rival between two of them may hold a little more.
        assert held(window.begin_ns) >= 0.99 * max(held(begin) for begin in rivals)
        assert window.end_ns <= case.run.end_ns + 1e-6


def test_a_window_longer_than_the_launch_begins_with_it(pair: tuple[Case, Case]) -> None:
    assert fullest_window(pair[0], 2 * pair[0].run.end_ns).begin_ns == 0.0


def test_whole_launches_share_their_axes(pair: tuple[Case, Case]) -> None:
    plate = activity_plate(pair)
    panels = [panel for panel in plate.panels if isinstance(panel, Panel)]
    assert len({panel.x for panel in panels}) == 1
    assert panels[0].y == panels[1].y
    assert panels[2].y == panels[3].y
    for panel, case in zip(panels, pair, strict=False):
        assert panel.series[0].x[-1] <= case.run.end_ns


def test_activity_and_waits_account_for_every_mainloop(pair: tuple[Case, Case]) -> None:
    for case in pair:
        busy_ns = case.tensor_active() * case.run.end_ns * case.run.streams.sms
        assert busy_ns == pytest.approx(case.run.streams.mainloop_ns.sum())
        assert 0.0 <= case.queue_full() <= 1.0


def test_distributions_rise_from_nothing_to_all_and_stalls_fall_to_nothing(pair: tuple[Case, Case]) -> None:
    spans, stalls = distribution_plate(pair).panels
    assert isinstance(spans, Panel)
    assert isinstance(stalls, Panel)
    for series in spans.series:
        assert (np.diff(series.x) >= 0).all()
        assert (np.diff(series.y) >= 0).all()
        assert (series.y[0], series.y[-1]) == (0.0, 1.0)
    for series in stalls.series:
        assert (np.diff(series.y) <= 0).all()
        assert series.y[-1] == 0.0
    wave = pair[0].run.stall_ns
    assert stalls.series[0].y[0] == pytest.approx((wave > 0).mean())


def test_quantile_curve_is_exact_at_its_ends_and_middle() -> None:
    share, value = quantile_curve(np.arange(101.0))
    assert (value[0], value[-1]) == (0.0, 100.0)
    np.testing.assert_allclose(value, 100.0 * share)


def test_without_stores_nothing_is_remote(kept: Kept) -> None:
    with Store.open(kept.file) as store:
        study = load_study(store, kept.attention)
    from xstage_tune.simulator.fused_kernels import SimulatedKernels

    launch = SimulatedKernels(study.platform).launch(study.workload, study.result.default.config)
    alone = launch.without_remote_stores().run(0)
    assert alone.accepted_bytes == 0.0
    assert alone.makespan_ns < launch.run(0).makespan_ns


def test_lanes_are_drawn_inside_the_picture_with_names_and_lengths() -> None:
    bars = Bars("wait", "solid", 1, np.array([0, 2]), np.array([0.0, 500.0]), np.array([1.0, 1000.0]))
    pale = Bars("work", "pale", None, np.array([1]), np.array([10.0]), np.array([10.0]))
    panel = TrackPanel(
        "a",
        "<tracks> & more",
        Axis("time", "duration_ns", "linear", (0.0, 1000.0)),
        (Track("math", "SM 1"), Track("issue", "SM 1"), Track("math", "SM 12")),
        (pale, bars),
    )
    root = ElementTree.fromstring(render_svg(Plate("title", "subtitle", (panel,))))
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    rects = [rect for rect in root.iter(f"{_SVG}rect") if rect.find(f"{_SVG}title") is not None]
    assert [rect.findtext(f"{_SVG}title") for rect in rects] == [
        "work, 0 ns", "wait, 1.000 ns", "wait, 500.0 ns"
    ]  # fmt: skip
    for rect in rects:
        left, top, across, down = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert 0 < left <= left + across <= width
        assert 0 < top <= top + down <= height
        assert across > 0
    texts = ["".join(text.itertext()) for text in root.iter(f"{_SVG}text")]
    assert texts.count("SM 1") == 1
    assert texts.count("math") == 2


def test_an_empty_lane_panel_is_drawn() -> None:
    empty = TrackPanel("a", "none", Axis("time", "duration_ns", "linear"), (), ())
    assert ElementTree.fromstring(render_svg(Plate("title", "", (empty,)))) is not None
