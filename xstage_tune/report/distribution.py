"""Distributions of spans: how long remote stores occupy the issue role, and how long mainloops wait."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xstage_tune.base.number_format import duration, percent
from xstage_tune.report.drawing import Drawing
from xstage_tune.report.figure import Axis, Floats, Panel, Plate
from xstage_tune.report.simulated import Case

#: Points of a drawn distribution; its quantiles are exact at these.
_QUANTILES = 400


def distribution_plate(cases: Sequence[Case]) -> Plate:
    """T_RS as a cumulative distribution, and the staging stall as one of what exceeds it."""
    return Plate(
        title="Remote-store span and staging stall of a tile",
        subtitle="over all tiles of a launch; simulated",
        panels=(_spans(cases), _stalls(cases)),
    )


def quantile_curve(sample: Floats) -> tuple[Floats, Floats]:
    """Evenly spaced shares from 0 to 1, and the value that this share of ``sample`` does not exceed."""
    share = np.linspace(0.0, 1.0, min(_QUANTILES, max(2, sample.size)))
    return share, np.quantile(sample, share)


def _spans(cases: Sequence[Case]) -> Panel:
    share_axis = Axis("share of tiles up to T_RS", "fraction", "linear", (0.0, 1.03))
    drawing = Drawing(Axis("T_RS", "duration_ns", "linear"), share_axis)
    for case in cases:
        spans_ns = case.spans_ns()
        if spans_ns.size:
            share, value_ns = quantile_curve(spans_ns)
            from_zero = np.concatenate(([0.0], value_ns))
            shares = np.concatenate(([0.0], share))
            drawing.add_explained(_label(case, spans_ns), "line", case.colour, from_zero, shares)
    return drawing.panel("a", "Remote-store span")


def _stalls(cases: Sequence[Case]) -> Panel:
    share_axis = Axis("share of mainloops that wait longer", "fraction", "linear")
    drawing = Drawing(Axis("wait for a staging slot", "duration_ns", "linear"), share_axis)
    for case in cases:
        stalls_ns = case.run.stall_ns
        waits = stalls_ns > 0
        if not waits.any():
            drawing.explain(f"{case.label}, none waits", "line", case.colour)
            continue
        share, value_ns = quantile_curve(stalls_ns[waits])
        from_zero = np.concatenate(([0.0], value_ns))
        longer = waits.mean() * np.concatenate(([1.0], 1.0 - share))
        label = f"{case.label}, {percent(100 * waits.mean(), 1)} wait, mean {duration(stalls_ns.mean())}"
        drawing.add_explained(label, "line", case.colour, from_zero, longer)
    return drawing.panel("b", "Staging stall")


def _label(case: Case, sample_ns: Floats) -> str:
    median_ns, tail_ns = np.quantile(sample_ns, (0.5, 0.95))
    return f"{case.label}, median {duration(median_ns)}, p95 {duration(tail_ns)}"
