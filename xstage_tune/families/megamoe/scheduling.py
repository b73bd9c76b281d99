"""What the scheduler of ``kernels/megamoe`` is given: a few numbers per expert and per instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.errors import UsageError
from xstage_tune.families.megamoe.order import (
    LINEAR1,
    LINEAR2,
    Alternating,
    ClampedLag,
    ExpertWave,
    Interleaved,
    MoeGrid,
    MoeOrder,
    Schedule,
    alternating_warmup,
    megamoe_order,
)
from xstage_tune.families.megamoe.placement import Placement
from xstage_tune.families.megamoe.static_schedules import LAG_UNIT_ROWS, clamped_lag_units
from xstage_tune.launches.skeletons import SchedulerTables
from xstage_tune.launches.streams import NO_COUNTER, Streams

#: The struct of ``kernels/megamoe/scheduler.cuh``.
SCHEDULER_PARAMETERS = np.dtype(
    [
        ("tokens_per_expert", "<u8"),
        ("first_row", "<u8"),
        ("l1_weights", "<u8"),
        ("l2_weights", "<u8"),
        ("experts", "<u4"),
        ("block_m", "<u4"),
        ("l1_groups", "<u4"),
        ("l2_groups", "<u4"),
        ("instances", "<u4"),
        ("cta_group", "<u4"),
        ("schedule", "<u4"),
        ("parameter", "<u4"),
    ]
)
_SCHEDULE_NUMBER = {ExpertWave: 0, Interleaved: 1, Alternating: 2, ClampedLag: 3}


@dataclass(frozen=True, slots=True)
class MoeScheduling:
    """What the scheduler on the device needs to find a MegaMoE layer's tiles by itself.

    See :class:`~xstage_tune.launches.skeletons.TileScheduling`.
    """

    grid: MoeGrid
    schedule: Schedule
    placement: Placement | None = None

    def require_streams(self, streams: Streams) -> None:
        """Refuse streams that another order, or other counters than the rows', made."""
        order = self._order()
        linear1, linear2 = order.layer == LINEAR1, order.layer == LINEAR2
        same = np.array_equal(order.first, streams.first)
        if same and streams.counters:
            same = streams.counters == self.grid.rows
            same &= np.array_equal(streams.waits_on, np.where(linear2, order.row, NO_COUNTER))
            same &= np.array_equal(streams.signals, np.where(linear1, order.row, NO_COUNTER))
        if not same:
            raise UsageError(
                "the streams are not those of the scheduling: the scheduler on the device would take other "
                "tiles, or wait on other counters",
                "make them with megamoe_order and megamoe_streams, without a ring",
            )

    def order_checks(self) -> NDArray[np.uint64]:
        """``[lanes]`` the sums that MegaMoeTiles makes of its tiles, modulo 2^64."""
        grid, order = self.grid, self._order()
        columns = grid.cta_group * max(grid.l1_groups, grid.l2_groups)
        number = (order.row * columns + order.n_tile) * 2 + (order.layer == LINEAR2)
        lane = np.repeat(np.arange(grid.sms), np.diff(order.first))
        place = np.arange(number.size) - order.first[lane]
        sums = np.zeros(grid.sms, np.uint64)
        np.add.at(sums, lane, ((number + 1) * (place + 1)).astype(np.uint64))
        return sums

    def tables(self) -> SchedulerTables:
        """The layer as :data:`SCHEDULER_PARAMETERS`, with the arrays that it points to."""
        grid, placement = self.grid, self.placement
        parameters = np.zeros(1, SCHEDULER_PARAMETERS)
        parameters["experts"] = len(grid.tokens_per_expert)
        parameters["block_m"] = grid.block_m
        parameters["l1_groups"] = grid.l1_groups
        parameters["l2_groups"] = grid.l2_groups
        parameters["instances"] = grid.instances
        parameters["cta_group"] = grid.cta_group
        parameters["schedule"] = _SCHEDULE_NUMBER[type(self.schedule)]
        parameters["parameter"] = _parameter(self)
        arrays: dict[str, NDArray[Any]] = {
            "tokens_per_expert": np.array(grid.tokens_per_expert, np.uint32),
            "first_row": grid.first_row.astype(np.uint32),
        }
        if placement is not None:
            arrays["l1_weights"] = np.array(placement.l1_weights, np.uint8)
            arrays["l2_weights"] = np.array(placement.l2_weights, np.uint8)
        return SchedulerTables(parameters, arrays, experts=len(grid.tokens_per_expert))

    def _order(self) -> MoeOrder:
        return megamoe_order(self.grid, self.schedule, self.placement)


def _parameter(scheduling: MoeScheduling) -> int:
    schedule = scheduling.schedule
    if isinstance(schedule, ExpertWave):
        return schedule.experts
    if isinstance(schedule, Interleaved):
        return schedule.lead_rows
    if isinstance(schedule, Alternating):
        return alternating_warmup(scheduling.grid, schedule, scheduling.placement)
    return clamped_lag_units(int((-(-scheduling.grid.rows_per_expert // LAG_UNIT_ROWS)).sum()))
