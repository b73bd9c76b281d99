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
#: How an interval on a lane is drawn.
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
class Lane:
    """A row of intervals. Lanes that follow each other in one ``group`` are set together under its name."""

    label: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Intervals of one kind, ``[n]`` each: on which lane, from where to where."""

    name: str
    fill: Fill
    colour: int | None
    lane: Ints
    begin: Floats
    end: Floats


@dataclass(frozen=True, slots=True)
class LanePanel:
    """Intervals on lanes over one axis, later bars over earlier ones; each kind is in the legend."""

    key: str
    title: str
    x: Axis
    lanes: tuple[Lane, ...]
    bars: tuple[Bars, ...]
    note: str = ""

    @property
    def legend(self) -> tuple[LegendEntry, ...]:
        """One entry for each kind of bars."""
        return tuple(LegendEntry(bars.name, bars.fill, bars.colour) for bars in self.bars)


@dataclass(frozen=True, slots=True)
class Plate:
    """A figure that also has lanes, two panels to a row; it is drawn in pages only."""

    title: str
    subtitle: str
    panels: tuple[Panel | LanePanel, ...]
