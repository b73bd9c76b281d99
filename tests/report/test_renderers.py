"""SVG, HTML and terminal plots of one description, over ordinary and awkward results."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from tests.report import results
from tests.report.pages import Page, plain
from xstage_tune.calibration.result import CalibrationResult, DrainPoints, Finding, GapCurve, IsolatedCurve
from xstage_tune.report.calibration_figure import calibration_figure
from xstage_tune.report.calibration_page import render_html
from xstage_tune.report.calibration_tables import platform_tables
from xstage_tune.report.figure import Figure
from xstage_tune.report.svg import render_svg
from xstage_tune.report.terminal_plot import TerminalPlot

_SVG = "{http://www.w3.org/2000/svg}"
_EMPTY = np.empty(0)


def one_point() -> CalibrationResult:
    """A run that measured one point of everything, with no control."""
    one = np.array([1.0])
    return replace(
        results.calibration(("st.v4",)),
        gap_curves=(GapCurve("st.v4", 1, 1, one, one, one, one, one, _EMPTY, _EMPTY),),
        isolated_curves=(IsolatedCurve("st.v4", 1, one, one, one, np.array([False])),),
        drain_points=(
            DrainPoints("st.v4", np.array([1]), np.array([1]), one, one, one * 1e9, np.array([True])),
        ),
    )


def nothing() -> CalibrationResult:
    """A run that was stopped before its first point."""
    return replace(results.calibration(), gap_curves=(), isolated_curves=(), drain_points=())


def all_zero() -> CalibrationResult:
    """Curves that are there but hold only zeros."""
    result = results.calibration(("st.v4",))
    zero = np.zeros(3)
    curve = GapCurve("st.v4", 132, 8192, zero, zero, zero, zero, zero, zero, zero)
    return replace(result, gap_curves=(curve,), isolated_curves=(), drain_points=())


def huge_range() -> CalibrationResult:
    """Gaps from a nanosecond to a minute, volumes from a byte to a tebibyte."""
    gap = np.geomspace(1.0, 6e10, 9)
    volume = np.geomspace(1.0, 2.0**40, 9)
    curve = GapCurve("st.v4", 132, 2**33, gap, gap[::-1], gap, gap[::-1], gap, _EMPTY, _EMPTY)
    isolated = IsolatedCurve("st.v4", 132, volume, volume, volume, np.zeros(9, dtype=bool))
    return replace(results.calibration(("st.v4",)), gap_curves=(curve,), isolated_curves=(isolated,))


CASES = {
    "two flavours": results.calibration,
    "one flavour": lambda: results.calibration(("tma",)),
    "no local control": lambda: results.calibration(control=False),
    "one point": one_point,
    "nothing": nothing,
    "zeros": all_zero,
    "huge range": huge_range,
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def figure(request: pytest.FixtureRequest) -> Figure:
    return calibration_figure(request.param())


def printed(figure: Figure, width: int, *, encoding: str = "utf-8", colour: bool = False) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    console = Console(
        file=stream, width=width, force_terminal=colour, color_system="truecolor" if colour else None
    )
    console.print(TerminalPlot(figure))
    stream.flush()
    return raw.getvalue().decode(encoding)


def test_svg_is_well_formed_finite_and_has_every_series(figure: Figure) -> None:
    text = render_svg(figure)
    root = ElementTree.fromstring(text)
    titles = [title.text for title in root.iter(f"{_SVG}title")]
    for panel in figure.panels:
        for series in panel.series:
            assert titles.count(series.name) >= 1
    assert not re.search(r"\b(nan|inf)\b", text, re.IGNORECASE)


def test_svg_draws_every_measured_point_inside_the_picture(figure: Figure) -> None:
    root = ElementTree.fromstring(render_svg(figure))
    _, _, width, height = (float(part) for part in root.attrib["viewBox"].split())
    groups = [group for group in root.iter(f"{_SVG}g") if group.find(f"{_SVG}title") is not None]
    expected = [series for panel in figure.panels for series in panel.series]
    assert len(groups) == len(expected)
    for group, series in zip(groups, expected, strict=True):
        markers = [re.match(r"M(\S+) (\S+?)m", path.attrib["d"]) for path in group.iter(f"{_SVG}path")]
        assert len(markers) == (0 if series.mark in ("line", "dashed") else series.x.size)
        for marker in markers:
            assert marker
            assert 0 <= float(marker[1]) <= width
            assert 0 <= float(marker[2]) <= height


def test_svg_fetches_nothing_and_is_the_same_each_time(figure: Figure) -> None:
    text = render_svg(figure)
    assert text == render_svg(figure)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in text


def test_svg_legend_entries_neither_overlap_nor_leave_their_panel() -> None:
    root = ElementTree.fromstring(render_svg(calibration_figure(results.calibration())))
    width = float(root.attrib["viewBox"].split()[2])
    lines: dict[str, list[tuple[float, float]]] = {}
    for text in root.iter(f"{_SVG}text"):
        if "text-anchor" not in text.attrib and text.attrib["font-size"] == "12":
            start = float(text.attrib["x"])
            content = "".join(text.itertext())
            lines.setdefault(text.attrib["y"], []).append((start, start + 0.5 * 12 * len(content)))
    assert lines
    for spans in lines.values():
        spans.sort()
        assert spans[-1][1] <= width
        assert all(end < start for (_, end), (start, _) in pairwise(spans))


def test_svg_escapes_what_a_profile_calls_itself() -> None:
    result = results.calibration()
    gpu = result.platform.gpu.model_copy(update={"name": "<script>&GPU"})
    named = replace(result, platform=result.platform.model_copy(update={"gpu": gpu}))
    text = render_svg(calibration_figure(named))
    assert "<script>" not in text
    assert any("<script>&GPU" in "".join(node.itertext()) for node in ElementTree.fromstring(text))


@pytest.mark.parametrize("width", [60, 80, 123, 124, 140, 240])
def test_terminal_plot_fits_the_console_and_draws_all_panels(figure: Figure, width: int) -> None:
    lines = printed(figure, width).splitlines()
    assert max(len(line) for line in lines) <= width
    for panel in figure.panels:
        assert any(f"({panel.key}) {panel.title}" in line for line in lines)


def test_terminal_plot_puts_panels_side_by_side_where_there_is_room() -> None:
    figure = calibration_figure(results.calibration())
    both = "(a) Issue time against gap", "(b) Period against gap"

    def side_by_side(width: int) -> bool:
        return any(all(title in line for title in both) for line in printed(figure, width).splitlines())

    assert side_by_side(140)
    assert not side_by_side(80)


def test_terminal_plot_keeps_the_whole_legend_and_notes() -> None:
    figure = calibration_figure(results.calibration())
    text = " ".join(printed(figure, 80).split())
    for panel in figure.panels:
        assert panel.note in text
        assert all(entry.label in text for entry in panel.legend)


def test_terminal_plot_tells_curves_apart_without_colour() -> None:
    text = printed(calibration_figure(results.calibration()), 140)
    assert "\x1b" not in text
    assert all(glyph in text for glyph in "●■▲▼○x◆")


def test_terminal_plot_colours_a_terminal() -> None:
    assert "\x1b[" in printed(calibration_figure(results.calibration()), 140, colour=True)


def test_terminal_plot_prints_on_a_console_without_unicode(figure: Figure) -> None:
    assert printed(figure, 80, encoding="ascii").isascii()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_html_is_balanced_and_fetches_nothing(case) -> None:  # type: ignore[no-untyped-def]
    assert Page(render_html(case())).fetched == []


def test_html_has_every_cell_note_and_finding() -> None:
    result = results.calibration(findings=results.FINDINGS)
    text = Page(render_html(result)).text
    for table in platform_tables(result.platform):
        assert all(plain(cell) in text for row in table.rows for cell in row)
        assert all(plain(note) in text for note in table.notes)
    for finding in result.findings:
        assert plain(finding.message) in text
        assert finding.hint in text


def test_html_escapes_a_finding() -> None:
    finding = Finding("odd", "warn", "<img src=x onerror=alert(1)>", "a & b")
    page = render_html(results.calibration(findings=(finding,)))
    assert "<img" not in page
    assert "a &amp; b" in page
