"""Figures as self-contained SVG: no scripts, fonts or links, legible on light and dark pages.

The picture brings its own background and follows the reader's colour scheme where the viewer
supports that; elsewhere it is dark ink on white. Every series is one ``<g>`` with its name as
``<title>``, which viewers show on hover.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.etree import ElementTree as Xml

import numpy as np

from xstage_tune.base.number_format import duration
from xstage_tune.base.text import printable
from xstage_tune.report.figure import (
    Figure,
    Fill,
    Floats,
    LegendEntry,
    Mark,
    Panel,
    Plate,
    Series,
    TrackPanel,
)
from xstage_tune.report.scales import Scale, axis_scale, panel_scales
from xstage_tune.report.typeset import typeset

_WIDTH = 1120.0
_COLUMNS = 2
_OUTER = 28.0  # around everything
_GUTTER = 32.0  # between panels
_HEADER = 62.0  # figure title and subtitle
_TITLE_SIZE, _PLATE_TITLE_SIZE = 20.0, 16.5  # a plate stands under a heading of its page
_PLOT_HEIGHT = 268.0
_STRIP_HEIGHT = 118.0
_LEFT, _BELOW = 74.0, 50.0  # room for tick labels and axis titles
_TITLE_LINE = 30.0
_NOTE_LINE = 18.0

AnyPanel = Panel | TrackPanel


def render_svg(figure: Figure | Plate) -> str:
    """``figure`` as the text of one SVG document, panels two to a row."""
    width = (_WIDTH - 2 * _OUTER - _GUTTER) / _COLUMNS
    root = Xml.Element("svg", {
        "xmlns": "http://www.w3.org/2000/svg", "role": "img",
        "font-family": "Inter, 'Helvetica Neue', Helvetica, Arial, sans-serif",
    })  # fmt: skip
    Xml.SubElement(root, "title").text = figure.title
    Xml.SubElement(root, "style").text = stylesheet()
    page = add(root, "rect", "page", x=0, y=0, width=_WIDTH, rx=6)
    title_size = _PLATE_TITLE_SIZE if isinstance(figure, Plate) else _TITLE_SIZE
    write(root, figure.title, _OUTER, _OUTER + 18, "strong", size=title_size, weight=600)
    write(root, figure.subtitle, _OUTER, _OUTER + 41, "text", size=13.5)
    margins = _left_margins(figure.panels)
    top = _OUTER + _HEADER
    for start in range(0, len(figure.panels), _COLUMNS):
        row = figure.panels[start : start + _COLUMNS]
        # The tallest legend of a row decides where its axes begin, so that they line up.
        legend_height = LEGEND_LINE * max(len(legend_lines(panel.legend, width)) for panel in row)
        plot_top = top + _TITLE_LINE + 8 + legend_height
        plot_height = max(_plot_height(panel) for panel in row)
        for column, panel in enumerate(row):
            left = _OUTER + column * (width + _GUTTER)
            box = Box(left + margins[column], plot_top, width - margins[column] - 6, plot_height)
            _draw_panel(root, panel, left, top, width, box)
        note_line = _NOTE_LINE if any(panel.note for panel in row) else 0.0
        top = plot_top + plot_height + _BELOW + note_line + _GUTTER
    height = f"{top - _GUTTER + _OUTER:g}"
    page.set("height", height)
    root.attrib |= {"viewBox": f"0 0 {_WIDTH:g} {height}", "width": f"{_WIDTH:g}", "height": height}
    for node in root.iter():
        node.text = node.text and printable(node.text)
    return Xml.tostring(root, encoding="unicode") + "\n"


def _draw_panel(root: Xml.Element, panel: AnyPanel, left: float, top: float, width: float, box: Box) -> None:
    """Draw a panel from (``left``, ``top``): its heading, its legend, what it plots in ``box``, its note."""
    group = add(root, "g", None)
    Xml.SubElement(group, "desc").text = panel.title
    heading = write(group, f"({panel.key})", left, top + 14, "strong", size=15, weight=600)
    add(heading, "tspan", None, dx=7).text = panel.title
    draw_legend(group, panel.legend, left, top + _TITLE_LINE, width)
    if isinstance(panel, TrackPanel):
        draw_tracks(group, panel, box)
    else:
        draw_panel(group, panel, box)
    if panel.note:
        note_top = box.bottom + _BELOW + 10
        write(group, panel.note, left + width - 6, note_top, "faint", size=11, anchor="end")


def _left_margins(panels: Sequence[AnyPanel]) -> list[float]:
    """Room left of the plots of each column, the same in all rows so that their axes line up."""
    margins = [_LEFT] * _COLUMNS
    for number, panel in enumerate(panels):
        if isinstance(panel, TrackPanel):
            column = number % _COLUMNS
            margins[column] = max(margins[column], labels_width(panel))
    return margins


def _plot_height(panel: AnyPanel) -> float:
    if isinstance(panel, TrackPanel):
        return tracks_height(panel)
    return _STRIP_HEIGHT if panel.strip else _PLOT_HEIGHT


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


_TRACK = 19.0  # height of a track
_MOST_STRETCH = 1.7  # of the tracks, where the panel is in a row of taller ones
_BAR_MARGIN = 0.13  # of a track, above and below a bar
_GROUP_GAP = 9.0
_LABEL_SIZE = 11.5
_THINNEST = 0.6  # pixels: a bar that is shorter would not be seen


def tracks_height(panel: TrackPanel) -> float:
    """Height of the tracks of ``panel``."""
    return max((top + _TRACK for top in _track_tops(panel, _TRACK)), default=0.0) + _GROUP_GAP


def labels_width(panel: TrackPanel) -> float:
    """Room that the names of the tracks need at the left of them."""
    tracks = max((text_width(track.label, _LABEL_SIZE) for track in panel.tracks), default=0.0)
    groups = max((text_width(track.group, _LABEL_SIZE) for track in panel.tracks), default=0.0)
    return tracks + (groups + 14 if groups else 0.0) + 12


def draw_tracks(group: Xml.Element, panel: TrackPanel, box: Box) -> None:
    """Draw the tracks of ``panel`` from the top of ``box`` down, and the axis at its bottom."""
    scale = axis_scale(panel.x, [edge for bars in panel.bars for edge in (bars.begin, bars.end)])
    draw_x_axis(group, box, scale)
    track_height = _TRACK * min(_MOST_STRETCH, box.height / tracks_height(panel))
    tops = [box.top + top for top in _track_tops(panel, track_height)]
    before = ""
    for track, top in zip(panel.tracks, tops, strict=True):
        middle = top + track_height / 2 + 4
        write(group, track.label, box.left - 9, middle, "text", size=_LABEL_SIZE, anchor="end")
        if track.group != before:
            left = box.left - labels_width(panel)
            write(group, track.group, left, middle, "strong", size=_LABEL_SIZE)
        before = track.group
    for bars in panel.bars:
        holder = add(group, "g", bar_class(bars.fill, bars.colour))
        Xml.SubElement(holder, "title").text = bars.name
        begin, end = along_x(box, scale, bars.begin), along_x(box, scale, bars.end)
        lengths = bars.end - bars.begin
        for number, track_number in enumerate(bars.track.tolist()):
            width = max(_THINNEST, end[number] - begin[number])
            bar = add(
                holder, "rect", None, x=begin[number], y=tops[track_number] + _BAR_MARGIN * track_height,
                width=width, height=(1 - 2 * _BAR_MARGIN) * track_height,
            )  # fmt: skip
            Xml.SubElement(bar, "title").text = f"{bars.name}, {_length(scale, lengths[number])}"


def _track_tops(panel: TrackPanel, track_height: float) -> Iterator[float]:
    """Where each track begins below the top of the panel; groups stand apart."""
    top = _GROUP_GAP / 2
    for number, track in enumerate(panel.tracks):
        if number and track.group != panel.tracks[number - 1].group:
            top += _GROUP_GAP
        yield top
        top += track_height


def _length(scale: Scale, value: float) -> str:
    return duration(value) if scale.axis.quantity == "duration_ns" else f"{value:,.0f}"


_ADVANCE = 0.5  # mean width of a character of sans-serif text, in em

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


def ink(colour: int | None) -> str:
    """The class of a palette slot, or of the neutral ink."""
    return "n" if colour is None else f"c{colour}"


def add(parent: Xml.Element, tag: str, css_class: str | None, **attributes: float | str) -> Xml.Element:
    """Append ``<tag>``; underscores of attribute names become hyphens, numbers get one decimal."""
    element = Xml.SubElement(parent, tag, {"class": css_class} if css_class else {})
    for name, value in attributes.items():
        text = value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
        element.set(name.replace("_", "-"), text)
    if tag != "tspan":  # white space inside a text would be drawn
        element.tail = "\n"
    return element


def write(
    parent: Xml.Element, text: str, x: float, y: float, css_class: str, *,
    size: float, weight: int | None = None, anchor: str | None = None,
) -> Xml.Element:  # fmt: skip
    """Append ``text``, typeset, with its baseline at ``y``."""
    element = add(parent, "text", css_class, x=x, y=y, font_size=size)
    if weight:
        element.set("font-weight", str(weight))
    if anchor:
        element.set("text-anchor", anchor)
    drop = size * 0.24
    baseline = 0.0  # of the text so far, below y
    for piece, lowered in typeset(text):
        span = add(element, "tspan", None, dy=(drop if lowered else 0.0) - baseline)
        baseline = drop if lowered else 0.0
        span.text = piece
        if lowered:
            span.set("font-size", f"{size * 0.75:.1f}")
    return element


def text_width(text: str, size: float) -> float:
    """Width of ``text`` in pixels, roughly."""
    return len(text) * size * _ADVANCE


def stylesheet() -> str:
    """Colours as classes: light ones, and the dark ones where the reader prefers those."""
    return (
        _colour_rules(dark=False)
        + ".hollow{stroke-width:1.5}.filled{stroke-width:0.6}.grid,.axis{stroke-width:1}"
        + ".pale{fill-opacity:0.45}.area{fill-opacity:0.16}"
        + f"@media (prefers-color-scheme: dark){{{_colour_rules(dark=True)}}}"
    )


def _colour_rules(*, dark: bool) -> str:
    rules = [f".{name}{{{prop}:{pair[dark]}}}" for name, (prop, pair) in _THEME.items()]
    for name, pair in [("n", _NEUTRAL), *((f"c{slot}", inks) for slot, inks in enumerate(_INKS))]:
        colour = pair[dark]
        rules.append(f".{name}{{stroke:{colour}}}")
        rules.append(f".{name}.filled{{fill:{colour}}}.{name}.bar,.{name}.area{{fill:{colour};stroke:none}}")
    page = _THEME["page"][1][dark]
    return "".join(rules) + f".hollow{{fill:{page}}}.filled{{stroke:{page}}}"
