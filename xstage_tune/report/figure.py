"""What a figure shows, as data: every renderer (terminal, SVG, HTML) draws this same description.

Coordinates are in base units (ns, bytes, counts, fractions of one) and finite, and positive on a
logarithmic axis, so a renderer needs no checks of its own. Colour is a slot of the renderer's palette;
each slot also has its own marker shape, so that a figure reads without colour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: How a series is drawn. ``points``: measured; ``hollow``: measured but set apart (the legend says
#: why); ``cross``: a control; ``line``: the model; ``area``: a quantity over time, filled down to zero;
#: ``dashed``: a counterfactual or a limit; ``corner``: a single place where the model changes branch, dropped
#: to the x axis.
Mark = Literal["points", "hollow", "cross", "line", "area", "dashed", "corner"]
#: How an interval on a track is drawn.
Fill = Literal["solid", "pale"]
Quantity = Literal["duration_ns", "bytes", "count", "fraction"]

#: Number of palette slots that every renderer provides.
COLOUR_SLOTS = 6


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: what it is, in which quantity, on which scale.

    ``symlog`` is logarithmic in either direction from zero, and linear next to it: for what may also be
    nothing, or less. ``limits`` is the range to show, all of the data inside it; by default it follows from
    the data.
    """

    label: str
    quantity: Quantity
    scale: Literal["linear", "log", "symlog"]
    limits: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Points or a path, ``[n]`` each in ``x`` and ``y``; ``colour`` None is the neutral ink."""

    name: str
    mark: Mark
    colour: int | None
    x: Floats
    y: Floats


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """One entry of a legend, drawn as a sample of ``mark`` in ``colour``."""

    label: str
    mark: Mark | Fill
    colour: int | None


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes. ``note`` says which curves were chosen or left out; empty when all are shown.

    A ``strip`` is half as tall as other panels: a quantity over time, under what explains it.
    """

    key: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    legend: tuple[LegendEntry, ...]
    note: str = ""
    strip: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """Panels in reading order, under one title."""

    title: str
    subtitle: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Track:
    """A row of intervals. Lanes that follow each other in one ``group`` are set together under its name."""

    label: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Intervals of one kind, ``[n]`` each: on which track, from where to where."""

    name: str
    fill: Fill
    colour: int | None
    track: Ints
    begin: Floats
    end: Floats


@dataclass(frozen=True, slots=True)
class TrackPanel:
    """Intervals on tracks over one axis, later bars over earlier ones; each kind is in the legend."""

    key: str
    title: str
    x: Axis
    tracks: tuple[Track, ...]
    bars: tuple[Bars, ...]
    note: str = ""

    @property
    def legend(self) -> tuple[LegendEntry, ...]:
        """One entry for each kind of bars."""
        return tuple(LegendEntry(bars.name, bars.fill, bars.colour) for bars in self.bars)


@dataclass(frozen=True, slots=True)
class Plate:
    """A figure that also has tracks, two panels to a row; it is drawn in pages only."""

    title: str
    subtitle: str
    panels: tuple[Panel | TrackPanel, ...]


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
