"""Expected time of a MegaMoE config: closed forms by schedule, never the simulator.

The steady-state equations (11-14) over-state the stall of real launches, whose Linear-2 runs are finite and
begin on a drained path (:mod:`xstage_tune.model.finite_run`). A launch is a sequence of runs: one a wave,
one a group of the clamped lag, or one at the end for what the lead leaves. With two slots every tile's stores
must be over by the end of the next mainloop (equation 15).
To that come the waits of Linear-2 for rows that Linear-1 has not finished (equation 16's starvation), what
weights from memory add, and the uneven last round.

Where the path limits the whole launch all bytes drain at R, and what counts is when it has nothing to drain:
before the first Linear-2 tile; where a row's stores, the counter behind them and the tiles that wait for it
follow each other; and while SMs compute in step, since loads wait behind stores, so that a mainloop hides
behind them only as far as its operands were loaded ahead.
"""

from __future__ import annotations

from math import ceil, isinf
from typing import assert_never

import numpy as np

from xstage_tune.families.megamoe.config import Schedule
from xstage_tune.families.megamoe.load import Floats, MoeLoad
from xstage_tune.families.megamoe.static_schedules import LAG_GROUP_UNITS, LAG_UNIT_ROWS, clamped_lag_units
from xstage_tune.families.prediction import Prediction
from xstage_tune.model.checks import positive_part
from xstage_tune.model.finite_run import run_stall_ns

#: Part of the mainloops that nothing hides in which all SMs compute at once. Read off 460 simulated launches
#: of DeepSeek-V4-Flash and GLM-4.5 with 2,048 tokens a rank on ``h200-host``.
_IN_STEP = 0.1


def predict_moe(load: MoeLoad, schedule: Schedule) -> Prediction:
    """Expected time of a launch of ``load`` under ``schedule``."""
    if not load.total_rows:
        return Prediction(0.0, 0.0)
    stall_ns = _stall_ns(load, schedule)
    # Where one slot serves all tiles, each waits for the stores of the one before.
    stall_ns += load.issue_ns if load.serial else 0.0
    busy_ns = load.mainloop_ns + load.exposed_weights_ns + _last_round_ns(load, schedule)
    limited_ns = _path_limited_ns(load, schedule) - busy_ns - _storing_ns(load)
    stall_ns = max(stall_ns, limited_ns)
    return Prediction(busy_ns + stall_ns + _storing_ns(load), stall_ns)


def _path_limited_ns(load: MoeLoad, schedule: Schedule) -> float:
    """Expected time of a launch that the path limits; 0 of others, and where loads wait for no stores."""
    linear1, linear2, drain_ns = load.linear1, load.linear2, load.drain_tile_ns
    leaving_ns = load.drained_ns(load.remote_bytes)
    if leaving_ns <= load.mainloop_ns or isinf(load.load_cover_ns):
        return 0.0
    lead = min(_lead_rows(load, schedule), float(load.total_rows))
    lead_tiles = lead * linear1.row_tiles / load.sms
    first_ns = max(1.0, lead_tiles) * linear1.mean_ns + _row_latency_ns(load) - linear1.mean_ns
    # Rows of a lead follow each other no faster than one takes from Linear-1 until its bytes have left.
    row2 = linear2.row_tiles / load.sms
    row_ns = _row_latency_ns(load) + linear2.mean_ns + drain_ns * min(1.0, lead * row2)
    chained_ns = (load.total_rows - lead) * max(0.0, row_ns / lead - row2 * drain_ns)
    uncovered_ns = sum(max(0.0, layer.mean_ns - load.load_cover_ns) for layer in (linear1, linear2))
    return leaving_ns + first_ns + chained_ns + _IN_STEP * load.total_rows * row2 * uncovered_ns


def _lead_rows(load: MoeLoad, schedule: Schedule) -> float:
    """Rows of Linear-1 before their Linear-2: of the lead, of a wave, of the warm-up, of the lag."""
    if schedule.kind == "wave":
        return float(_rows_of_waves(load, schedule.experts_per_wave or 1).mean())
    if schedule.kind == "interleaved":
        return float(schedule.lead_rows or 1)
    if schedule.kind == "alternating":
        return _warmup_tiles(load) * load.sms / load.linear1.row_tiles
    units = int((-(-load.rows // LAG_UNIT_ROWS)).sum())
    return min(units, clamped_lag_units(units)) * load.total_rows / units


def _stall_ns(load: MoeLoad, schedule: Schedule) -> float:
    if schedule.kind == "wave":
        return _wave_stall_ns(load, _rows_of_waves(load, schedule.experts_per_wave or 1))
    if schedule.kind == "interleaved":
        return _interleaved_stall_ns(load, schedule.lead_rows or 1)
    if schedule.kind == "alternating":
        return _alternating_stall_ns(load)
    if schedule.kind == "clamped-lag":
        return _clamped_lag_stall_ns(load)
    assert_never(schedule.kind)


def _wave_stall_ns(load: MoeLoad, rows: Floats) -> float:
    """Runs of ``rows`` rows, ``[runs]``, each Linear-1 first; and the waits where a run is so short that its
    first row is needed before it is done.
    """
    linear1, linear2 = load.linear1, load.linear2
    linear1_ns = rows * linear1.row_tiles / load.sms * linear1.mean_ns
    stall_ns = _linear2_stall_ns(load, rows * linear2.row_tiles / load.sms, linear1_ns)
    # The first row's Linear-2 follows the other rows' Linear-1; the last one's, the other rows' Linear-2.
    other = positive_part(rows - 1) / load.sms
    covered = np.minimum(linear1.row_tiles * linear1.mean_ns, linear2.row_tiles * linear2.mean_ns) * other
    return float((stall_ns + positive_part(_row_latency_ns(load) - covered)).sum())


def _interleaved_stall_ns(load: MoeLoad, lead_rows: int) -> float:
    """Algorithm 1: a steady part, which stalls if equation 14 fails or the lead starves it, and a tail."""
    lead = min(lead_rows, load.total_rows)
    steady_rows = load.total_rows - lead
    row_ns = load.row_ns(load.linear1.mean_ns, load.linear2.mean_ns)
    backpressure_ns = run_stall_ns(
        tiles=steady_rows,
        slots=0,
        gap_ns=row_ns,
        span_ns=load.row_ns(load.linear1.issue_ns, load.linear2.issue_ns),
        drain_ns=load.row_ns(0.0, load.drain_tile_ns),
        room_ns=load.fill_ns,
    )
    # An SM that runs a Linear-2 tile first is later with its Linear-1 tile by as much.
    latency_ns = _row_latency_ns(load) + load.linear2.mean_ns
    starved_ns = steady_rows * max(0.0, latency_ns / lead - row_ns)
    steady_ns = max(float(backpressure_ns), starved_ns, _uncovered_ns(load, steady_rows))
    tail_tiles = lead * load.linear2.row_tiles / load.sms
    return steady_ns + float(_linear2_stall_ns(load, tail_tiles, load.fill_ns))


def _alternating_stall_ns(load: MoeLoad) -> float:
    """Pairs of one tile each, then a tail of what Linear-2 has left."""
    linear1, linear2 = load.linear1, load.linear2
    tiles1 = load.total_rows * linear1.row_tiles / load.sms
    tiles2 = load.total_rows * linear2.row_tiles / load.sms
    pairs = max(0.0, min(tiles1 - _warmup_tiles(load), tiles2))
    backpressure_ns = run_stall_ns(
        tiles=pairs,
        slots=0,
        gap_ns=linear1.mean_ns + linear2.mean_ns,
        span_ns=linear1.issue_ns + linear2.issue_ns,
        drain_ns=load.drain_tile_ns,
        room_ns=load.fill_ns,
    )
    paired_ns = max(float(backpressure_ns), pairs * _uncovered_pair_ns(load))
    return paired_ns + float(_linear2_stall_ns(load, tiles2 - pairs, load.fill_ns))


def _warmup_tiles(load: MoeLoad) -> int:
    """Linear-1 tiles of an SM before the alternating schedule's first Linear-2 tile."""
    surplus = load.total_rows * (load.linear1.row_tiles - load.linear2.row_tiles) / load.sms
    return 1 + ceil(max(0.0, surplus)) + ceil(load.linear1.row_tiles / load.sms)


def _clamped_lag_stall_ns(load: MoeLoad) -> float:
    units = int((-(-load.rows // LAG_UNIT_ROWS)).sum())
    unit_rows = load.total_rows / units
    lag = min(units, clamped_lag_units(units))
    groups = (units - lag) // LAG_GROUP_UNITS
    steady_ns = _wave_stall_ns(load, np.full(groups, LAG_GROUP_UNITS * unit_rows))
    tail_tiles = lag * unit_rows * load.linear2.row_tiles / load.sms
    return steady_ns + float(_linear2_stall_ns(load, tail_tiles, load.fill_ns))


def _uncovered_ns(load: MoeLoad, rows: float) -> float:
    """Equation 15 over ``rows`` rows of both layers mixed: each tile's stores under the next mainloop."""
    linear1, linear2 = load.linear1, load.linear2
    tiles1, tiles2 = (rows * layer.row_tiles / load.sms for layer in (linear1, linear2))
    repeated = linear1 if tiles1 > tiles2 else linear2
    alone_ns = max(0.0, repeated.issue_ns - repeated.mean_ns) if load.slots == 2 else 0.0
    return min(tiles1, tiles2) * _uncovered_pair_ns(load) + abs(tiles1 - tiles2) * alone_ns


def _uncovered_pair_ns(load: MoeLoad) -> float:
    """What a Linear-1 and a Linear-2 tile in turn leave uncovered of each other's stores."""
    if load.slots != 2:
        return 0.0
    linear1, linear2 = load.linear1, load.linear2
    return max(0.0, linear1.issue_ns - linear2.mean_ns) + max(0.0, linear2.issue_ns - linear1.mean_ns)


def _linear2_stall_ns(load: MoeLoad, tiles: Floats | float, drained_ns: Floats | float) -> Floats:
    """Stall of runs of ``tiles`` Linear-2 tiles a SM, after ``drained_ns`` in which the path drained."""
    return run_stall_ns(
        tiles=tiles,
        slots=load.slots,
        gap_ns=load.linear2.mean_ns,
        span_ns=load.linear2.issue_ns,
        drain_ns=load.drain_tile_ns,
        room_ns=np.minimum(load.fill_ns, drained_ns),
    )


def _row_latency_ns(load: MoeLoad) -> float:
    """From the begin of a row's last Linear-1 tile until another SM sees the row complete."""
    linear1, latencies = load.linear1, load.latencies
    return linear1.mean_ns + linear1.issue_ns + latencies.counter.ns + latencies.signal.ns


def _rows_of_waves(load: MoeLoad, experts: int) -> Floats:
    """``[waves]`` rows of each wave that has any."""
    starts = np.arange(0, load.rows.size, experts)
    rows = np.add.reduceat(load.rows, starts).astype(np.float64)
    return rows[rows > 0]


def _last_round_ns(load: MoeLoad, schedule: Schedule) -> float:
    """How much later than the mean the busiest SM is, since tiles come whole."""
    layers = (load.linear1, load.linear2)
    tiles = [load.total_rows * layer.row_tiles / load.sms for layer in layers]
    if schedule.kind in ("wave", "clamped-lag"):  # one merged order is dealt out
        return (ceil(sum(tiles)) - sum(tiles)) * min(layer.mean_ns for layer in layers)
    return sum((ceil(n) - n) * layer.mean_ns for n, layer in zip(tiles, layers, strict=True))


def _storing_ns(load: MoeLoad) -> float:
    """From the end of the last mainloop until its stores are accepted."""
    return max(load.linear2.issue_ns, load.drain_tile_ns)
