"""What a figure shows, as data: every renderer (terminal, SVG, HTML) draws this same description.

Coordinates are in base units (ns, bytes) and finite, and positive on a logarithmic axis, so a
renderer needs no checks of its own. Colour is a slot of the renderer's palette; each slot also
has its own marker shape, so that a figure reads without colour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: How a series is drawn. ``points``: measured; ``hollow``: measured but set apart (the legend says
#: why); ``cross``: a control; ``line``: the model; ``dashed``: a counterfactual; ``corner``: a
#: single place where the model changes branch, dropped to the x axis.
Mark = Literal["points", "hollow", "cross", "line", "dashed", "corner"]

#: Number of palette slots that every renderer provides.
COLOUR_SLOTS = 6


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: what it is, in which quantity, on which scale."""

    label: str
    quantity: Literal["duration_ns", "bytes"]
    scale: Literal["linear", "log"]


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
    mark: Mark
    colour: int | None


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes. ``note`` says which curves were chosen or left out; empty when all are shown."""

    key: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    legend: tuple[LegendEntry, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """Panels in reading order, under one title."""

    title: str
    subtitle: str
    panels: tuple[Panel, ...]
