"""From what a skeleton recorded to spans and totals in ns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import DeviceError, FindingError
from xstage_tune.base.spans import LANE_DTYPE, SPAN_DTYPE, SpanKind, SpanTable
from xstage_tune.cuda.skeletons_layout import LANE_TOTALS, TILE_MOMENTS
from xstage_tune.cuda.skeletons_plan import LaunchPlan
from xstage_tune.launches.skeleton_figures import LANE_TOTALS_DTYPE
from xstage_tune.launches.streams import Ints

MAINLOOP_ROLE = 0
ISSUE_ROLE = 1

_ROLES = ("loader role", "mainloop role", "issue role", "signal role")
_WAITS = {
    2: "counter {subject} to reach {expected}",
    3: "entry {subject} of its queue to hold tile {expected}, counted from 1",
    4: "staging slot {subject} to be freed {expected} times",
    5: "staging slot {subject} to be filled {expected} times",
    6: "staging slot {subject} of the tile before to be freed {expected} times",
}
_ARRIVAL = 1


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a launch left in the GPU's memory.

    Args:
        start_ns: the common start on the global timer.
        lanes: ``[lanes]`` of LANE_DTYPE.
        totals: ``[lanes]`` of LANE_TOTALS.
        moments: ``[lanes, most_kept]`` of TILE_MOMENTS.
    """

    start_ns: int
    lanes: NDArray[np.void]
    totals: NDArray[np.void]
    moments: NDArray[np.void]


def empty_record(plan: LaunchPlan, start_ns: int) -> Recorded:
    """Room for what a launch records."""
    return Recorded(
        start_ns=start_ns,
        lanes=np.zeros(plan.lanes, LANE_DTYPE),
        totals=np.zeros(plan.lanes, LANE_TOTALS),
        moments=np.zeros((plan.lanes, plan.most_kept), TILE_MOMENTS),
    )


def raise_fault(fault: NDArray[np.void], plan: LaunchPlan) -> None:
    """Report the wait that ran out, if one did.

    Raises:
        DeviceError: names CTA, role, tile, what was expected and what was seen.
    """
    if not fault["raised"]:
        return
    label = plan.skeleton.label
    if fault["wait"] == _ARRIVAL:
        raise DeviceError(
            f"{label}: CTA {fault['lane']} waited for {fault['expected']} CTAs to start, and saw "
            f"{fault['seen']}",
            "another process may hold SMs of this GPU (nvidia-smi shows it)",
        )
    waited = _WAITS[int(fault["wait"])].format(subject=fault["subject"], expected=fault["expected"])
    raise DeviceError(
        f"{label}: CTA {fault['lane']} (SM {plan.sm_ids[fault['lane']]}), {_ROLES[int(fault['role'])]}, tile "
        f"{fault['tile']}: waited for {waited}, and saw {fault['seen']}",
        "a tile may come before one that it depends on, or the path may hang",
    )


def require_order(recorded: Recorded, plan: LaunchPlan) -> None:
    """Compare the order that the scheduler on the device took with the streams'.

    Raises:
        FindingError: a lane took another.
    """
    if plan.order_check is None:
        return
    other = np.flatnonzero(recorded.totals["order_check"] != plan.order_check)
    if other.size:
        raise FindingError(
            f"{plan.skeleton.label}: the scheduler on the device took other tiles than expected on "
            f"{other.size} of {plan.lanes} CTAs, the first being CTA {other[0]}",
            "the kernels and this version of xstage-tune do not belong together",
        )


def span_table(recorded: Recorded, plan: LaunchPlan) -> SpanTable:
    """Spans of the kept tiles."""
    kept = plan.kept
    lane, place = plan.lane_of_tile[kept], plan.place_of_tile[kept]
    count = np.bincount(lane, minlength=plan.lanes)
    row = np.arange(lane.size) - np.repeat(np.cumsum(count) - count, count)
    moments = recorded.moments[lane, row]
    wanted = moments["begin"] + plan.plans["slot_offset_cycles"][kept]
    edges = (
        (moments["ready"], moments["begin"], SpanKind.DEPENDENCY_WAIT, MAINLOOP_ROLE),
        (moments["begin"], wanted, SpanKind.MAINLOOP, MAINLOOP_ROLE),
        (wanted, moments["taken"], SpanKind.STAGING_STALL, MAINLOOP_ROLE),
        (moments["taken"], moments["end"], SpanKind.MAINLOOP, MAINLOOP_ROLE),
        (moments["issue"], moments["accepted"], SpanKind.ISSUE, ISSUE_ROLE),
    )
    spans = np.concatenate([_spans(lane, place, *edge) for edge in edges])
    spans = spans[np.lexsort((spans["begin_ticks"], spans["lane"]))]
    lanes = recorded.lanes.copy()
    lanes["recorded"] = np.bincount(spans["lane"], minlength=plan.lanes)
    return SpanTable(spans, lanes)


def _spans(
    lane: Ints, place: Ints, begin: NDArray[np.uint32], end: NDArray[np.uint32], kind: SpanKind, role: int
) -> NDArray[np.void]:
    """Those of one kind that took any time."""
    some = end > begin
    spans = np.empty(int(np.count_nonzero(some)), SPAN_DTYPE)
    spans["begin_ticks"] = begin[some]
    spans["duration_ticks"] = (end - begin)[some]
    spans["index"] = place[some]
    spans["lane"] = lane[some]
    spans["kind"] = kind
    spans["role"] = role
    return spans


def lane_totals(recorded: Recorded, ns_per_tick: NDArray[np.float64]) -> NDArray[np.void]:
    """``[lanes]`` of LANE_TOTALS_DTYPE."""
    mainloop, storing = recorded.totals["mainloop"], (recorded.totals["issue"], recorded.totals["signal"])
    totals = np.zeros(len(recorded.lanes), LANE_TOTALS_DTYPE)
    for name in ("tiles", "remote_tiles"):
        totals[name] = sum(role[name] for role in storing)
    for name in ("issue", "remote_issue", "completion", "signal"):
        totals[f"{name}_ns"] = sum(role[f"{name}_cycles"] for role in storing) * ns_per_tick
    for name, source in (
        ("mainloop", "mainloop"),
        ("staging_stall", "stall"),
        ("dependency_wait", "dependency"),
    ):
        totals[f"{name}_ns"] = mainloop[f"{source}_cycles"] * ns_per_tick
    finish = np.maximum(*(role["finish_cycle"] for role in storing))
    lanes = recorded.lanes
    after_begin = np.maximum(finish, lanes["tick_begin"]) - lanes["tick_begin"]
    began_ns = lanes["timer_begin_ns"].astype(np.int64) - recorded.start_ns
    totals["finish_ns"] = np.where(finish > 0, began_ns + after_begin * ns_per_tick, 0.0)
    return totals
