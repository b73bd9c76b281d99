"""Lanes of intervals in SVG: one row a lane, its name at the left, each interval a bar."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as Xml

from xstage_tune.base.number_format import duration
from xstage_tune.report.figure import LanePanel
from xstage_tune.report.scales import Scale, axis_scale
from xstage_tune.report.svg_elements import add, text_width, write
from xstage_tune.report.svg_plot import Box, along_x, bar_class, draw_x_axis

_LANE = 19.0  # height of a lane
_MOST_STRETCH = 1.7  # of the lanes, where the panel is in a row of taller ones
_BAR_MARGIN = 0.13  # of a lane, above and below a bar
_GROUP_GAP = 9.0
_LABEL_SIZE = 11.5
_THINNEST = 0.6  # pixels: a bar that is shorter would not be seen


def lanes_height(panel: LanePanel) -> float:
    """Height of the lanes of ``panel``."""
    return max((top + _LANE for top in _lane_tops(panel, _LANE)), default=0.0) + _GROUP_GAP


def labels_width(panel: LanePanel) -> float:
    """Room that the names of the lanes need at the left of them."""
    lanes = max((text_width(lane.label, _LABEL_SIZE) for lane in panel.lanes), default=0.0)
    groups = max((text_width(lane.group, _LABEL_SIZE) for lane in panel.lanes), default=0.0)
    return lanes + (groups + 14 if groups else 0.0) + 12


def draw_lanes(group: Xml.Element, panel: LanePanel, box: Box) -> None:
    """Draw the lanes of ``panel`` from the top of ``box`` down, and the axis at its bottom."""
    scale = axis_scale(panel.x, [edge for bars in panel.bars for edge in (bars.begin, bars.end)])
    draw_x_axis(group, box, scale)
    lane_height = _LANE * min(_MOST_STRETCH, box.height / lanes_height(panel))
    tops = [box.top + top for top in _lane_tops(panel, lane_height)]
    before = ""
    for lane, top in zip(panel.lanes, tops, strict=True):
        middle = top + lane_height / 2 + 4
        write(group, lane.label, box.left - 9, middle, "text", size=_LABEL_SIZE, anchor="end")
        if lane.group != before:
            left = box.left - labels_width(panel)
            write(group, lane.group, left, middle, "strong", size=_LABEL_SIZE)
        before = lane.group
    for bars in panel.bars:
        holder = add(group, "g", bar_class(bars.fill, bars.colour))
        Xml.SubElement(holder, "title").text = bars.name
        begin, end = along_x(box, scale, bars.begin), along_x(box, scale, bars.end)
        lengths = bars.end - bars.begin
        for number, lane_number in enumerate(bars.lane.tolist()):
            width = max(_THINNEST, end[number] - begin[number])
            bar = add(
                holder, "rect", None, x=begin[number], y=tops[lane_number] + _BAR_MARGIN * lane_height,
                width=width, height=(1 - 2 * _BAR_MARGIN) * lane_height,
            )  # fmt: skip
            Xml.SubElement(bar, "title").text = f"{bars.name}, {_length(scale, lengths[number])}"


def _lane_tops(panel: LanePanel, lane_height: float) -> Iterator[float]:
    """Where each lane begins below the top of the panel; groups stand apart."""
    top = _GROUP_GAP / 2
    for number, lane in enumerate(panel.lanes):
        if number and lane.group != panel.lanes[number - 1].group:
            top += _GROUP_GAP
        yield top
        top += lane_height


def _length(scale: Scale, value: float) -> str:
    return duration(value) if scale.axis.quantity == "duration_ns" else f"{value:,.0f}"
