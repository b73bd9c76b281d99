"""A device that looks like a GPU to everything above the seam, for profiles of MoE layers."""

from __future__ import annotations

import numpy as np

from tests.profiling.gpu import ScriptedProfiles, lanes
from xstage_tune.base.spans import SPAN_DTYPE, SpanKind, SpanTable
from xstage_tune.families.megamoe.span_figures import layer_spans
from xstage_tune.families.megamoe.spans import CONSUMERS, LANES
from xstage_tune.families.megamoe.timing import (
    AT_ONCE,
    LAYERS,
    LOCAL,
    PRODUCTS,
    RECORDING,
    SERIAL,
    LayerLaunch,
    LayerOutcome,
)
from xstage_tune.families.profiled import CheckFigures, ReplayFigures
from xstage_tune.launches.device import Outcome, Verification

#: 768 rows an expert on two experts: few tiles.
SMALL = (
    "--workload", "megamoe/hy3-preview", "--set", "experts=16", "--set", "tokens_per_rank=192",
    "--set", "hidden=1024", "--set", "intermediate=512", "--set", "remote_fraction=0.25",
)  # fmt: skip
#: What an implementation takes, by how its name begins.
TIMES_US = {"wave": 120.0, "interleaved": 100.0, "alternating": 105.0, "clamped-lag": 110.0}
L1_NS, L2_NS, OPERAND_NS = 9000, 5000, 100
#: T_RS of a Linear-2 part, at once and as it runs, and of stores that stay local.
AT_ONCE_NS, PACED_NS, LOCAL_NS = 7000, 4500, 600
CTAS = 4


def time_us(implementation: str) -> float:
    """Of an implementation; the serial layer takes twice the products."""
    if implementation == LOCAL:
        return 98.0
    if implementation in (PRODUCTS, SERIAL):
        return 80.0 if implementation == PRODUCTS else 160.0
    time = next(us for kind, us in TIMES_US.items() if implementation.startswith(kind))
    return time * (1.01 if implementation.endswith(RECORDING) else 1.0)


def spans_of(implementation: str, ctas: int = CTAS) -> SpanTable:
    """Two tiles of Linear-1, then two of Linear-2, over and over, on every CTA; one slot.

    A Linear-2 part is followed by another or by one of Linear-1, and its stores hold the slot for T_RS from
    the part's end on.
    """
    issue_ns = LOCAL_NS if implementation == LOCAL else AT_ONCE_NS if AT_ONCE in implementation else PACED_NS
    rows = []
    for cta in range(ctas):
        for consumer in range(CONSUMERS):
            lane, at, free_at = LANES * cta + consumer, 50 * consumer, 0
            for tile in range(8):
                linear2 = tile // 2 % 2
                index = 2 * tile + linear2
                for kind, length in (
                    (SpanKind.DEPENDENCY_WAIT, OPERAND_NS),
                    (SpanKind.MAINLOOP, L2_NS if linear2 else L1_NS),
                ):
                    rows.append((at, length, index, lane, kind, consumer))
                    at += length
                stall = max(0, free_at - at)
                rows.append((at, stall, index, lane, SpanKind.STAGING_STALL, consumer))
                at += stall
                if linear2:
                    storer = lane + CONSUMERS
                    rows.append((at, issue_ns, index, storer, SpanKind.ISSUE, CONSUMERS + consumer))
                    free_at = at + issue_ns
    spans = np.array(rows, SPAN_DTYPE)
    spans = spans[np.lexsort((spans["begin_ticks"], spans["lane"]))]
    table = lanes(ctas * LANES, int((spans["begin_ticks"] + spans["duration_ticks"]).max()))
    table["recorded"] = np.bincount(spans["lane"], minlength=ctas * LANES)
    return SpanTable(spans, table)


class ScriptedLayers(ScriptedProfiles):
    """An H200 whose implementations take :func:`time_us`."""

    kinds = (LAYERS.name,)

    def _check(self, launch: LayerLaunch) -> LayerOutcome:  # type: ignore[override]
        place = "slot 3 of rank 1 differs" if launch.implementation == self.wrong else ""
        found = Verification(4096, 256 if place else 0)
        return Outcome(launch, CheckFigures(0.003, place), self._info(launch), found)

    def _replay(self, launch: LayerLaunch) -> LayerOutcome:  # type: ignore[override]
        if launch.place == 0:
            self.in_turn.append(launch.in_turn)
        self._replays += 1
        time_ns = 1e3 * time_us(launch.implementation) + self._replays % 7
        return Outcome(launch, ReplayFigures(launches=40, time_ns=time_ns), self._info(launch))

    def _record(self, launch: LayerLaunch) -> LayerOutcome:  # type: ignore[override]
        table = spans_of(launch.implementation)
        return Outcome(launch, layer_spans(table, 1), self._info(launch), table=table)
