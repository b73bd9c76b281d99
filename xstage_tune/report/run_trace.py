"""What a trace shows of a measured run, and of a study's answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from xstage_tune.base.errors import UsageError
from xstage_tune.base.number_format import byte_count, duration
from xstage_tune.base.spans import SpanTable
from xstage_tune.experiments.emulation.cases import cases_of, launch_of
from xstage_tune.experiments.emulation.request import EmulationRequest
from xstage_tune.experiments.study import Case
from xstage_tune.families.attention_a2a.budget import WARPGROUP_ROWS
from xstage_tune.families.attention_a2a.timing import ATTENTIONS
from xstage_tune.families.kernel_launch import OTHER_GPU
from xstage_tune.families.megamoe.spans import LANE_NAMES
from xstage_tune.families.megamoe.timing import LAYERS
from xstage_tune.launches.bursts import BURSTS
from xstage_tune.launches.device import LaunchKind
from xstage_tune.launches.imported import IMPORTED
from xstage_tune.launches.skeletons import SKELETONS
from xstage_tune.report.sentences import platform_marks
from xstage_tune.report.trace_file import Counter, OwnNames, TileKinds, TracedLaunch
from xstage_tune.search.study_case import StudyCase
from xstage_tune.simulator.traces import occupancy, pipeline_spans
from xstage_tune.store.facade import Store
from xstage_tune.store.launches import StoredLaunch
from xstage_tune.store.models import Run

_OCCUPANCY_SAMPLES = 4000
_PROFILED: tuple[LaunchKind[Any, Any, Any], ...] = (ATTENTIONS, LAYERS)


def find_run(store: Store, run_id: str) -> Run:
    """A run that has launches; ``latest`` is the last one finished of those, ``latest-any`` the last begun.

    Raises:
        UsageError: there is no such run, or it kept no spans.
    """
    run = store.run(run_id, lambda run: bool(store.launches(run.id)))
    if not store.launches(run.id):
        raise UsageError(f"run {run.id} has no spans: it is {run.status}", "trace another run, or --study")
    return run


def traced_run(run: Run, launches: Sequence[StoredLaunch], only: int | None) -> list[TracedLaunch]:
    """The launches of a run that may have recorded spans, or the one of number ``only``.

    Raises:
        UsageError: the run has no launch of that number, or none that recorded spans.
    """
    chosen = [launch for launch in launches if only in (None, launch.sequence)]
    if not chosen:
        raise UsageError(
            f"run {launches[0].run_id} has no launch {only}: they are numbered {launches[0].sequence} to "
            f"{launches[-1].sequence}",
            "leave out --launch to trace them all",
        )
    recorded = [launch for launch in chosen if _records(launch)]
    if not recorded:
        what = f"launch {only} of run" if only is not None else "run"
        others = any(_records(launch) for launch in launches)
        raise UsageError(
            f"{what} {launches[0].run_id} recorded no spans: checks and timed replays do not",
            "leave out --launch to trace those that did" if others else "profile again",
        )
    tiles, other_gpu = _emulated_tiles(run), str(run.parameters.get("other_gpu") or "")
    return [_traced(launch, tiles, other_gpu) for launch in recorded]


def traced_answer(study: StudyCase, case: Case) -> TracedLaunch:
    """The simulated launch of a study's answer, with its queue."""
    answer, run = case.chosen, case.run
    queue = occupancy(run, _OCCUPANCY_SAMPLES)
    table = pipeline_spans(run)
    return TracedLaunch(
        name=f"{study.workload.name}, {answer.config.label}",
        args={
            "config": answer.config.model_dump(mode="json"),
            "simulated_on": study.platform.name,
            "marks": [*platform_marks(study.platform, study.result.device.partition(OTHER_GPU)[2])],
        },
        spans=len(table.spans),
        tables=lambda: {0: table},
        least_ns=run.end_ns,
        tiles=TileKinds(run.streams.first, run.streams.remote_bytes > 0, case.linear2),
        counters=(Counter("queue occupancy", "bytes", queue.time_ns, queue.value),),
    )


def _emulated_tiles(run: Run) -> Callable[[StoredLaunch], TileKinds | None]:
    """Of a launch of an emulation: its tiles, made anew once for a case.

    None for another kind of launch, of a request that this version does not read, and of other tiles than it
    would run: their spans keep the names of their kinds.
    """
    if run.kind != "emulate":
        return lambda _: None
    try:
        request = EmulationRequest.read(run.parameters, f"run {run.id}")
        cases = {case.label: case for case in cases_of(request)}
    except UsageError:
        return lambda _: None

    @cache
    def of_case(label: str) -> TileKinds | None:
        case = cases.get(label)
        if case is None:
            return None
        launch = launch_of(case, request)
        return TileKinds(
            launch.streams.first, (launch.streams.remote_bytes > 0) & case.remote, launch.linear2
        )

    def of_launch(launch: StoredLaunch) -> TileKinds | None:
        if not launch.is_of(SKELETONS):
            return None
        point = launch.point_as(SKELETONS)
        if (tiles := of_case(point.label)) is None:
            return None
        as_run = (tiles.first.size - 1, tiles.remote.size) == (point.producers, point.tiles)
        return tiles if as_run else None

    return of_launch


def _traced(
    launch: StoredLaunch, tiles_of: Callable[[StoredLaunch], TileKinds | None], other_gpu: str
) -> TracedLaunch:
    """``other_gpu``: how the GPU differs from the platform's, where it was forced on it; else empty."""
    if launch.is_of(IMPORTED):
        return _imported(launch)
    args: dict[str, Any] = {
        **launch.point,
        "launch": launch.sequence,
        "kernel": launch.info.kernel,
        "registers": launch.info.registers,
        "started_at": launch.info.started_at,
        **(launch.measured or {}),
        **({"other_gpu": other_gpu} if other_gpu else {}),
    }
    return TracedLaunch(
        name=_launch_name(launch),
        args=args,
        spans=launch.span_count(),
        tables=partial(_tables, launch),
        lanes=_lanes(launch),
        tiles=_layer_tiles(launch) or tiles_of(launch),
    )


def _imported(launch: StoredLaunch) -> TracedLaunch:
    """Each in a process of its own: what is lane 0 of one file is another lane in the next."""
    about = launch.point_as(IMPORTED)
    return TracedLaunch(
        name=about.kernel or about.source,
        args={"launch": launch.sequence, "file": about.source, "format": about.format},
        spans=launch.span_count(),
        tables=lambda: {launch.sequence: launch.table()},
        own=OwnNames(about.source, about.names, about.lanes),
    )


def _lanes(launch: StoredLaunch) -> tuple[str, ...]:
    """Names of a CTA's lanes of a profiled kernel; of others a CTA has one."""
    if launch.is_of(LAYERS):
        return LANE_NAMES
    if not launch.is_of(ATTENTIONS):
        return ()
    keys = launch.point_as(ATTENTIONS).config
    # No more of the config than that: a run of another version of it is shown too.
    staged_rows = int(keys["block_m"]) // int(keys.get("kv_splits", 1))
    return tuple(f"warpgroup {number}" for number in range(staged_rows // WARPGROUP_ROWS))


def _layer_tiles(launch: StoredLaunch) -> TileKinds | None:
    """Of a profiled layer, whose spans say themselves what they are of; None of another launch."""
    if not launch.is_of(LAYERS):
        return None
    spans = launch.table().spans
    index = np.arange(1 + int(spans["index"].max(initial=0)))
    every = np.full(index.size, launch.path != "local")
    return TileKinds(np.zeros(1 + int(spans["lane"].max(initial=0)), np.int64), every, index % 2 == 1)


def _launch_name(launch: StoredLaunch) -> str:
    stores = f"{launch.flavour} to {launch.path}"
    for kind in _PROFILED:
        if launch.is_of(kind):
            point = launch.point_as(kind)
            return f"{point.implementation}{f', {point.label}' if point.label else ''}, {stores}"
    if launch.is_of(SKELETONS):
        skeleton = launch.point_as(SKELETONS)
        return f"{skeleton.label}, repeat {skeleton.repeat}, {stores}"
    point = launch.point_as(BURSTS)
    size, gap = byte_count(point.burst_bytes), duration(point.gap_ns)
    return f"{point.mode} {stores}, K = {point.producers}, B = {size}, G = {gap}"


def _records(launch: StoredLaunch) -> bool:
    """Whether launches of its kind record spans: of a profiled kernel only those that time nothing."""
    return all(not launch.is_of(kind) or launch.point_as(kind).what == "spans" for kind in _PROFILED)


def _tables(launch: StoredLaunch) -> Mapping[int, SpanTable]:
    """The spans of every rank that recorded some."""
    return {rank: launch.table(rank) for rank in launch.ranks()}
