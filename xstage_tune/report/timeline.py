"""Two simulated launches side by side: what a few SMs do, and the queue under them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.number_format import byte_count, duration, percent
from xstage_tune.base.spans import SpanKind, SpanTable
from xstage_tune.experiments.study import Case
from xstage_tune.report.figure import Axis, Bars, Drawing, Fill, Ints, Panel, Plate, Track, TrackPanel
from xstage_tune.simulator.traces import ISSUE_ROLE, occupancy, pipeline_spans, tensor_activity

_SHOWN_SMS = 3
_TILES_IN_WINDOW = 12
_ACTIVITY_BINS = 160
_TRACKS_PER_SM = 2
_STALL_COLOUR, _ISSUE_COLOUR, _WAIT_COLOUR, _MAINLOOP_COLOUR, _QUEUE_COLOUR = 1, 2, 4, 0, 5


class Window(NamedTuple):
    """Part of a launch that is shown, in ns after its begin."""

    begin_ns: float
    length_ns: float

    @property
    def end_ns(self) -> float:
        return self.begin_ns + self.length_ns


def timeline_plate(cases: tuple[Case, Case]) -> Plate:
    """Lanes of both launches over windows of one length, and the queue's occupancy under each."""
    length_ns = _window_length_ns(cases)
    sms = _shown_sms(cases[0])
    windows = [fullest_window(case, length_ns) for case in cases]
    highest = max(case.capacity_bytes for case in cases)
    pairs = list(zip(cases, windows, strict=True))
    tracks = [_tracks("ab"[i], case, window, sms) for i, (case, window) in enumerate(pairs)]
    queues = [_queue("cd"[i], case, window, highest) for i, (case, window) in enumerate(pairs)]
    return Plate(
        title="What a few SMs do, and the queue under them",
        subtitle=f"{duration(length_ns)} of each launch, where its queue is fullest; simulated",
        panels=(*tracks, *queues),
    )


def activity_plate(cases: tuple[Case, Case]) -> Plate:
    """Tensor Core activity and queue over both whole launches, on one time axis."""
    longest_ns = max(case.run.end_ns for case in cases)
    highest = max(case.capacity_bytes for case in cases)
    time = Axis("time after the launch", "duration_ns", "linear", (0.0, 1.02 * longest_ns))
    active, queues = [], []
    for number, case in enumerate(cases):
        drawing = Drawing(time, Axis("SMs active", "fraction", "linear", (0.0, 1.06)))
        series = tensor_activity(case.run, _ACTIVITY_BINS)
        label = f"SMs whose mainloop runs, mean {percent(100 * case.tensor_active(), 1)}"
        drawing.add_explained(label, "area", case.place, series.time_ns, series.value)
        active.append(drawing.panel("ab"[number], f"Tensor Core activity, {case.label}", strip=True))
        drawing = Drawing(time, Axis("queue", "bytes", "linear", (0.0, 1.12 * highest)))
        held = occupancy(case.run)
        label = f"accepted, not drained; full {percent(100 * case.queue_full(), 1)} of the time"
        drawing.add_explained(label, "area", _QUEUE_COLOUR, held.time_ns, held.value)
        _add_capacity(drawing, case, 1.02 * longest_ns)
        queues.append(drawing.panel("cd"[number], "Queue occupancy", strip=True))
    return Plate(
        title="Tensor Cores and queue over the whole launch",
        subtitle=f"activity: means over {_ACTIVITY_BINS} equal parts of each launch; simulated",
        panels=(*active, *queues),
    )


def fullest_window(case: Case, length_ns: float) -> Window:
    """The part of ``length_ns`` in which the queue holds most on average; the earliest of equal ones."""
    series = occupancy(case.run)
    last_ns = max(0.0, case.run.end_ns - length_ns)
    steps = np.diff(series.time_ns) * (series.value[:-1] + series.value[1:]) / 2
    held = np.concatenate(([0.0], np.cumsum(steps)))
    begins = np.union1d(series.time_ns[series.time_ns <= last_ns], [last_ns])
    within = np.interp(begins + length_ns, series.time_ns, held) - np.interp(begins, series.time_ns, held)
    begin_ns = float(begins[int(np.argmax(np.round(within / max(1.0, held[-1]), 12)))])
    return Window(begin_ns, length_ns)


def _window_length_ns(cases: Sequence[Case]) -> float:
    """Long enough for a number of tiles of either launch, at most the longer launch."""
    tiles_ns = _TILES_IN_WINDOW * max(float(np.median(case.run.streams.mainloop_ns)) for case in cases)
    return min(tiles_ns, max(case.run.end_ns for case in cases))


def _shown_sms(case: Case) -> list[int]:
    """The SMs that wait most, about the median, and least, for a staging slot."""
    streams = case.run.streams
    waited = np.bincount(streams.sm_of_tile(), case.run.stall_ns, minlength=streams.sms)
    order = np.argsort(-waited, kind="stable")
    places = np.linspace(0, streams.sms - 1, min(_SHOWN_SMS, streams.sms)).astype(np.int64)
    return [int(sm) for sm in dict.fromkeys(order[places].tolist())]


def _tracks(key: str, case: Case, window: Window, sms: Sequence[int]) -> TrackPanel:
    return TrackPanel(
        key=key,
        title=case.label,
        x=window_axis(window),
        tracks=sm_tracks(sms),
        bars=span_bars(pipeline_spans(case.run), case.run.streams.first, case.linear2, window, sms),
        note=f"from {duration(window.begin_ns)} on, of a launch of {duration(case.run.end_ns)}",
    )


def sm_tracks(sms: Sequence[int]) -> tuple[Track, ...]:
    """Rows of an SM's two roles, for :func:`span_bars`."""
    return tuple(Track(role, f"SM {sm}") for sm in sms for role in ("math", "issue"))


def window_axis(window: Window) -> Axis:
    return Axis("time in the window", "duration_ns", "linear", (0.0, window.length_ns))


def span_bars(
    table: SpanTable, first: Ints, linear2: NDArray[np.bool_] | None, window: Window, sms: Sequence[int]
) -> tuple[Bars, ...]:
    """Mainloops, issue and waits of the shown SMs, cut at the window's edges; waits come last.

    Args:
        first: ``[SMs + 1]`` where each SM's tiles begin.
        linear2: ``[n]`` whether a tile is of Linear-2; None for attention.
        sms: lanes of the table, of which each has a row for either role.
    """
    spans = table.spans
    begin_ns = np.maximum(table.begin_ns() - window.begin_ns, 0.0)
    end_ns = np.minimum(table.end_ns() - window.begin_ns, window.length_ns)
    shown = np.isin(spans["lane"], sms) & (end_ns > begin_ns)
    row = np.zeros(len(table.lanes), np.int64)
    row[list(sms)] = _TRACKS_PER_SM * np.arange(len(sms))
    track = row[spans["lane"]] + (spans["role"] == ISSUE_ROLE)
    tile = first[spans["lane"]] + spans["index"]
    of_linear2 = np.ones(len(spans), np.bool_) if linear2 is None else linear2[tile]

    def bars(name: str, fill: Fill, colour: int, kind: SpanKind, of: NDArray[np.bool_]) -> Bars:
        chosen = shown & (spans["kind"] == kind) & of
        return Bars(name, fill, colour, track[chosen], begin_ns[chosen], end_ns[chosen])

    every = np.ones(len(spans), np.bool_)
    mainloop = "Q-loop" if linear2 is None else "Linear-2 mainloop"
    drawn = (
        bars("Linear-1 mainloop", "pale", _MAINLOOP_COLOUR, SpanKind.MAINLOOP, ~of_linear2),
        bars(mainloop, "solid", _MAINLOOP_COLOUR, SpanKind.MAINLOOP, of_linear2),
        bars("issue, local stores", "pale", _ISSUE_COLOUR, SpanKind.ISSUE, ~of_linear2),
        bars("issue, remote stores", "solid", _ISSUE_COLOUR, SpanKind.ISSUE, of_linear2),
        bars("wait for staging", "solid", _STALL_COLOUR, SpanKind.STAGING_STALL, every),
        bars("wait for inputs", "solid", _WAIT_COLOUR, SpanKind.DEPENDENCY_WAIT, every),
    )
    return tuple(one for one in drawn if one.track.size)


def _queue(key: str, case: Case, window: Window, highest_bytes: float) -> Panel:
    drawing = Drawing(window_axis(window), Axis("queue", "bytes", "linear", (0.0, 1.12 * highest_bytes)))
    series = occupancy(case.run)
    inside = (series.time_ns > window.begin_ns) & (series.time_ns < window.end_ns)
    time_ns = np.concatenate(([window.begin_ns], series.time_ns[inside], [window.end_ns]))
    held = np.interp(time_ns, series.time_ns, series.value)
    drawing.add_explained("accepted, not drained", "area", _QUEUE_COLOUR, time_ns - window.begin_ns, held)
    _add_capacity(drawing, case, window.length_ns)
    return drawing.panel(key, "Queue occupancy", strip=True)


def _add_capacity(drawing: Drawing, case: Case, last_ns: float) -> None:
    label = f"capacity Q = {byte_count(case.capacity_bytes)}"
    drawing.add_explained(label, "dashed", None, np.array([0.0, last_ns]), np.full(2, case.capacity_bytes))
