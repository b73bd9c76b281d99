"""Spans of a MoE launch by layer: mainloops, waits, and the issue of Combine (T_RS)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.spans import SpanKind, SpanTable
from xstage_tune.families.megamoe.order import LINEAR1, LINEAR2

Floats = NDArray[np.float64]

#: Lanes of a CTA: its two consumers, then their storers.
CONSUMERS = 2
LANES = 2 * CONSUMERS
LANE_NAMES = tuple(f"{role} {number}" for role in ("consumer", "storer") for number in range(CONSUMERS))


@dataclass(frozen=True, slots=True)
class MoeSpans:
    """What the spans of one launch say, each in ns, of all tiles that were kept.

    A tile is computed by two consumers, each with its part; its spans are theirs.

    Args:
        l1_ns, l2_ns: ``[n]`` mainloops of Linear-1 and Linear-2 parts (T_L1, T_L2).
        issue_ns: ``[n]`` T_RS of Linear-2 parts: until the SM has passed their stores on.
        slot_wait_ns: ``[n]`` waits for a staging slot, of parts of both layers.
        operand_wait_ns: ``[n]`` waits for the first operands, which is where a row that is not ready shows.
        stall_ns: both waits together, mean over the SMs of a launch.
        launch_ns: from the first lane's begin to the last one's end.
    """

    l1_ns: Floats
    l2_ns: Floats
    issue_ns: Floats
    slot_wait_ns: Floats
    operand_wait_ns: Floats
    stall_ns: float
    launch_ns: float


def moe_spans(table: SpanTable) -> MoeSpans:
    """The spans of a launch, whose index is twice the tile's number on its CTA, 1 more of Linear-2."""
    spans, duration_ns = table.spans, table.duration_ns()
    layer = np.where(spans["index"] % 2 == 1, LINEAR2, LINEAR1)

    def of(kind: SpanKind, only: int | None = None) -> Floats:
        chosen = spans["kind"] == kind
        if only is not None:
            chosen &= layer == only
        chosen_ns: Floats = duration_ns[chosen]
        return chosen_ns

    slot_wait_ns, operand_wait_ns = of(SpanKind.STAGING_STALL), of(SpanKind.DEPENDENCY_WAIT)
    computing = max(1, len(table.lanes) // LANES * CONSUMERS)
    lanes = table.lanes
    return MoeSpans(
        l1_ns=of(SpanKind.MAINLOOP, LINEAR1),
        l2_ns=of(SpanKind.MAINLOOP, LINEAR2),
        issue_ns=of(SpanKind.ISSUE),
        slot_wait_ns=slot_wait_ns,
        operand_wait_ns=operand_wait_ns,
        stall_ns=float(slot_wait_ns.sum() + operand_wait_ns.sum()) / computing,
        launch_ns=float(lanes["timer_end_ns"].max() - lanes["timer_begin_ns"].min()),
    )
