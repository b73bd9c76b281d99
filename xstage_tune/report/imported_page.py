"""The page of imported spans: by name, their distributions, and what a few lanes did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from xstage_tune.base.number_format import counted, duration
from xstage_tune.base.spans import SpanTable
from xstage_tune.launches.imported import IMPORTED, UNKNOWN_GPU, ImportedSpans
from xstage_tune.report.calibration_page import run_sentence, run_table
from xstage_tune.report.figure import (
    COLOUR_SLOTS,
    Axis,
    Bars,
    Drawing,
    Figure,
    Ints,
    Plate,
    Track,
    TrackPanel,
)
from xstage_tune.report.imported_tables import NamedSpans, by_name, imported_tables
from xstage_tune.report.page import Block, render_page
from xstage_tune.report.study_figures import quantile_curve
from xstage_tune.report.timeline import Window, window_axis
from xstage_tune.store.launches import StoredLaunch
from xstage_tune.store.models import Run

_SHOWN_LANES = 6
_SPANS_IN_WINDOW = 40
#: The window begins so far into the timeline: past its start, and where its tail has not begun.
_WINDOW_AT = 0.45
_LABEL = 40  # characters of a name in a figure


def render_imported(run: Run, launches: Sequence[StoredLaunch]) -> str:
    """The page of ``run``.

    Raises:
        StoreError: spans are damaged, or the database failed.
    """
    files = [launch.point_as(IMPORTED) for launch in launches]
    title = f"Spans of {files[0].kernel or files[0].source}" if len(files) == 1 else "Imported spans"
    blocks = [block for launch in launches for block in _blocks(launch)]
    blocks.append(Block(heading="Run", tables=(run_table(run, launches),)))
    gpu = run.environment.gpu_name
    recorded = "" if gpu == UNKNOWN_GPU else f", recorded on {gpu}"
    lead = f"Spans of {counted(len(files), 'file')}{recorded}."
    return render_page(title, blocks, (lead, run_sentence(run)))


def _blocks(launch: StoredLaunch) -> Iterator[Block]:
    about, table = launch.point_as(IMPORTED), launch.table()
    named = by_name(about, table)
    yield Block(
        heading=about.source,
        figure=Plate("What a few lanes did", about.source, (_tracks(about, table, named),)),
        caption="Where spans nest, the shorter ones lie over the longer ones.",
        tables=(imported_tables(about, table),),
    )
    yield Block(figure=_distributions(about, named), caption="Of the names that take longest in all.")


def _distributions(about: ImportedSpans, named: Sequence[NamedSpans]) -> Figure:
    share_axis = Axis("share of spans up to it", "fraction", "linear", (0.0, 1.03))
    longest_first = named[:COLOUR_SLOTS]
    drawing = Drawing(Axis("length of a span", "duration_ns", "symlog"), share_axis)
    for place, one in enumerate(longest_first):
        share, value_ns = quantile_curve(one.duration_ns)
        middle, tail = np.quantile(one.duration_ns, (0.5, 0.95))
        text = f"{_label(one.name)}, median {duration(middle)}, p95 {duration(tail)}"
        drawing.add_explained(text, "line", place, value_ns, share)
    return Figure("Lengths of spans", about.source, (drawing.panel("a", "Distributions"),))


def _tracks(about: ImportedSpans, table: SpanTable, named: Sequence[NamedSpans]) -> TrackPanel:
    """The lanes with most spans, spread evenly over them, in a window of so many of their spans."""
    spans, begin_ns, end_ns = table.spans, table.begin_ns(), table.end_ns()
    recorded = np.bincount(spans["lane"], minlength=len(table.lanes))
    busy = np.flatnonzero(recorded >= max(1, recorded.max() // 2))
    lanes = busy[np.linspace(0, busy.size - 1, min(_SHOWN_LANES, busy.size)).astype(np.int64)]
    first_ns, whole_ns = float(begin_ns.min()), float(end_ns.max() - begin_ns.min())
    length_ns = max(1.0, whole_ns * min(1.0, _SPANS_IN_WINDOW / float(recorded.max())))
    window = Window(first_ns + max(0.0, min(_WINDOW_AT * whole_ns, whole_ns - length_ns)), length_ns)
    track = np.full(len(table.lanes), -1, np.int64)
    track[lanes] = np.arange(lanes.size)
    bars = _bars(table, named, track, window)
    return TrackPanel(
        key="a",
        title="Timeline",
        x=window_axis(window),
        tracks=tuple(Track(_label(about.lanes[lane])) for lane in lanes.tolist()),
        bars=bars,
        note=f"from {duration(window.begin_ns - first_ns)} on, of {duration(whole_ns)}",
    )


def _bars(table: SpanTable, named: Sequence[NamedSpans], track: Ints, window: Window) -> tuple[Bars, ...]:
    """Spans in the window of the names that take longest, on the track of their lane, -1 for none."""
    spans = table.spans
    on_track: Ints = track[spans["lane"]]
    begin_ns = np.maximum(table.begin_ns() - window.begin_ns, 0.0)
    end_ns = np.minimum(table.end_ns() - window.begin_ns, window.length_ns)
    shown = (on_track >= 0) & (end_ns > begin_ns)
    longest_first = sorted(named[:COLOUR_SLOTS], key=lambda one: -float(np.median(one.duration_ns)))
    every = (
        (_label(one.name), place, shown & (spans["kind"] == one.kind))
        for place, one in enumerate(longest_first)
    )
    return tuple(
        Bars(name, "solid", place, on_track[of], begin_ns[of], end_ns[of])
        for name, place, of in every
        if of.any()
    )


def _label(name: str) -> str:
    return name if len(name) <= _LABEL else f"{name[: _LABEL - 3]}..."
