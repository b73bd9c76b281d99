"""What the spans of a profiled MoE launch come to: distributions, stalls beside equation 15, activity."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.activity import Series, activity, merged
from xstage_tune.base.spans import SpanKind, SpanTable
from xstage_tune.families.megamoe.spans import CONSUMERS, LANES, moe_spans
from xstage_tune.families.megamoe.timing import LayerSpans
from xstage_tune.families.profiled import distribution
from xstage_tune.model.moe import critical_path_stall_ns

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class PartStalls(NamedTuple):
    """Linear-2 parts after which their slot was asked for again, ``[n]`` each, in ns.

    Args:
        issue_ns: T_RS.
        cover_ns: T_cover, mainloops and waits for operands from then on until the slot was asked for.
        stall_ns: how long it was waited for.
    """

    issue_ns: Floats
    cover_ns: Floats
    stall_ns: Floats

    @property
    def expected_ns(self) -> Floats:
        """Equation 15."""
        return np.asarray(critical_path_stall_ns(span_ns=self.issue_ns, cover_ns=self.cover_ns), np.float64)


def layer_spans(table: SpanTable, slots: int) -> LayerSpans:
    """The figures of a launch.

    Args:
        slots: S, staging slots of a consumer.
    """
    spans, stalls = moe_spans(table), part_stalls(table, slots)
    begin_ns, end_ns = _active(table)
    return LayerSpans(
        launch_ns=spans.launch_ns,
        parts=spans.l1_ns.size + spans.l2_ns.size,
        dropped=table.dropped(),
        l1=distribution(spans.l1_ns),
        l2=distribution(spans.l2_ns),
        operand_wait=distribution(spans.operand_wait_ns),
        slot_wait=distribution(spans.slot_wait_ns),
        issue=distribution(spans.issue_ns),
        expected_stall=distribution(stalls.expected_ns),
        stall=distribution(stalls.stall_ns),
        stall_ns=spans.stall_ns,
        active=float((end_ns - begin_ns).sum() / (spans.launch_ns * max(1, _recorded_ctas(table)))),
    )


def part_stalls(table: SpanTable, slots: int) -> PartStalls:
    """Each Linear-2 part with the wait for the slot that its stores held, ``slots`` parts later."""
    spans, duration_ns = table.spans, table.duration_ns()
    ctas = len(table.lanes) // LANES
    parts = 1 + int(spans["index"].max(initial=0)) // 2

    def grid_of(kind: SpanKind) -> Floats:
        """``[CTAs * consumers, parts]``; a storer's spans are its consumer's."""
        grid = np.full((ctas * CONSUMERS, parts), np.nan)
        chosen = spans["kind"] == kind
        lane = spans["lane"][chosen].astype(np.int64)
        consumer = lane // LANES * CONSUMERS + lane % LANES % CONSUMERS
        grid[consumer, spans["index"][chosen] // 2] = duration_ns[chosen]
        return grid

    issue_ns, slot_ns = grid_of(SpanKind.ISSUE), grid_of(SpanKind.STAGING_STALL)
    busy_ns = grid_of(SpanKind.MAINLOOP) + grid_of(SpanKind.DEPENDENCY_WAIT)
    later = max(0, parts - slots)
    cover_ns = np.sum([busy_ns[:, step : step + later] for step in range(1, slots + 1)], axis=0)
    issue_ns, stall_ns = issue_ns[:, :later], slot_ns[:, slots : slots + later]
    whole = np.isfinite(issue_ns + cover_ns + stall_ns)
    return PartStalls(issue_ns[whole], cover_ns[whole], stall_ns[whole])


def tensor_activity(table: SpanTable, bins: int) -> Series:
    """Fraction of the SMs of which a mainloop runs, over each of ``bins`` equal parts of the launch.

    Waits inside a mainloop, for operands that come late, count as running.
    """
    begin_ns, end_ns = _active(table)
    until_ns = moe_spans(table).launch_ns
    return activity(begin_ns, end_ns, until_ns=until_ns, lanes=max(1, _recorded_ctas(table)), bins=bins)


class RoleTable(NamedTuple):
    """Spans as those of a skeleton are told: lanes are SMs, roles who computes and who stores.

    Args:
        first: ``[SMs + 1]`` where each SM's tiles begin.
        linear2: ``[n]`` whether a tile is of Linear-2.
    """

    table: SpanTable
    first: Ints
    linear2: NDArray[np.bool_]


def first_consumers(table: SpanTable) -> RoleTable:
    """The spans of each CTA's first consumer and its storer."""
    spans = table.spans
    chosen = spans[spans["lane"] % CONSUMERS == 0].copy()
    index = chosen["index"].astype(np.int64)
    of_storer = chosen["lane"] % LANES >= CONSUMERS
    chosen["lane"] //= LANES
    chosen["role"], chosen["index"] = of_storer, index // 2
    tiles = np.zeros(len(table.lanes) // LANES, np.int64)
    np.maximum.at(tiles, chosen["lane"], 1 + index // 2)
    first = np.concatenate(([0], np.cumsum(tiles)))
    linear2 = np.zeros(int(first[-1]), np.bool_)
    linear2[first[chosen["lane"]] + index // 2] = index % 2 == 1
    return RoleTable(SpanTable(chosen, table.lanes[::LANES]), first, linear2)


def _active(table: SpanTable) -> tuple[Floats, Floats]:
    """When a mainloop runs on a CTA, of either consumer."""
    loops = table.spans["kind"] == SpanKind.MAINLOOP
    cta = table.spans["lane"][loops].astype(np.int64) // LANES
    return merged(cta, table.begin_ns()[loops], table.end_ns()[loops])


def _recorded_ctas(table: SpanTable) -> int:
    """CTAs whose spans were kept."""
    return int((table.lanes["recorded"].reshape(-1, LANES).sum(axis=1) > 0).sum())
