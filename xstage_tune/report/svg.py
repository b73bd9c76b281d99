"""Figures as self-contained SVG: no scripts, fonts or links, legible on light and dark pages.

The picture brings its own background and follows the reader's colour scheme where the viewer
supports that; elsewhere it is dark ink on white. Every series is one ``<g>`` with its name as
``<title>``, which viewers show on hover.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as Xml

from xstage_tune.base.text import printable
from xstage_tune.report.figure import Figure, LanePanel, Panel, Plate
from xstage_tune.report.svg_elements import add, stylesheet, write
from xstage_tune.report.svg_lanes import draw_lanes, labels_width, lanes_height
from xstage_tune.report.svg_plot import LEGEND_LINE, Box, draw_legend, draw_panel, legend_lines

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

AnyPanel = Panel | LanePanel


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
    if isinstance(panel, LanePanel):
        draw_lanes(group, panel, box)
    else:
        draw_panel(group, panel, box)
    if panel.note:
        note_top = box.bottom + _BELOW + 10
        write(group, panel.note, left + width - 6, note_top, "faint", size=11, anchor="end")


def _left_margins(panels: Sequence[AnyPanel]) -> list[float]:
    """Room left of the plots of each column, the same in all rows so that their axes line up."""
    margins = [_LEFT] * _COLUMNS
    for number, panel in enumerate(panels):
        if isinstance(panel, LanePanel):
            column = number % _COLUMNS
            margins[column] = max(margins[column], labels_width(panel))
    return margins


def _plot_height(panel: AnyPanel) -> float:
    if isinstance(panel, LanePanel):
        return lanes_height(panel)
    return _STRIP_HEIGHT if panel.strip else _PLOT_HEIGHT
