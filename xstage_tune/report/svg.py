"""Figures as self-contained SVG: no scripts, fonts or links, legible on light and dark pages.

The picture brings its own background and follows the reader's colour scheme where the viewer
supports that; elsewhere it is dark ink on white. Every series is one ``<g>`` with its name as
``<title>``, which viewers show on hover.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree as Xml

import numpy as np

from xstage_tune.report.figure import Figure, Floats, LegendEntry, Mark, Panel, Series
from xstage_tune.report.scales import Scale, panel_scales

_WIDTH = 1120.0
_COLUMNS = 2
_OUTER = 28.0  # around everything
_GUTTER = 32.0  # between panels
_HEADER = 62.0  # figure title and subtitle
_PLOT_HEIGHT = 268.0
_LEFT, _BELOW = 74.0, 50.0  # room for tick labels and axis titles
_LEGEND_LINE = 19.0
_TITLE_LINE = 30.0
_NOTE_LINE = 18.0
_LINE_SAMPLE, _MARKER_SAMPLE = 26.0, 12.0  # widths of legend samples
_ADVANCE = 0.5  # mean width of a character of sans-serif text, in em
_LEGEND_SIZE = 12.0

#: Ink of each colour slot on a light and on a dark page: the Okabe-Ito hues, told apart by all readers.
_INKS = (
    ("#0067a5", "#5eb5f0"),
    ("#d1500a", "#ff9254"),
    ("#00865f", "#3fcf9f"),
    ("#b0528f", "#e79ccb"),
    ("#9a6b00", "#f0bb4a"),
    ("#3d3d8f", "#a5a5f5"),
)
_NEUTRAL = ("#444b55", "#c3cad4")
_THEME = {  # class: property, (light, dark)
    "page": ("fill", ("#ffffff", "#14181d")),
    "strong": ("fill", ("#14181d", "#f1f4f7")),
    "text": ("fill", ("#3a414a", "#cbd2da")),
    "faint": ("fill", ("#6b7480", "#939daa")),
    "grid": ("stroke", ("#e8ebef", "#262c34")),
    "axis": ("stroke", ("#8b949f", "#6b7480")),
}


class _Box(NamedTuple):
    """A rectangle in SVG pixels; y grows downwards."""

    left: float
    top: float
    width: float
    height: float


def render_svg(figure: Figure) -> str:
    """``figure`` as the text of one SVG document, panels two to a row."""
    width = (_WIDTH - 2 * _OUTER - _GUTTER) / _COLUMNS
    root = Xml.Element("svg", {
        "xmlns": "http://www.w3.org/2000/svg", "role": "img",
        "font-family": "Inter, 'Helvetica Neue', Helvetica, Arial, sans-serif",
    })  # fmt: skip
    Xml.SubElement(root, "title").text = figure.title
    Xml.SubElement(root, "style").text = _stylesheet()
    page = _add(root, "rect", "page", x=0, y=0, width=_WIDTH, rx=6)
    _text(root, figure.title, _OUTER, _OUTER + 18, "strong", size=20, weight=600)
    _text(root, figure.subtitle, _OUTER, _OUTER + 41, "text", size=13.5)
    top = _OUTER + _HEADER
    for start in range(0, len(figure.panels), _COLUMNS):
        row = figure.panels[start : start + _COLUMNS]
        # The tallest legend of a row decides where its axes begin, so that they line up.
        plot_top = (
            top + _TITLE_LINE + 8 + _LEGEND_LINE * max(len(_legend_lines(panel, width)) for panel in row)
        )
        for column, panel in enumerate(row):
            _draw_panel(root, panel, _OUTER + column * (width + _GUTTER), top, width, plot_top)
        note_line = _NOTE_LINE if any(panel.note for panel in row) else 0.0
        top = plot_top + _PLOT_HEIGHT + _BELOW + note_line + _GUTTER
    height = f"{top - _GUTTER + _OUTER:g}"
    page.set("height", height)
    root.attrib |= {"viewBox": f"0 0 {_WIDTH:g} {height}", "width": f"{_WIDTH:g}", "height": height}
    return Xml.tostring(root, encoding="unicode") + "\n"


def _draw_panel(
    root: Xml.Element, panel: Panel, left: float, top: float, width: float, plot_top: float
) -> None:
    group = _add(root, "g", None)
    Xml.SubElement(group, "desc").text = panel.title
    heading = _text(group, f"({panel.key})", left, top + 14, "strong", size=15, weight=600)
    _add(heading, "tspan", None, dx=7).text = panel.title
    _draw_legend(group, panel, left, top + _TITLE_LINE, width)
    box = _Box(left + _LEFT, plot_top, width - _LEFT - 6, _PLOT_HEIGHT)
    x, y = panel_scales(panel)
    _draw_axes(group, box, x, y)
    for series in panel.series:
        _draw_series(group, box, series, x, y)
    if panel.note:
        note_top = plot_top + _PLOT_HEIGHT + _BELOW + 10
        _text(group, panel.note, left + width - 6, note_top, "faint", size=11, anchor="end")


def _legend_lines(panel: Panel, width: float) -> list[list[tuple[float, LegendEntry]]]:
    """The legend's entries with their offsets, broken into lines that fit ``width``."""
    lines: list[list[tuple[float, LegendEntry]]] = []
    offset = width
    for entry in panel.legend:
        needed = _sample_width(entry) + 7 + _text_width(entry.label, _LEGEND_SIZE)
        if not lines or offset + needed > width:
            lines.append([])
            offset = 0.0
        lines[-1].append((offset, entry))
        offset += needed + 18
    return lines


def _draw_legend(group: Xml.Element, panel: Panel, left: float, top: float, width: float) -> None:
    for number, line in enumerate(_legend_lines(panel, width)):
        middle = top + number * _LEGEND_LINE + 6
        for offset, entry in line:
            start = left + offset
            sample = _sample_width(entry)
            places = [start, start + sample] if entry.mark in ("line", "dashed") else [start + sample / 2]
            _draw_mark(group, np.array([[place, middle] for place in places]), entry.mark, entry.colour)
            _text(group, entry.label, start + sample + 7, middle + 4, "text", size=_LEGEND_SIZE)


def _sample_width(entry: LegendEntry) -> float:
    return _LINE_SAMPLE if entry.mark in ("line", "dashed") else _MARKER_SAMPLE


def _draw_axes(group: Xml.Element, box: _Box, x: Scale, y: Scale) -> None:
    bottom, right = box.top + box.height, box.left + box.width
    x_ticks, y_ticks = x.ticks(7), y.ticks(7)
    for at, tick in zip(_along_x(box, x, [tick.value for tick in x_ticks]), x_ticks, strict=True):
        _add(group, "line", "grid", x1=at, y1=box.top, x2=at, y2=bottom)
        _add(group, "line", "axis", x1=at, y1=bottom, x2=at, y2=bottom + 5)
        _text(group, tick.label, at, bottom + 19, "text", size=12, anchor="middle")
    for at, tick in zip(_along_y(box, y, [tick.value for tick in y_ticks]), y_ticks, strict=True):
        _add(group, "line", "grid", x1=box.left, y1=at, x2=right, y2=at)
        _add(group, "line", "axis", x1=box.left - 5, y1=at, x2=box.left, y2=at)
        _text(group, tick.label, box.left - 9, at + 4, "text", size=12, anchor="end")
    _add(group, "path", "axis", d=f"M{box.left:.1f} {box.top:.1f}V{bottom:.1f}H{right:.1f}", fill="none")
    _text(group, x.title, box.left + box.width / 2, bottom + 40, "text", size=13, anchor="middle")
    label = _text(group, y.title, 0, 0, "text", size=13, anchor="middle")
    label.set("transform", f"translate({box.left - 60:.1f} {box.top + box.height / 2:.1f}) rotate(-90)")


def _draw_series(group: Xml.Element, box: _Box, series: Series, x: Scale, y: Scale) -> None:
    places = np.column_stack([_along_x(box, x, series.x), _along_y(box, y, series.y)])
    holder = _add(group, "g", None)
    Xml.SubElement(holder, "title").text = series.name
    if series.mark == "corner":
        for left, top in places:
            _add(holder, "line", _ink(series.colour), x1=left, y1=top, x2=left, y2=box.top + box.height,
                 stroke_width=1, stroke_dasharray="1.5 3")  # fmt: skip
    _draw_mark(holder, places, series.mark, series.colour)


def _draw_mark(group: Xml.Element, places: Floats, mark: Mark, colour: int | None) -> None:
    """Draw a path through ``places`` ``[n, 2]``, or a marker at each."""
    if mark in ("line", "dashed"):
        points = " ".join(f"{left:.1f},{top:.1f}" for left, top in places)
        line = _add(group, "polyline", _ink(colour), points=points, fill="none", stroke_linejoin="round")
        line.set("stroke-width", "1.7")
        if mark == "dashed":
            line.set("stroke-dasharray", "6 4")
            line.set("stroke-opacity", "0.75")
        return
    css_class = f"{_ink(colour)} {'filled' if mark == 'points' else 'hollow'}"
    for left, top in places:
        _add(group, "path", css_class, d=f"M{left:.1f} {top:.1f}{_shape(mark, colour or 0)}")


#: Outlines about their centre by colour slot: circle, square, triangles, pentagon, bar. Later slots are
#: drawn over earlier ones and are smaller, so that points which coincide all stay visible.
_SHAPES = (
    "m-4.6 0a4.6 4.6 0 1 0 9.2 0a4.6 4.6 0 1 0 -9.2 0z",
    "m-3.5 -3.5h7v7h-7z",
    "m0 -4.4l4 7h-8z",
    "m0 4l3.6 -6.4h-7.2z",
    "m0 -3.4l3.2 2.4l-1.2 3.8h-4l-1.2 -3.8z",
    "m-3.4 -1.4h6.8v2.8h-6.8z",
)
_CROSS = "m-3.2 -3.2l6.4 6.4m0 -6.4l-6.4 6.4"
_DIAMOND = "m0 -6.5l5.2 6.5l-5.2 6.5l-5.2 -6.5z"


def _shape(mark: Mark, slot: int) -> str:
    if mark == "cross":
        return _CROSS
    return _DIAMOND if mark == "corner" else _SHAPES[slot]


def _along_x(box: _Box, scale: Scale, values: Sequence[float] | Floats) -> Floats:
    return box.left + scale.fraction(np.asarray(values, dtype=np.float64)) * box.width


def _along_y(box: _Box, scale: Scale, values: Sequence[float] | Floats) -> Floats:
    return box.top + (1 - scale.fraction(np.asarray(values, dtype=np.float64))) * box.height


def _ink(colour: int | None) -> str:
    return "n" if colour is None else f"c{colour}"


def _add(parent: Xml.Element, tag: str, css_class: str | None, **attributes: float | str) -> Xml.Element:
    """Append ``<tag>``; underscores of attribute names become hyphens, numbers get one decimal."""
    element = Xml.SubElement(parent, tag, {"class": css_class} if css_class else {})
    for name, value in attributes.items():
        text = value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
        element.set(name.replace("_", "-"), text)
    if tag != "tspan":  # white space inside a text would be drawn
        element.tail = "\n"
    return element


#: How plain text is printed: the paper's symbols with subscripts, and signs outside ASCII.
_SUBSCRIPTS = {"T_iss": "iss", "T_period": "period", "T0": "0"}
_SIGNS = {
    "us": "\N{MICRO SIGN}s",
    ">=": "\N{GREATER-THAN OR EQUAL TO}",
    "*B": "\N{MIDDLE DOT}B",
    " - ": " \N{MINUS SIGN} ",
}
_TYPESET = re.compile(r"T_iss|T_period|T0|(?<=[\d( ])us\b|>=|\*B\b| - ")


def _text(
    parent: Xml.Element, text: str, x: float, y: float, css_class: str, *,
    size: float, weight: int | None = None, anchor: str | None = None,
) -> Xml.Element:  # fmt: skip
    """Append ``text``, typeset, with its baseline at ``y``."""
    element = _add(parent, "text", css_class, x=x, y=y, font_size=size)
    if weight:
        element.set("font-weight", str(weight))
    if anchor:
        element.set("text-anchor", anchor)
    drop = size * 0.24
    baseline = 0.0  # of the text so far, below y
    for piece, lowered in _typeset(text):
        span = _add(element, "tspan", None, dy=(drop if lowered else 0.0) - baseline)
        baseline = drop if lowered else 0.0
        span.text = piece
        if lowered:
            span.set("font-size", f"{size * 0.75:.1f}")
    return element


def _typeset(text: str) -> list[tuple[str, bool]]:
    """``text`` in pieces, each with whether it is a subscript."""
    pieces = [("", False)]

    def append(piece: str, lowered: bool) -> None:
        if pieces[-1][1] == lowered:
            pieces[-1] = (pieces[-1][0] + piece, lowered)
        else:
            pieces.append((piece, lowered))

    at = 0
    for match in _TYPESET.finditer(text):
        append(text[at : match.start()], False)
        symbol, at = match.group(), match.end()
        if symbol in _SUBSCRIPTS:
            append("T", False)
            append(_SUBSCRIPTS[symbol], True)
        else:
            append(_SIGNS[symbol], False)
    append(text[at:], False)
    return [(piece, lowered) for piece, lowered in pieces if piece]


def _text_width(text: str, size: float) -> float:
    return len(text) * size * _ADVANCE


def _stylesheet() -> str:
    """Colours as classes: light ones, and the dark ones where the reader prefers those."""
    return (
        _colour_rules(dark=False)
        + ".hollow{stroke-width:1.5}.filled{stroke-width:0.6}.grid,.axis{stroke-width:1}"
        + f"@media (prefers-color-scheme: dark){{{_colour_rules(dark=True)}}}"
    )


def _colour_rules(*, dark: bool) -> str:
    rules = [f".{name}{{{prop}:{pair[dark]}}}" for name, (prop, pair) in _THEME.items()]
    for name, pair in [("n", _NEUTRAL), *((f"c{slot}", inks) for slot, inks in enumerate(_INKS))]:
        rules.append(f".{name}{{stroke:{pair[dark]}}}.{name}.filled{{fill:{pair[dark]}}}")
    page = _THEME["page"][1][dark]
    return "".join(rules) + f".hollow{{fill:{page}}}.filled{{stroke:{page}}}"
