"""Bursts of stores in an imported timeline: when each SM issued one, and what lay between two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError
from xstage_tune.base.spans import SpanTable
from xstage_tune.launches.imported import IMPORT, IMPORTED, ImportedSpans
from xstage_tune.launches.streams import Floats, Ints
from xstage_tune.store.facade import Store

_MOST_LISTED = 8


@dataclass(frozen=True, slots=True)
class StoreBursts:
    """The bursts of one timeline, of each SM in the order of their begin; columns are ``[n]``.

    A lane counts as an SM, but where spans tell theirs (``xstage/span.cuh``, traces of this tool) the lanes
    of one are together. Of bursts that overlap there the next has a gap of 0.

    Args:
        source: name of the file.
        sms: ``[K]`` numbers of the SMs with bursts, ascending.
        first: ``[K + 1]`` where the bursts of each begin.
        gap_ns: from the end of the SM's burst before; of its first one from the timeline's earliest span.
        length_ns: of each: T_RS, as it was recorded.
        makespan_ns: from the earliest span until the last burst ends.
    """

    source: str
    sms: Ints
    first: Ints
    gap_ns: Floats
    length_ns: Floats
    makespan_ns: float

    @property
    def producers(self) -> int:
        """K."""
        return self.sms.size

    @property
    def median_gap_ns(self) -> float:
        """G: the median between two bursts of an SM; before its first, where no SM has two."""
        between = np.ones(self.gap_ns.size, np.bool_)
        between[self.first[:-1]] = False
        return float(np.median(self.gap_ns[between] if between.any() else self.gap_ns))

    @property
    def median_length_ns(self) -> float:
        """Median T_RS, as recorded."""
        return float(np.median(self.length_ns))


def imported_bursts(store: Store, run_id: str, names: Sequence[str]) -> tuple[str, tuple[StoreBursts, ...]]:
    """A run of ``import`` and the bursts of each of its timelines; ``latest`` is the last one of them.

    Args:
        names: of the spans that are bursts; without any, the only name that there is.

    Raises:
        UsageError: there is no such run, it is of another kind, or a timeline has no spans of these names.
    """
    run = store.run(run_id, lambda run: run.kind == IMPORT)
    if run.kind != IMPORT:
        raise UsageError(
            f"run {run.id} is of kind '{run.kind}': only imported spans can be replayed",
            "xstage-tune trace --run ID -o spans.json.gz, then import that",
        )
    launches = store.launches(run.id)
    bursts = (bursts_of(launch.point_as(IMPORTED), launch.table(), names) for launch in launches)
    return run.id, tuple(bursts)


def bursts_of(about: ImportedSpans, table: SpanTable, names: Iterable[str]) -> StoreBursts:
    """The spans of these names as bursts.

    Raises:
        UsageError: there are none.
    """
    spans, wanted = table.spans, set(names)
    there = {about.names[kind] for kind in np.unique(spans["kind"]).tolist()}
    if not wanted and len(there) == 1:
        wanted = there
    if not wanted & there:
        listed = ", ".join(f"'{name}'" for name in sorted(there)[:_MOST_LISTED])
        asked = ", ".join(f"'{name}'" for name in sorted(wanted))
        raise UsageError(
            f"{about.source} has no spans {asked}"
            if wanted
            else f"{about.source}: which spans are its bursts?",
            f"--burst NAME, one of {listed}{', ...' if len(there) > _MOST_LISTED else ''}",
        )
    of_name = np.array([name in wanted for name in about.names])
    chosen = of_name[spans["kind"]]
    origin_ns = float(table.begin_ns().min())
    begin_ns, end_ns = table.begin_ns()[chosen] - origin_ns, table.end_ns()[chosen] - origin_ns
    sm = _sms(about, table)[spans["lane"][chosen]]
    order = np.lexsort((begin_ns, sm))
    begin_ns, end_ns, sm = begin_ns[order], end_ns[order], sm[order]
    sms, starts = np.unique(sm, return_index=True)
    first = np.append(starts, sm.size)
    gap_ns = np.empty(sm.size)
    for begin, end in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
        before_ns = np.concatenate(([0.0], np.maximum.accumulate(end_ns[begin:end])[:-1]))
        gap_ns[begin:end] = np.maximum(0.0, begin_ns[begin:end] - before_ns)
    return StoreBursts(about.source, sms, first, gap_ns, end_ns - begin_ns, float(end_ns.max()))


def _sms(about: ImportedSpans, table: SpanTable) -> NDArray[np.int64]:
    """The SM of each lane, ``[lanes]``; what stands for it where that is not told."""
    return table.lanes["sm_id"].astype(np.int64) if about.tells_sms else np.arange(len(table.lanes))
