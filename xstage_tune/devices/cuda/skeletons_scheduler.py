"""What the scheduler of ``kernels/megamoe`` is given: a few numbers per expert and per instance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.configs.static_schedules import LAG_UNIT_ROWS, clamped_lag_units
from xstage_tune.devices.simulator.megamoe_order import (
    Alternating,
    ClampedLag,
    ExpertWave,
    Interleaved,
    alternating_warmup,
)
from xstage_tune.devices.skeletons import MoeScheduling

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
class SchedulerTables:
    """The parameters without their pointers, and what those point to.

    Args:
        tokens_per_expert: ``[experts]``.
        first_row: ``[experts + 1]``.
        weights: ``[2, instances]`` of Linear-1 and Linear-2; None for plain strides.
    """

    parameters: NDArray[np.void]
    tokens_per_expert: NDArray[np.uint32]
    first_row: NDArray[np.uint32]
    weights: NDArray[np.uint8] | None


def scheduler_tables(scheduling: MoeScheduling) -> SchedulerTables:
    """The scheduler's view of a layer."""
    grid, placement = scheduling.grid, scheduling.placement
    parameters = np.zeros(1, SCHEDULER_PARAMETERS)
    parameters["experts"] = len(grid.tokens_per_expert)
    parameters["block_m"] = grid.block_m
    parameters["l1_groups"] = grid.l1_groups
    parameters["l2_groups"] = grid.l2_groups
    parameters["instances"] = grid.instances
    parameters["cta_group"] = grid.cta_group
    parameters["schedule"] = _SCHEDULE_NUMBER[type(scheduling.schedule)]
    parameters["parameter"] = _parameter(scheduling)
    weights = None
    if placement is not None:
        weights = np.array([placement.l1_weights, placement.l2_weights], np.uint8)
    return SchedulerTables(
        parameters=parameters,
        tokens_per_expert=np.array(grid.tokens_per_expert, np.uint32),
        first_row=grid.first_row.astype(np.uint32),
        weights=weights,
    )


def _parameter(scheduling: MoeScheduling) -> int:
    schedule = scheduling.schedule
    if isinstance(schedule, ExpertWave):
        return schedule.experts
    if isinstance(schedule, Interleaved):
        return schedule.lead_rows
    if isinstance(schedule, Alternating):
        return alternating_warmup(scheduling.grid, schedule, scheduling.placement)
    return clamped_lag_units(int((-(-scheduling.grid.rows_per_expert // LAG_UNIT_ROWS)).sum()))
