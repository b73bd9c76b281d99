"""Wave or interleaved for the routing at hand, in closed form (section 6.3 of the X-Stage paper).

The stall that interleaving saves is weighed against the cache locality that it costs.

Stall: that of finite runs (:mod:`xstage_tune.model.finite_run`). Under the wave schedule a run is what one
wave gives an SM, with G = T_L2, behind the wave's Linear-1, in which the path drains. Interleaved it is all
of an SM's Linear-2 tiles, with G = T_L2 + (n1/n2)*T_L1, and then a tail of D rows without Linear-1. Where
Linear-1 gives way to Linear-2, after each wave or once before the tail, SMs also wait for the last row's
Linear-1 output, unless the rows before it keep them busy.

Locality: an expert's weight tile is loaded again in each later step of the expert with the probability
that it has left the cache (:mod:`xstage_tune.model.locality`). The working set is the weights of the experts
in a step and the Linear-1 outputs in flight; interleaving has both layers' weights in it. What of a step's
loads does not fit behind its mainloop is exposed.

A difference below 2% of the mainloops is a tie, which the schedule that the search chose decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xstage_tune.base.errors import UsageError
from xstage_tune.export.record import TunedConfig
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule, ScheduleKind
from xstage_tune.families.megamoe.schedule_model import ScheduleModel
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.model import locality
from xstage_tune.model.burst_gap import drain_ns
from xstage_tune.model.finite_run import run_stall_ns
from xstage_tune.model.moe import interleaved_gap_ns

Floats = NDArray[np.float64]

#: About how far the closed form's difference is from the simulated one.
_TIE_FRACTION = 0.02


@dataclass(frozen=True, slots=True)
class WeighedSchedule:
    """A schedule, and the two costs that decided; both are predicted."""

    schedule: Schedule
    stall_saved_ns: float  # of the Tensor Cores by interleaving, for each SM
    locality_cost_ns: float  # of interleaving over the wave schedule


@dataclass(frozen=True, slots=True)
class _Load:
    """What a rank's tokens make of the model's full tiles."""

    rows: NDArray[np.int64]  # of each local expert
    total_rows: int
    rows_per_expert: float  # of those with tokens
    drain_ns: float  # V/R
    fill_ns: float  # Q/R
    l1_ns: float
    l2_ns: float
    slots: int

    def mainloop_ns(self, model: ScheduleModel) -> float:
        """All mainloops of an SM."""
        row_ns = model.l1_tiles * self.l1_ns + model.l2_tiles * self.l2_ns
        return self.total_rows * row_ns / model.sms


def choose(tuned: TunedConfig, tokens_per_local_expert: ArrayLike) -> WeighedSchedule:
    """Choose for one rank's tokens.

    Raises:
        UsageError: the export is of no MoE layer, or the tokens do not fit it.
    """
    model = tuned.schedule_model
    config, layer = cast(MegaMoeConfig, tuned.config), cast(MoeWorkload, tuned.workload)
    if model is None:
        raise UsageError(f"the export of '{layer.name}' is of no MoE layer, so has no schedule")
    tokens = whole_tokens(tokens_per_local_expert)
    if tokens.size != layer.local_experts:
        raise UsageError(
            f"tokens_per_expert has {tokens.size} entries; a rank of '{layer.name}' has {layer.local_experts}"
        )
    load = _load(model, config, tokens)
    saved = _wave_stall_ns(model, load) - _interleaved_stall_ns(model, load)
    cost = _interleaved_exposed_ns(model, load) - _wave_exposed_ns(model, load)
    placement = config.schedule.placement
    if _interleave(saved - cost, load.mainloop_ns(model), config.schedule.kind):
        schedule = Schedule(kind="interleaved", lead_rows=model.lead_rows, placement=placement)
    else:
        schedule = Schedule(kind="wave", experts_per_wave=model.experts_per_wave, placement=placement)
    return WeighedSchedule(schedule, saved, cost)


def _interleave(gain_ns: float, mainloop_ns: float, tuned_kind: ScheduleKind) -> bool:
    if abs(gain_ns) <= _TIE_FRACTION * mainloop_ns:
        return tuned_kind != "wave"
    return gain_ns > 0


def whole_tokens(tokens: ArrayLike) -> NDArray[np.int64]:
    """Tokens of experts as integers.

    Raises:
        UsageError: they are no list of whole numbers, or one is negative.
    """
    array = np.asarray(tokens)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UsageError("tokens_per_expert must be a list of whole numbers, one for each local expert")
    if array.min(initial=0) < 0:
        raise UsageError(f"tokens_per_expert[{int(array.argmin())}] = {int(array.min())} is negative")
    return array.astype(np.int64)


def _load(model: ScheduleModel, config: MegaMoeConfig, tokens: NDArray[np.int64]) -> _Load:
    rows = -(-tokens // config.block_m)
    total_rows = int(rows.sum())
    rows_per_expert = total_rows / max(1, int(np.count_nonzero(rows)))
    # Partial tiles store less and compute less; a tile never takes less than its share of weight loads.
    fill = float(tokens.sum()) / max(1, total_rows * config.block_m)

    def tile_ns(mainloop_ns: float, weight_tile_bytes: float) -> float:
        loads_ns = locality.tile_load_ns(
            weight_tile_bytes=weight_tile_bytes,
            rows=max(1.0, rows_per_expert),
            sms=model.sms,
            memory_bytes_per_s=model.memory_bytes_per_s,
        )
        return max(mainloop_ns * fill, float(loads_ns))

    return _Load(
        rows=rows,
        total_rows=total_rows,
        rows_per_expert=max(1.0, rows_per_expert),
        drain_ns=_drain_ns(model, model.sms * model.tile_bytes * fill),
        fill_ns=_drain_ns(model, model.capacity_bytes),
        l1_ns=tile_ns(model.l1_mainloop_ns, model.l1_weight_tile_bytes),
        l2_ns=tile_ns(model.l2_mainloop_ns, model.l2_weight_tile_bytes),
        slots=config.staging_depth,
    )


def _wave_stall_ns(model: ScheduleModel, load: _Load) -> float:
    """The runs of all waves, and the waits between a wave's Linear-1 and its Linear-2."""
    first = np.arange(0, load.rows.size, model.experts_per_wave)
    rows = np.add.reduceat(load.rows, first)
    rows = rows[rows > 0]
    drained_ns = rows * (model.l1_tiles / model.sms * load.l1_ns)
    room_ns = np.minimum(load.fill_ns, drained_ns)
    stall_ns = _run_stall_ns(model, load, rows, load.l2_ns, room_ns)
    return float((stall_ns + _wait_ns(model, load, rows)).sum())


def _interleaved_stall_ns(model: ScheduleModel, load: _Load) -> float:
    """The mixed run, and the tail of the last rows with its wait."""
    gap_ns = interleaved_gap_ns(
        l1_mainloop_ns=load.l1_ns,
        l2_mainloop_ns=load.l2_ns,
        l1_tiles=model.l1_tiles,
        l2_tiles=model.l2_tiles,
    )
    rows = np.array([load.total_rows])
    tail = np.minimum(rows, model.lead_rows)
    mixed = _run_stall_ns(model, load, rows - tail, gap_ns, load.fill_ns)
    alone = _run_stall_ns(model, load, tail, load.l2_ns, load.fill_ns)
    return float((mixed + alone + _wait_ns(model, load, tail)).sum())


def _run_stall_ns(
    model: ScheduleModel,
    load: _Load,
    rows: NDArray[np.int64],
    gap_ns: Floats | float,
    room_ns: Floats | float,
) -> Floats:
    """Of runs of the Linear-2 tiles of ``rows`` rows, on the SM that gets most of them."""
    return run_stall_ns(
        tiles=np.ceil(rows * (model.l2_tiles / model.sms)),
        slots=load.slots,
        gap_ns=gap_ns,
        span_ns=0.0,  # an export does not know it
        drain_ns=load.drain_ns,
        room_ns=room_ns,
    )


def _wait_ns(model: ScheduleModel, load: _Load, rows: NDArray[np.int64]) -> Floats:
    """Until the last of ``rows`` rows can be read, less the work on the rows before it."""
    row_ns = min(model.l1_tiles * load.l1_ns, model.l2_tiles * load.l2_ns) / model.sms
    wait: Floats = np.maximum(load.l1_ns + model.l1_handover_ns - (rows - 1) * row_ns, 0.0)
    return wait * (rows > 0)


def _drain_ns(model: ScheduleModel, volume_bytes: float) -> float:
    return float(drain_ns(volume_bytes=volume_bytes, drain_bytes_per_s=model.drain_bytes_per_s))


def _wave_exposed_ns(model: ScheduleModel, load: _Load) -> float:
    """Loads that the mainloops of a layer by itself do not hide."""
    in_flight = load.rows_per_expert * model.experts_per_wave * model.row_output_bytes
    return sum(
        _exposed_ns(
            model,
            load,
            tiles,
            weights,
            mainloop_ns,
            float(model.sms),
            _layer_bytes(load, tiles, weights, float(model.sms)) + in_flight,
        )
        for tiles, weights, mainloop_ns in _layers(model, load)
    )


def _interleaved_exposed_ns(model: ScheduleModel, load: _Load) -> float:
    """Loads that the mixed mainloops do not hide: both layers' weights compete for the cache."""
    cycle = model.l1_tiles + model.l2_tiles
    layers = [
        (tiles, weights, mainloop_ns, model.sms * tiles / cycle)
        for tiles, weights, mainloop_ns in _layers(model, load)
    ]
    working_set = model.lead_rows * model.row_output_bytes + sum(
        _layer_bytes(load, tiles, weights, share) for tiles, weights, _, share in layers
    )
    return sum(_exposed_ns(model, load, *layer, working_set) for layer in layers)


def _layers(model: ScheduleModel, load: _Load) -> tuple[tuple[int, float, float], ...]:
    """(N-tiles of a row, bytes of a weight tile, mainloop) of both layers."""
    return (
        (model.l1_tiles, model.l1_weight_tile_bytes, load.l1_ns),
        (model.l2_tiles, model.l2_weight_tile_bytes, load.l2_ns),
    )


def _layer_bytes(load: _Load, tiles: int, weight_tile_bytes: float, step_tiles: float) -> float:
    """Weights of one layer of the experts in a step of ``step_tiles`` tiles."""
    experts = max(1.0, step_tiles / (tiles * load.rows_per_expert))
    return experts * tiles * weight_tile_bytes


def _exposed_ns(
    model: ScheduleModel,
    load: _Load,
    tiles: int,
    weight_tile_bytes: float,
    mainloop_ns: float,
    step_tiles: float,
    working_set: float,
) -> float:
    lost = locality.lost_fraction(cache_bytes=model.cache_bytes, working_set_bytes=working_set)
    read = locality.distinct_weight_tiles(step_tiles=step_tiles, row_tiles=tiles, rows=load.rows_per_expert)
    per_step = locality.exposed_load_ns(
        loaded_bytes=read * weight_tile_bytes * lost,
        memory_bytes_per_s=model.memory_bytes_per_s,
        mainloop_ns=mainloop_ns,
    )
    return float(per_step) * load.total_rows * tiles / step_tiles
