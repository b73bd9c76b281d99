"""One pair of axes in SVG: ticks, series and their legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree as Xml

import numpy as np

from xstage_tune.report.figure import Fill, Floats, LegendEntry, Mark, Panel, Series
from xstage_tune.report.scales import Scale, panel_scales
from xstage_tune.report.svg_elements import add, ink, text_width, write

LEGEND_LINE = 19.0
LEGEND_SIZE = 12.0
_PATHS = ("line", "area", "dashed")
_LINE_SAMPLE, _MARKER_SAMPLE = 26.0, 12.0  # widths of legend samples


class Box(NamedTuple):
    """A rectangle in SVG pixels; y grows downwards."""

    left: float
    top: float
    width: float
    height: float

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def right(self) -> float:
        return self.left + self.width


def draw_panel(group: Xml.Element, panel: Panel, box: Box) -> None:
    """Draw the axes and series of ``panel`` in ``box``."""
    x, y = panel_scales(panel)
    draw_x_axis(group, box, x)
    _draw_y_axis(group, box, y, 4 if panel.strip else 7)
    for series in panel.series:
        _draw_series(group, box, series, x, y)


def legend_lines(legend: Sequence[LegendEntry], width: float) -> list[list[tuple[float, LegendEntry]]]:
    """The entries with their offsets, broken into lines that fit ``width``."""
    lines: list[list[tuple[float, LegendEntry]]] = []
    offset = width
    for entry in legend:
        needed = _sample_width(entry) + 7 + text_width(entry.label, LEGEND_SIZE)
        if not lines or offset + needed > width:
            lines.append([])
            offset = 0.0
        lines[-1].append((offset, entry))
        offset += needed + 18
    return lines


def draw_legend(
    group: Xml.Element, legend: Sequence[LegendEntry], left: float, top: float, width: float
) -> None:
    """Draw the entries from ``top`` down, as :func:`legend_lines` breaks them."""
    for number, line in enumerate(legend_lines(legend, width)):
        middle = top + number * LEGEND_LINE + 6
        for offset, entry in line:
            start = left + offset
            sample = _sample_width(entry)
            places = [start, start + sample] if entry.mark in _PATHS else [start + sample / 2]
            _draw_mark(group, np.array([[place, middle] for place in places]), entry.mark, entry.colour)
            write(group, entry.label, start + sample + 7, middle + 4, "text", size=LEGEND_SIZE)


def _sample_width(entry: LegendEntry) -> float:
    return _LINE_SAMPLE if entry.mark in _PATHS else _MARKER_SAMPLE


def draw_x_axis(group: Xml.Element, box: Box, x: Scale) -> None:
    """Draw the lower edge of ``box`` as an axis, with its grid lines."""
    ticks = x.ticks(7)
    for at, tick in zip(along_x(box, x, [tick.value for tick in ticks]), ticks, strict=True):
        add(group, "line", "grid", x1=at, y1=box.top, x2=at, y2=box.bottom)
        add(group, "line", "axis", x1=at, y1=box.bottom, x2=at, y2=box.bottom + 5)
        write(group, tick.label, at, box.bottom + 19, "text", size=12, anchor="middle")
    path = f"M{box.left:.1f} {box.top:.1f}V{box.bottom:.1f}H{box.right:.1f}"
    add(group, "path", "axis", d=path, fill="none")
    write(group, x.title, box.left + box.width / 2, box.bottom + 40, "text", size=13, anchor="middle")


def along_x(box: Box, scale: Scale, values: Sequence[float] | Floats) -> Floats:
    """Where ``values`` are in ``box``, from left to right."""
    return box.left + scale.fraction(np.asarray(values, dtype=np.float64)) * box.width


def _draw_y_axis(group: Xml.Element, box: Box, y: Scale, most_ticks: int) -> None:
    ticks = y.ticks(most_ticks)
    for at, tick in zip(_along_y(box, y, [tick.value for tick in ticks]), ticks, strict=True):
        add(group, "line", "grid", x1=box.left, y1=at, x2=box.right, y2=at)
        add(group, "line", "axis", x1=box.left - 5, y1=at, x2=box.left, y2=at)
        write(group, tick.label, box.left - 9, at + 4, "text", size=12, anchor="end")
    label = write(group, y.title, 0, 0, "text", size=13, anchor="middle")
    label.set("transform", f"translate({box.left - 60:.1f} {box.top + box.height / 2:.1f}) rotate(-90)")


def _draw_series(group: Xml.Element, box: Box, series: Series, x: Scale, y: Scale) -> None:
    places = np.column_stack([along_x(box, x, series.x), _along_y(box, y, series.y)])
    holder = add(group, "g", None)
    Xml.SubElement(holder, "title").text = series.name
    if series.mark == "corner":
        for left, top in places:
            add(holder, "line", ink(series.colour), x1=left, y1=top, x2=left, y2=box.bottom,
                stroke_width=1, stroke_dasharray="1.5 3")  # fmt: skip
    if series.mark == "area":
        floor = np.array([[places[-1, 0], box.bottom], [places[0, 0], box.bottom]])
        outline = _points(np.concatenate([places, floor]))
        add(holder, "polygon", f"{ink(series.colour)} area", points=outline)
    _draw_mark(holder, places, series.mark, series.colour)


def _draw_mark(group: Xml.Element, places: Floats, mark: Mark | Fill, colour: int | None) -> None:
    """Draw a path through ``places`` ``[n, 2]``, or a marker at each."""
    if mark in ("solid", "pale"):
        for left, top in places:
            add(group, "rect", bar_class(mark, colour), x=left - 6, y=top - 5, width=12, height=10, rx=1.5)
        return
    if mark in _PATHS:
        line = add(
            group, "polyline", ink(colour), points=_points(places), fill="none", stroke_linejoin="round"
        )
        line.set("stroke-width", "1.2" if mark == "area" else "1.7")
        if mark == "dashed":
            line.set("stroke-dasharray", "6 4")
            line.set("stroke-opacity", "0.75")
        return
    css_class = f"{ink(colour)} {'filled' if mark == 'points' else 'hollow'}"
    for left, top in places:
        add(group, "path", css_class, d=f"M{left:.1f} {top:.1f}{_shape(mark, colour or 0)}")


def _points(places: Floats) -> str:
    return " ".join(f"{left:.1f},{top:.1f}" for left, top in places)


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


def bar_class(fill: Mark | Fill, colour: int | None) -> str:
    """The classes of an interval's bar."""
    return f"{ink(colour)} bar {fill}"


def _shape(mark: Mark | Fill, slot: int) -> str:
    if mark == "cross":
        return _CROSS
    return _DIAMOND if mark == "corner" else _SHAPES[slot]


def _along_y(box: Box, scale: Scale, values: Sequence[float] | Floats) -> Floats:
    return box.top + (1 - scale.fraction(np.asarray(values, dtype=np.float64))) * box.height
