"""A character canvas: paths in braille dots (2 by 4 a cell), markers as whole glyphs on top."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from rich.text import Text

from xstage_tune.report.figure import Floats

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
