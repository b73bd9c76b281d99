"""Collects what one panel shows, keeping only what its axes can show."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xstage_tune.report.figure import Axis, Floats, LegendEntry, Mark, Panel, Series


class Drawing:
    """The series and the legend of a panel in the making."""

    def __init__(self, x: Axis, y: Axis) -> None:
        self._x, self._y = x, y
        self._series: list[Series] = []
        self._legend: list[LegendEntry] = []
        self._left_out = 0

    def add(self, name: str, mark: Mark, colour: int | None, x: Floats, y: Floats) -> None:
        """Add a series; points that are not finite, or not positive on a log axis, are counted, not drawn."""
        keep = _showable(x, self._x) & _showable(y, self._y)
        if mark in ("points", "hollow", "cross"):
            self._left_out += int(np.count_nonzero(~keep))
        if keep.any():
            self._series.append(Series(name, mark, colour, x[keep], y[keep]))

    def add_explained(self, label: str, mark: Mark, colour: int | None, x: Floats, y: Floats) -> None:
        """Add a series with its own legend entry."""
        self.add(label, mark, colour, x, y)
        self.explain(label, mark, colour)

    def add_split(
        self,
        label: str,
        colour: int,
        x: Floats,
        y: Floats,
        *,
        apart: NDArray[np.bool_],
        names: tuple[str, str],
    ) -> None:
        """Add measured points, those in ``apart`` hollow; ``names`` are for the others, then for these."""
        self.add(f"{label}, {names[0]}", "points", colour, x[~apart], y[~apart])
        self.add(f"{label}, {names[1]}", "hollow", colour, x[apart], y[apart])

    def explain(self, label: str, mark: Mark, colour: int | None) -> None:
        """Add a legend entry."""
        self._legend.append(LegendEntry(label, mark, colour))

    def explain_marks(
        self, *, line: str, hollow: str = "", cross: str = "", corner: str = "", dashed: str = ""
    ) -> None:
        """Add an entry in neutral ink for each kind of mark that was drawn and has a label here."""
        drawn = {series.mark for series in self._series}
        labels: tuple[tuple[Mark, str], ...] = (
            ("line", line), ("dashed", dashed), ("hollow", hollow), ("cross", cross), ("corner", corner)
        )  # fmt: skip
        for mark, label in labels:
            if mark in drawn and label:
                self.explain(label, mark, None)

    def panel(self, key: str, title: str, note: str = "", *, strip: bool = False) -> Panel:
        """The finished panel; its note also counts the points left out."""
        left_out = f"{self._left_out} points at zero or not finite left out" if self._left_out else ""
        notes = "; ".join(part for part in (note, left_out) if part)
        return Panel(key, title, self._x, self._y, tuple(self._series), tuple(self._legend), notes, strip)


def _showable(values: Floats, axis: Axis) -> NDArray[np.bool_]:
    finite = np.isfinite(values)
    return finite & (values > 0) if axis.scale == "log" else finite
