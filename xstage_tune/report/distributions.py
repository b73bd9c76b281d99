"""Samples of a time as cumulative distributions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from xstage_tune.base.number_format import duration
from xstage_tune.report.figure import COLOUR_SLOTS, Axis, Drawing, Floats, Panel
from xstage_tune.report.study_figures import quantile_curve


def distribution_panel(
    key: str, title: str, label: str, samples: Mapping[str, Floats], of: str = "tiles"
) -> Panel:
    """One curve a sample, with its median and its 95th percentile in the legend.

    Args:
        label: of the time.
        samples: in ns, by what they are called; none is empty.
        of: what the samples are of.
    """
    share_axis = Axis(f"share of {of} up to {label}", "fraction", "linear", (0.0, 1.03))
    drawing = Drawing(Axis(label, "duration_ns", "linear"), share_axis)
    for place, (name, sample) in enumerate(samples.items()):
        share, value_ns = quantile_curve(sample)
        middle, tail = np.quantile(sample, (0.5, 0.95))
        text = f"{name}, median {duration(middle)}, p95 {duration(tail)}"
        x, y = np.concatenate(([0.0], value_ns)), np.concatenate(([0.0], share))
        drawing.add_explained(text, "line", place % COLOUR_SLOTS, x, y)
    return drawing.panel(key, title)
