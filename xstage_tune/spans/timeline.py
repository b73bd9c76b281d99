"""Named intervals on named lanes, in ns of one clock, as a timeline of this tool's spans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError
from xstage_tune.base.spans import LANE_DTYPE, SPAN_DTYPE, SpanTable
from xstage_tune.launches.imported import ImportedSpans, SpanFormat, Timeline
from xstage_tune.spans.buffer import MOST_LANES, MOST_NAMES, MOST_SPANS, short_name

#: What the rarest names are called where there are more than a span's kind can tell apart.
OTHER_NAMES = "(other names)"
_LONGEST_TICKS = float(np.iinfo(np.uint32).max)
_LONGEST_NS = float(1 << 53)  # 104 days, to which a double tells ns apart
_MOST_SM = np.iinfo(np.uint16).max
_MOST_INDEX = np.iinfo(np.uint32).max


@dataclass(slots=True)
class Intervals:
    """What a file of another tool holds, gathered one by one.

    Args:
        origin: the file, as errors name it.
        left_out: spans without a begin, an end or a length.
    """

    origin: str
    left_out: int = 0
    _lanes: dict[str, int] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)
    _sms: dict[int, int] = field(default_factory=dict)
    _rows: list[tuple[float, float, int, int, int]] = field(default_factory=list)

    def lane(self, name: str) -> int:
        """Number of a lane, which is new where its name is.

        Raises:
            UsageError: there are too many.
        """
        number = self._lanes.setdefault(name, len(self._lanes))
        if number >= MOST_LANES:
            raise UsageError(f"{self.origin}: more than {MOST_LANES:,} threads", "export fewer of them")
        return number

    def of_sm(self, lane: int, sm: int) -> None:
        """Say which SM a lane is of."""
        if 0 <= sm <= _MOST_SM:
            self._sms[lane] = sm

    def add(self, name: str, lane: int, begin_ns: float, length_ns: float, index: int | None = None) -> None:
        """Add a span; one whose times are none, or that ends before it begins, is left out.

        Args:
            index: of the tile; by default spans of a lane are counted.

        Raises:
            UsageError: there are too many.
        """
        if not (-_LONGEST_NS < begin_ns - self._first_ns() < _LONGEST_NS and 0 <= length_ns < _LONGEST_NS):
            self.left_out += 1
            return
        if len(self._rows) >= MOST_SPANS:
            raise UsageError(f"{self.origin}: more than {MOST_SPANS:,} spans", "export a shorter part of it")
        number = self._names.setdefault(name, len(self._names))
        told = index if index is not None and 0 <= index <= _MOST_INDEX else -1
        self._rows.append((begin_ns, length_ns, lane, number, told))

    def timeline(self, source: str, form: SpanFormat, gpu: str = "") -> Timeline:
        """All of it.

        Raises:
            UsageError: there is no span.
        """
        if not self._rows:
            left_out = f", but {self.left_out:,} that never end" if self.left_out else ""
            raise UsageError(
                f"{self.origin}: no spans in it{left_out}", "export it with its ranges or kernels"
            )
        begin_ns, length_ns, lane, name, index = (
            np.array(column) for column in zip(*self._rows, strict=True)
        )
        kinds, names = _kinds(name, list(self._names))
        used, lane = np.unique(lane, return_inverse=True)
        lanes = list(self._lanes)
        about = ImportedSpans(
            source=short_name(source),
            format=form,
            names=tuple(map(short_name, names)),
            lanes=tuple(short_name(lanes[number]) for number in used.tolist()),
            left_out=self.left_out,
            tells_sms=bool(self._sms),
        )
        table = _table(begin_ns, length_ns, lane, kinds, index)
        table.lanes["sm_id"] = [self._sms.get(number, 0) for number in used.tolist()]
        return Timeline(about, table, gpu)

    def _first_ns(self) -> float:
        return self._rows[0][0] if self._rows else 0.0


def _kinds(name: NDArray[np.int64], names: Sequence[str]) -> tuple[NDArray[np.int64], list[str]]:
    """Numbers from 1 on that a span's kind has room for, and the name of each; the rarest ones share one."""
    often = [number for number, _ in Counter(name.tolist()).most_common(MOST_NAMES - 2)]
    shared = len(often) + 1
    kind = np.full(len(names), shared, np.int64)
    kind[often] = np.arange(1, shared)
    others = [OTHER_NAMES] if len(often) < len(names) else []
    return kind[name], ["", *(names[number] for number in often), *others]


def _table(
    begin_ns: NDArray[np.float64],
    length_ns: NDArray[np.float64],
    lane: NDArray[np.int64],
    kind: NDArray[np.int64],
    index: NDArray[np.int64],
) -> SpanTable:
    """Ticks of a ns, and on a lane with spans too long for that the next power of two that they fit."""
    first_ns = float(begin_ns.min())
    begin_ns = np.rint(begin_ns - first_ns)
    length_ns = np.rint(length_ns)
    count = int(lane.max()) + 1
    longest_ns = np.zeros(count)
    np.maximum.at(longest_ns, lane, length_ns)
    tick_ns = np.exp2(np.ceil(np.log2(np.maximum(longest_ns / _LONGEST_TICKS, 1.0))))
    order = np.lexsort((-length_ns, begin_ns, lane))
    begin_ns, length_ns = begin_ns[order], length_ns[order]
    lane, kind, index = lane[order], kind[order], index[order]
    spans = np.zeros(len(order), SPAN_DTYPE)
    spans["begin_ticks"] = np.rint(begin_ns / tick_ns[lane])
    spans["duration_ticks"] = np.rint(length_ns / tick_ns[lane])
    spans["lane"] = lane
    spans["kind"] = kind
    in_lane = np.arange(len(order)) - np.searchsorted(lane, lane)
    spans["index"] = np.where(index >= 0, index, in_lane)
    lanes = np.zeros(count, LANE_DTYPE)
    lanes["lane"] = np.arange(count)
    lanes["tick_end"] = np.ceil(((begin_ns + length_ns).max() + 1) / tick_ns)
    lanes["timer_end_ns"] = lanes["tick_end"] * tick_ns
    lanes["recorded"] = lanes["issued"] = np.bincount(lane, minlength=count)
    return SpanTable(spans, lanes)
