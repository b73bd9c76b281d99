"""Figures drawn with characters: lines in braille dots, points as one glyph each, axes with units.

Each palette slot has its own glyph, so the plot reads without colour. On a console that cannot
print Unicode, ASCII stands in for every glyph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from xstage_tune.base.text import printable
from xstage_tune.report.figure import Figure, Fill, Floats, LegendEntry, Mark, Panel, Series
from xstage_tune.report.scales import Scale, panel_scales

_TWO_COLUMNS_FROM = 124  # characters; narrower consoles get one panel a row
_WIDEST_PANEL = 96  # characters; more would only stretch the data
_GUTTER = 4  # between panels
_PLOT_ROWS = 15

#: Colour and glyphs of each palette slot.
_COLOURS = ("bright_blue", "red", "green", "magenta", "yellow", "cyan")
_FILLED = "●■▲▼★♦"
_HOLLOW = "○□△▽☆♢"
_CROSS, _CORNER, _LINE, _DASHED, _BAR = "x", "◆", "──", "╌╌", "██"
_ASCII = str.maketrans({
    **dict(zip(_FILLED, "osavx+", strict=True)),
    **dict(zip(_HOLLOW, "OSAVX%", strict=True)),
    **dict(zip("◆─╌│┤└┬█", "#--|+++#", strict=True)),
    **{chr(0x2800 + dots): "." for dots in range(1, 256)},
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class TerminalPlot:
    """A rich renderable of ``figure``: two panels a row where the console is wide enough, else one."""

    figure: Figure

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = 2 if options.max_width >= _TWO_COLUMNS_FROM else 1
        width = min(_WIDEST_PANEL, (options.max_width - _GUTTER * (columns - 1)) // columns)
        yield Text(printable(self.figure.title), style="bold")
        yield Text(printable(self.figure.subtitle))
        for start in range(0, len(self.figure.panels), columns):
            row = self.figure.panels[start : start + columns]
            legend_rows = max(len(_legend(panel.legend, width)) for panel in row)
            grid = Table.grid(padding=(0, _GUTTER, 0, 0))
            for _ in row:
                grid.add_column(width=width)
            panels = [_panel(panel, width, legend_rows) for panel in row]
            grid.add_row(*(Group(*_printable(lines, ascii_only=options.ascii_only)) for lines in panels))
            yield Text()
            yield grid


def _panel(panel: Panel, width: int, legend_rows: int) -> list[Text]:
    """One panel as lines of at most ``width`` characters; its legend is padded to ``legend_rows`` lines."""
    x, y = panel_scales(panel)
    y_ticks = y.ticks(6)
    labels_width = max(len(tick.label) for tick in y_ticks)
    canvas = Canvas(width - labels_width - 2, _PLOT_ROWS)
    for series in panel.series:
        _draw(canvas, series, x, y)
    legend = _legend(panel.legend, width)
    lines = [Text(f"({panel.key}) {panel.title}", style="bold"), *legend]
    lines += [Text()] * (legend_rows - len(legend))
    lines.append(Text(y.title))
    labels = {canvas.row(_place(y, tick.value)): tick.label for tick in y_ticks}
    for row, drawn in enumerate(canvas.lines()):
        axis = f"{labels.get(row, ''):>{labels_width}} {'┤' if row in labels else '│'}"
        lines.append(Text.assemble((axis, "dim"), drawn))
    lines += _x_axis(x, canvas, labels_width + 1, width)
    lines.append(Text(x.title.center(width - labels_width).rstrip()))
    if panel.note:
        lines.append(Text(panel.note, style="dim"))
    return lines


def _draw(canvas: Canvas, series: Series, x: Scale, y: Scale) -> None:
    across, up = x.fraction(series.x), y.fraction(series.y)
    if series.mark in ("line", "area", "dashed"):
        canvas.path(across, up, _style(series.colour), dashed=series.mark == "dashed")
    else:
        canvas.mark(across, up, _glyph(series.mark, series.colour), _style(series.colour))


def _x_axis(x: Scale, canvas: Canvas, indent: int, width: int) -> list[Text]:
    """The axis line with its ticks, and the tick labels centred below them where there is room."""
    axis = ["└"] + ["─"] * (width - indent - 1)
    labels = [" "] * width
    free_from = 0
    for tick in x.ticks(max(2, (width - indent) // 11)):
        at = 1 + canvas.column(_place(x, tick.value))
        axis[at] = "┬"
        start = min(indent + at - len(tick.label) // 2, width - len(tick.label))
        if start >= free_from:
            labels[start : start + len(tick.label)] = tick.label
            free_from = start + len(tick.label) + 1
    return [Text(" " * indent + "".join(axis), style="dim"), Text("".join(labels), style="dim")]


def _legend(entries: Sequence[LegendEntry], width: int) -> list[Text]:
    """The legend's entries, as many to a line as fit ``width``."""
    lines: list[Text] = []
    for entry in entries:
        text = Text.assemble((_glyph(entry.mark, entry.colour), _style(entry.colour)), f" {entry.label}")
        if lines and cell_len(lines[-1].plain) + 3 + cell_len(text.plain) <= width:
            lines[-1].append("   ").append_text(text)
        else:
            lines.append(text)
    return lines


def _glyph(mark: Mark | Fill, colour: int | None) -> str:
    match mark:
        case "points":
            return _FILLED[colour or 0]
        case "hollow":
            return _HOLLOW[colour or 0]
        case "cross":
            return _CROSS
        case "corner":
            return _CORNER
        case "line" | "area":
            return _LINE
        case "dashed":
            return _DASHED
        case "solid" | "pale":
            return _BAR


def _style(colour: int | None) -> str:
    return "default" if colour is None else _COLOURS[colour]


def _place(scale: Scale, value: float) -> float:
    return float(scale.fraction(np.array([value]))[0])


def _printable(lines: list[Text], *, ascii_only: bool) -> list[Text]:
    """``lines`` without what would steer the terminal, in ASCII when the console cannot print more."""
    for line in lines:
        line.plain = printable(line.plain)
        if ascii_only:
            line.plain = line.plain.translate(_ASCII)
    return lines


_BLANK_CELL = 0x2800
#: Bits of a cell's dots from U+2800, by row and column.
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], dtype=np.uint8)
_DASH = 5  # dots on, then as many off


class Canvas:
    """``rows`` by ``columns`` character cells; coordinates are fractions, (0, 0) at the bottom left."""

    def __init__(self, columns: int, rows: int) -> None:
        self._columns, self._rows = columns, rows
        self._dots = np.zeros((rows, columns), dtype=np.uint8)
        self._styles = np.full((rows, columns), "", dtype=object)
        self._glyphs: dict[tuple[int, int], str] = {}

    def path(self, x: Floats, y: Floats, style: str, *, dashed: bool = False) -> None:
        """Draw a polyline through ``x``, ``y`` (``[n]`` each) one dot thick."""
        across = x * (2 * self._columns - 1)
        down = (1 - y) * (4 * self._rows - 1)
        steps = np.maximum(np.abs(np.diff(across)), np.abs(np.diff(down)))
        travelled = np.concatenate([[0.0], np.cumsum(steps)])
        samples = np.arange(0.0, travelled[-1] + 1.0)
        if dashed:
            samples = samples[samples.astype(np.int64) // _DASH % 2 == 0]
        columns = np.rint(np.interp(samples, travelled, across)).astype(np.int64)
        rows = np.rint(np.interp(samples, travelled, down)).astype(np.int64)
        np.bitwise_or.at(self._dots, (rows // 4, columns // 2), _DOTS[rows % 4, columns % 2])
        self._styles[rows // 4, columns // 2] = style

    def mark(self, x: Floats, y: Floats, glyph: str, style: str) -> None:
        """Put ``glyph`` at every point of ``x``, ``y`` (``[n]`` each)."""
        for at_x, at_y in zip(x, y, strict=True):
            place = self.row(at_y), self.column(at_x)
            self._glyphs[place] = glyph
            self._styles[place] = style

    def column(self, x: float) -> int:
        """The column of cells that holds ``x``, 0 leftmost."""
        return round(x * (2 * self._columns - 1)) // 2

    def row(self, y: float) -> int:
        """The row of cells that holds ``y``, 0 topmost."""
        return round((1 - y) * (4 * self._rows - 1)) // 4

    def lines(self) -> list[Text]:
        """The canvas as ``rows`` lines of ``columns`` characters."""
        return [self._line(row) for row in range(self._rows)]

    def _line(self, row: int) -> Text:
        text = Text(no_wrap=True)
        cells = [(self._styles[row, column], self._character(row, column)) for column in range(self._columns)]
        for style, run in groupby(cells, key=lambda cell: cell[0]):
            text.append("".join(character for _, character in run), style or None)
        return text

    def _character(self, row: int, column: int) -> str:
        dots = int(self._dots[row, column])
        return self._glyphs.get((row, column)) or (chr(_BLANK_CELL + dots) if dots else " ")
