"""The page of an emulation: every schedule beside its predictions, its spans, and how it was made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from xstage_tune.base.number_format import duration, percent
from xstage_tune.base.spans import SpanKind, SpanTable
from xstage_tune.experiments.emulation.cases import launch_of
from xstage_tune.experiments.emulation.result import CaseResult, EmulationResult
from xstage_tune.families.launch import FusedLaunch
from xstage_tune.launches.skeletons import SKELETONS
from xstage_tune.report.emulation_figure import distribution_figure, sweep_figure
from xstage_tune.report.emulation_tables import emulation_tables
from xstage_tune.report.figure import Floats, LanePanel, Plate
from xstage_tune.report.page import Block, render_page
from xstage_tune.report.run_report import launches_table, run_sentence, run_table
from xstage_tune.report.sentences import platform_sentence, workload_sentence
from xstage_tune.report.timeline import Window, sm_lanes, span_bars, window_axis
from xstage_tune.store.launches import StoredLaunch
from xstage_tune.store.models import Run

_SHOWN_SMS = 3
_TILES_IN_WINDOW = 12
#: The window begins so far into the launch: past its start, and where its tail has not begun.
_WINDOW_AT = 0.45


def render_emulation(run: Run, result: EmulationResult, launches: Sequence[StoredLaunch]) -> str:
    """The page of ``run``.

    Raises:
        StoreError: spans are damaged, or the database failed.
    """
    title = f"Emulation of {result.request.workload.name}"
    return render_page(title, tuple(_blocks(run, result, launches)), _lead(run, result))


def _lead(run: Run, result: EmulationResult) -> tuple[str, ...]:
    """What was found, in words."""
    request = result.request
    what = (
        f"{len(result.cases)} cases of {workload_sentence(request.workload)} "
        f"Each ran {request.repeats} times as a skeleton on {result.device_name} ({result.device}), with "
        "real roles, staging, order and stores, and spins in place of mainloops."
    )
    answers = [run_sentence(run)]
    remote = [one for one in result.cases if one.case.remote]
    if remote:
        fastest = min(remote, key=lambda one: one.makespan_ns)
        answers.append(f"Fastest: {fastest.case.label}, {duration(fastest.makespan_ns)}.")
    ratio = result.interleaved_over_wave(result.values()[0])["emulated"]
    if ratio is not None and request.sweep is None:
        answers.append(f"The wave takes {ratio:.3f}x the time of the interleaved schedule.")
    return what, " ".join(answers)


def _blocks(run: Run, result: EmulationResult, launches: Sequence[StoredLaunch]) -> Iterator[Block]:
    asked = (platform_sentence(result.request.platform),) if result.request.predicted else ()
    yield Block(heading="Schedules", paragraphs=asked, tables=emulation_tables(result))
    if result.request.sweep is not None:
        yield Block(
            heading="Sweep",
            figure=sweep_figure(result),
            caption="Points ran; lines are predicted from the calibrated platform alone.",
        )
    else:
        yield from _span_blocks(result, _first_tables(launches))
    yield Block(heading="Run", tables=(run_table(run, launches), launches_table(launches)))


def _first_tables(launches: Sequence[StoredLaunch]) -> dict[str, SpanTable]:
    """Spans of the first launch of each skeleton that has some."""
    tables: dict[str, SpanTable] = {}
    for launch in launches:
        label = launch.point_as(SKELETONS).label
        if label not in tables:
            table = launch.table()
            if len(table.spans):
                tables[label] = table
    return tables


def _span_blocks(result: EmulationResult, tables: dict[str, SpanTable]) -> Iterator[Block]:
    shown = [
        _Shown(one, tables[one.case.label], launch_of(one.case, result.request))
        for one in result.cases
        if one.case.label in tables and one.case.remote
    ]
    if not shown:
        return
    active = (
        f"Tensor Cores are active {percent(100 * each.result.launches[0].tensor_active, 1)} of the launch "
        f"under {each.result.case.label}."
        for each in shown[:2]
    )
    yield Block(
        heading="Timelines",
        figure=_timelines(result, shown[:2]),
        caption=" ".join(("The same SMs under either schedule.", *active)),
    )
    spans_ns = {each.result.case.label: each.issue_ns() for each in shown}
    stored = {label: sample for label, sample in spans_ns.items() if sample.size}
    if stored:
        yield Block(
            heading="Span distributions",
            figure=distribution_figure(result, stored),
            caption="How long the stores of a tile with remote bytes occupy the issue role, waits included.",
        )


@dataclass(frozen=True, slots=True)
class _Shown:
    """A case, the spans of one of its launches, and its tiles."""

    result: CaseResult
    table: SpanTable
    launch: FusedLaunch

    def issue_ns(self) -> Floats:
        """T_RS of the tiles with remote bytes whose spans were kept."""
        streams, spans = self.launch.streams, self.table.spans
        issued = spans["kind"] == SpanKind.ISSUE
        tile = streams.first[spans["lane"][issued]] + spans["index"][issued]
        duration_ns: Floats = self.table.duration_ns()[issued][streams.remote_bytes[tile] > 0]
        return duration_ns

    def lanes(self, key: str) -> LanePanel:
        """What a few SMs with spans did in a window of some tiles."""
        makespan_ns, streams = self.result.makespan_ns, self.launch.streams
        length_ns = min(makespan_ns, _TILES_IN_WINDOW * float(np.median(streams.mainloop_ns)))
        window = Window(min(_WINDOW_AT * makespan_ns, makespan_ns - length_ns), length_ns)
        with_spans = np.flatnonzero(self.table.lanes["recorded"])
        places = np.linspace(0, with_spans.size - 1, min(_SHOWN_SMS, with_spans.size)).astype(np.int64)
        sms = with_spans[places].tolist()
        return LanePanel(
            key=key,
            title=self.result.case.label,
            x=window_axis(window),
            lanes=sm_lanes(sms),
            bars=span_bars(self.table, streams.first, self.launch.linear2, window, sms),
            note=f"from {duration(window.begin_ns)} on, of a launch of {duration(makespan_ns)}",
        )


def _timelines(result: EmulationResult, shown: Sequence[_Shown]) -> Plate:
    panels = tuple(each.lanes(key) for key, each in zip("ab", shown, strict=False))
    return Plate("What a few SMs did", f"first launch of each schedule; {result.device}", panels)
