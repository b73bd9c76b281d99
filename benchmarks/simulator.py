"""How fast the simulator is, and how near it comes to published and measured launches.

    python benchmarks/simulator.py [throughput|skeleton|table2|residual ...]

``throughput``: tile events per second of one core at 148 SMs.
``skeleton``: the schedule skeleton measured on an H200 with stores to pinned host memory, simulated from the
calibrated platform (``h200-host``); nothing is fitted to the totals.
``table2``: Table 2 of arXiv 2607.23264 from its own mainloop times, on the paper's platform.
``residual``: its Figure 11, FlashAttention-4's residual against the tokens, and the completion-coupled one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from xstage_tune.families.attention_a2a.order import AttentionGrid, attention_order
from xstage_tune.families.attention_a2a.streams import OutputStores, QLoop, attention_streams
from xstage_tune.families.megamoe.order import (
    LINEAR2,
    ExpertWave,
    Interleaved,
    MoeGrid,
    Schedule,
    default_wave,
    megamoe_order,
)
from xstage_tune.families.megamoe.paper import PAPER_MOE_MODELS, PAPER_TOKENS_PER_RANK
from xstage_tune.families.megamoe.routing import busiest_rank, local_tokens_per_expert
from xstage_tune.families.megamoe.streams import (
    MoeStores,
    given_mainloop_ns,
    megamoe_streams,
    moe_store_bytes,
)
from xstage_tune.families.megamoe.workload import MoeWorkload, Routing
from xstage_tune.families.workload_files import load_workload
from xstage_tune.launches.streams import independent_streams
from xstage_tune.model.moe import lead_knee_rows
from xstage_tune.platforms.latencies import FALLBACK
from xstage_tune.platforms.loader import load_platform
from xstage_tune.simulator.drain import DrainModel, drain_model
from xstage_tune.simulator.pipeline import PipelineConfig, PipelineRun, simulate
from xstage_tune.simulator.skeletons import handover_ns, usable_slots


@dataclass(frozen=True)
class Throughput:
    """One timed launch."""

    case: str
    tiles: int
    events: int
    seconds: float


def throughput(tiles_per_sm: int = 5000, sms: int = 148) -> Iterator[Throughput]:
    """Time single launches of ``sms`` SMs, compilation and the making of the streams left out."""
    one_port = replace(
        drain_model(load_platform("paper-nvlink5")), branch_of_sm=(0,) * sms, port_of_sm=(), port_weight=()
    )
    four_branches = replace(
        one_port,
        branch_of_sm=tuple(sm // 2 % 4 for sm in range(sms)),
        branch_share=(0.25,) * 4,
        port_of_sm=tuple(sm // 2 for sm in range(sms)),
        port_weight=(),
    )
    jitter_ns = np.random.default_rng(0).random(sms * tiles_per_sm) * 1000
    cases = {
        "aligned, drain-limited": (one_port, 5000.0 + 0 * jitter_ns),
        "drifting, drain-limited": (one_port, 5000.0 + jitter_ns),
        "drifting, drain-limited, 4 branches": (four_branches, 5000.0 + jitter_ns),
        "drifting, not limited": (one_port, 12000.0 + jitter_ns),
    }
    for case, (drain, mainloop_ns) in cases.items():
        streams = independent_streams(np.arange(sms + 1) * tiles_per_sm, mainloop_ns, remote_bytes=49152.0)
        first = independent_streams(np.arange(sms + 1), np.ones(sms), remote_bytes=49152.0)
        simulate(first, drain, PipelineConfig())  # compiles
        begin = time.perf_counter()
        run = simulate(streams, drain, PipelineConfig())
        yield Throughput(case, streams.tiles, run.events, time.perf_counter() - begin)


@dataclass(frozen=True)
class Skeleton:
    """Totals of a launch in either order, us, and the mean over all tiles of T_RS, ns."""

    wave: float
    interleaved: float
    wave_issue: float
    interleaved_issue: float

    @property
    def ratio(self) -> float:
        """Wave over interleaved total."""
        return self.wave / self.interleaved


#: By staging depth S, measured.
SKELETON_MEASURED = {
    1: Skeleton(7992.0, 7618.0, 1498.0, 610.0),
    2: Skeleton(7702.0, 7376.0, 2199.0, 619.0),
    3: Skeleton(7682.0, 7376.0, 1483.0, 620.0),
}

_SKELETON_TILE_BYTES = 32768.0
_SKELETON_REMOTE = 0.25
#: CTAs start on one deadline of the global timer, as near as its tick lets them.
_H200_TICK_NS = 32.0


def skeleton(staging_slots: int, seed: int = 0) -> Skeleton:
    """The skeleton on the calibrated platform, from its R, Q(132), T0 and ports alone.

    The profile's local control issues as fast as a free remote path, so the local part of a tile takes what
    T0 of the whole tile exceeds T0 of its remote part by, and a tile that is all local T0 of the whole.
    """
    drain = drain_model(load_platform("h200-host"))
    # Each expert gives every CTA 16 tiles of either layer; a row is one tile of each CTA.
    grid = MoeGrid((16 * 128,) * 12, block_m=128, l1_tiles=132, l2_tiles=132, sms=132)
    remote_bytes = _SKELETON_TILE_BYTES * _SKELETON_REMOTE
    whole_ns, remote_ns = drain.free_issue_ns(np.array([_SKELETON_TILE_BYTES, remote_bytes]))
    local_bytes_per_ns = (_SKELETON_TILE_BYTES - remote_bytes) / (whole_ns - remote_ns)
    stores = MoeStores(
        l1_bytes_per_token=_SKELETON_TILE_BYTES / grid.block_m,
        l2_bytes_per_token=_SKELETON_TILE_BYTES / grid.block_m,
        remote_fraction=_SKELETON_REMOTE,
        local_bytes_per_ns=local_bytes_per_ns,
    )
    config = PipelineConfig(
        staging_slots=usable_slots("st.v4", staging_slots), start_jitter_ns=_H200_TICK_NS, seed=seed
    )
    wave, interleaved = (
        _skeleton_launch(grid, schedule, stores, drain, config)
        for schedule in (ExpertWave(1), Interleaved(1))
    )
    return Skeleton(
        wave=wave.makespan_ns / 1e3,
        interleaved=interleaved.makespan_ns / 1e3,
        wave_issue=float(wave.issue_ns.mean()),
        interleaved_issue=float(interleaved.issue_ns.mean()),
    )


def _skeleton_launch(
    grid: MoeGrid, schedule: Schedule, stores: MoeStores, drain: DrainModel, config: PipelineConfig
) -> PipelineRun:
    order = megamoe_order(grid, schedule)
    mainloop_ns = given_mainloop_ns(order, l1_ns=25_000.0, l2_ns=12_700.0)
    streams = megamoe_streams(grid, order, mainloop_ns, stores, dependencies=False)
    streams = replace(streams, mainloop_ns=mainloop_ns + handover_ns(streams, FALLBACK))
    local_bytes, _ = moe_store_bytes(grid, order, stores)
    return simulate(streams, drain, config, local_bytes)


@dataclass(frozen=True)
class PublishedModel:
    """A row of Table 2, us."""

    wave_span: float
    interleaved_span: float
    l2: float
    l1: float
    wave_stall: float


TABLE_2 = {
    "DiT-MoE": PublishedModel(9.93, 3.77, 5.30, 9.77, 4.18),
    "Qwen3.5": PublishedModel(9.17, 3.82, 4.24, 14.40, 4.31),
    "Hy3": PublishedModel(9.68, 3.59, 6.09, 10.79, 3.08),
    "MiMo-V2.5": PublishedModel(9.22, 3.94, 7.77, 7.57, 0.71),
    "GLM-5.2": PublishedModel(9.53, 3.63, 7.99, 18.77, 0.92),
    "DSv4-Flash": PublishedModel(9.48, 3.83, 8.01, 7.40, 0.65),
    "DSv4-Pro": PublishedModel(7.88, 3.55, 9.54, 11.57, 0.06),
}


@dataclass(frozen=True)
class SimulatedModel:
    """Medians over full Linear-2 tiles, and totals; us."""

    wave_span: float
    wave_stall: float
    interleaved_span: float
    interleaved_stall: float
    wave_total: float
    interleaved_total: float


def table2(model: str, alpha: float = 1.0, remote_fraction: float = 1.0) -> SimulatedModel:
    """One row of Table 2 from its mainloop times, on the rank that Zipf(alpha) routing loads most.

    Not published, so assumed: the routing's law, 192 x 128 tiles, DeepGEMM's default wave, a lead of
    twice D_knee, 1 us of start jitter, and the epilogue's fixed cost, taken as the published floor (the
    interleaved span) less T0. ``remote_fraction`` 1 is the paper's V of 148 x 48 KiB; evenly spread source
    ranks would make it 7/8.
    """
    published = TABLE_2[model]
    routing = Routing(kind="zipf", alpha=alpha, seed=0)
    workload = load_workload(PAPER_MOE_MODELS[model])
    assert isinstance(workload, MoeWorkload)
    workload = workload.model_copy(update={"tokens_per_rank": PAPER_TOKENS_PER_RANK, "routing": routing})
    drain = drain_model(load_platform("paper-nvlink5"))
    l2_tiles = workload.hidden // 128
    grid = MoeGrid(
        tokens_per_expert=tuple(local_tokens_per_expert(workload, busiest_rank(workload)).tolist()),
        block_m=192,
        l1_tiles=2 * workload.intermediate // 128,
        l2_tiles=l2_tiles,
        sms=148,
        cta_group=1 if l2_tiles % 2 else 2,
    )
    tile_bytes = 192 * 128 * 2.0
    free_ns = float(drain.free_issue_ns(np.array([tile_bytes]))[0])
    stores = MoeStores(
        l1_bytes_per_token=64.0,
        l2_bytes_per_token=tile_bytes / 192,
        remote_fraction=remote_fraction,
        local_bytes_per_ns=tile_bytes / free_ns,
        fixed_ns=published.interleaved_span * 1e3 - free_ns,
    )
    knee = float(lead_knee_rows(block_n=128, producers=148, intermediate=workload.intermediate))
    wave = _launch(grid, default_wave(grid), published, stores, drain)
    interleaved = _launch(grid, Interleaved(int(np.ceil(2 * knee))), published, stores, drain)
    wave_tiles, interleaved_tiles = wave[1], interleaved[1]
    return SimulatedModel(
        wave_span=float(np.median(wave[0].issue_ns[wave_tiles])) / 1e3,
        wave_stall=float(np.median(wave[0].stall_ns[wave_tiles])) / 1e3,
        interleaved_span=float(np.median(interleaved[0].issue_ns[interleaved_tiles])) / 1e3,
        interleaved_stall=float(np.median(interleaved[0].stall_ns[interleaved_tiles])) / 1e3,
        wave_total=wave[0].makespan_ns / 1e3,
        interleaved_total=interleaved[0].makespan_ns / 1e3,
    )


def _launch(
    grid: MoeGrid, schedule: Schedule, published: PublishedModel, stores: MoeStores, drain: DrainModel
) -> tuple[PipelineRun, np.ndarray]:
    """A run, and which of its tiles are full Linear-2 tiles."""
    order = megamoe_order(grid, schedule)
    mainloop_ns = given_mainloop_ns(order, l1_ns=published.l1 * 1e3, l2_ns=published.l2 * 1e3)
    streams = megamoe_streams(grid, order, mainloop_ns, stores)
    # A signal through memory takes 832 ns (ParallelKittens, arXiv 2511.13940).
    run = simulate(streams, drain, PipelineConfig(signal_ns=832.0, start_jitter_ns=1000.0))
    return run, (order.layer == LINEAR2) & (grid.row_tokens[order.row] == grid.block_m)


#: Tokens to (FlashAttention-4 alone, fused) of Table 3, us.
TABLE_3_FA4 = {
    8192: (85.4, 99.4),
    16_384: (346.5, 356.6),
    32_768: (1439.4, 1429.2),
    49_152: (3281.4, 3282.1),
    65_536: (5340.7, 5348.9),
}


def residual_us(tokens: int, *, coupled: bool) -> float:
    """E_res of FlashAttention-4 with 4 local heads on the paper's platform, every byte remote.

    Not published, so assumed: T_lat = 0.8 us (one way over NVLink, MSCCL++ paper), and a cover of half a
    KV tile (its QK^T part).
    """
    drain = drain_model(load_platform("paper-nvlink5"))
    grid = AttentionGrid(heads=4, tokens=tokens, block_m=128, sms=148, local_ranks=0)
    loop = QLoop(block_n=128, kv_tile_ns=790.0, cover_ns=395.0)
    stores = OutputStores(row_bytes=256.0, local_bytes_per_ns=32768 / 760)
    streams = attention_streams(grid, attention_order(grid, "rotated"), loop, stores)
    config = PipelineConfig(staging_slots=1, completion_coupled=coupled, completion_latency_ns=800.0)
    alone = replace(streams, remote_bytes=np.zeros(streams.tiles))
    return (simulate(streams, drain, config).makespan_ns - simulate(alone, drain, config).makespan_ns) / 1e3


def _print_throughput() -> None:
    print(f"{'case':48} {'tiles':>8} {'M events/s':>11} {'M tiles/s':>10}")
    for row in throughput():
        rates = row.events / row.seconds / 1e6, row.tiles / row.seconds / 1e6
        print(f"{row.case:48} {row.tiles:8d} {rates[0]:11.1f} {rates[1]:10.1f}")


def _print_skeleton() -> None:
    print("S  wave us sim/meas         interleaved us sim/meas  ratio sim/meas         mean T_RS ns sim/meas")
    print(
        "   (means of 5 seeds)                                                       wave        interleaved"
    )
    for slots, measured in SKELETON_MEASURED.items():
        runs = [skeleton(slots, seed) for seed in range(5)]
        ours = Skeleton(*(float(np.mean([getattr(run, f.name) for run in runs])) for f in fields(Skeleton)))
        print(
            f"{slots}  {_compared(ours.wave, measured.wave):23}  "
            f"{_compared(ours.interleaved, measured.interleaved):23}  "
            f"{ours.ratio:.3f} / {measured.ratio:.3f} ({ours.ratio - measured.ratio:+.3f})"
            f"  {ours.wave_issue:4.0f} / {measured.wave_issue:4.0f}"
            f"  {ours.interleaved_issue:4.0f} / {measured.interleaved_issue:4.0f}"
        )


def _compared(ours: float, measured: float) -> str:
    return f"{ours:.0f} / {measured:.0f} ({100 * (ours / measured - 1):+.1f}%)"


def _print_table2() -> None:
    print("model        wave span sim/pub       stall sim/pub   int. span sim/pub  stall   wave/int. total")
    for model, published in TABLE_2.items():
        ours = table2(model)
        error = 100 * (ours.wave_span / published.wave_span - 1)
        print(
            f"{model:12} {ours.wave_span:5.2f} / {published.wave_span:.2f} ({error:+6.1f}%)"
            f"   {ours.wave_stall:4.2f} / {published.wave_stall:.2f}"
            f"     {ours.interleaved_span:4.2f} / {published.interleaved_span:.2f}"
            f"        {ours.interleaved_stall:4.2f}    {ours.wave_total / ours.interleaved_total:.3f}"
        )


def _print_residual() -> None:
    print("tokens  residual us sim/pub   coupled us sim")
    for tokens, (alone, fused) in TABLE_3_FA4.items():
        ours = residual_us(tokens, coupled=False), residual_us(tokens, coupled=True)
        print(f"{tokens:6d}  {ours[0]:8.1f} / {fused - alone:5.1f}     {ours[1]:8.1f}")


def main() -> None:
    parts = {
        "throughput": _print_throughput,
        "skeleton": _print_skeleton,
        "table2": _print_table2,
        "residual": _print_residual,
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="what to run; all by default")
    for part in parser.parse_args().parts or parts:
        parts[part]()


if __name__ == "__main__":
    main()
