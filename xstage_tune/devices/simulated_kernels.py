"""Fused kernels on the event simulator: one rank's launch, the one that sets the layer's time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from xstage_tune.configs.architecture import architecture_of
from xstage_tune.configs.resources import require_feasible
from xstage_tune.configs.schema import AttentionConfig, KernelConfig, MegaMoeConfig
from xstage_tune.configs.schema import Schedule as ScheduleConfig
from xstage_tune.devices.kernels import KernelRun
from xstage_tune.devices.simulator import megamoe_order as orders
from xstage_tune.devices.simulator.attention import OutputStores, QLoop, attention_streams
from xstage_tune.devices.simulator.attention_order import AttentionGrid, attention_order
from xstage_tune.devices.simulator.compute import MoeShape, compute_model, moe_mainloop_ns
from xstage_tune.devices.simulator.drain import DrainModel, drain_model
from xstage_tune.devices.simulator.megamoe import MoeStores, megamoe_streams
from xstage_tune.devices.simulator.pipeline import PipelineConfig, PipelineRun, simulate
from xstage_tune.devices.streams import Streams
from xstage_tune.devices.tile_times import (
    SIGNAL_NS,
    MoeTileTimes,
    attention_tile_times,
    local_store_bytes_per_ns,
    moe_tile_times,
)
from xstage_tune.errors import UsageError
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.workloads.routing import busiest_rank, local_tokens_per_expert
from xstage_tune.workloads.schema import OUTPUT_BYTES, AttentionWorkload, MoeWorkload, Workload

# CTAs of a launch begin up to a microsecond apart, which is what desynchronises them (seen on an H200).
_START_JITTER_NS = 1000.0
# From the last byte's leaving to its being visible: one way over NVLink (MSCCL++).
_COMPLETION_LATENCY_NS = 800.0

_SLOTS = {"alias-q": 1, "alias-v": 1, "dedicated-x1": 1, "dedicated-x2": 2}


@dataclass(frozen=True, slots=True)
class Launch:
    """A config made ready to simulate.

    Args:
        streams: the tiles of each SM.
        drain: the path.
        staging_slots: S.
    """

    streams: Streams
    drain: DrainModel
    staging_slots: int

    def run(
        self, seed: int = 0, *, trace_occupancy: bool = False, completion_coupled: bool = False
    ) -> PipelineRun:
        """Simulate it once; seeds differ in when the CTAs start."""
        config = PipelineConfig(
            staging_slots=self.staging_slots,
            signal_ns=SIGNAL_NS,
            completion_coupled=completion_coupled,
            completion_latency_ns=_COMPLETION_LATENCY_NS if completion_coupled else 0.0,
            start_jitter_ns=_START_JITTER_NS,
            seed=seed,
            trace_occupancy=trace_occupancy,
        )
        return simulate(self.streams, self.drain, config)


class SimulatedKernels:
    """The simulator as a kernel device. Repeat i starts its CTAs by seed i: the same call, the same times."""

    def __init__(self, platform: PlatformProfile) -> None:
        self._platform = platform
        self.identity = "simulator"
        self._drain: Callable[[str], DrainModel] = lru_cache(maxsize=None)(self._drain_of)

    def run_kernel(self, workload: Workload, config: KernelConfig, repeats: int = 1) -> KernelRun:
        """Simulate a config ``repeats`` times.

        Raises:
            UsageError: it does not fit the workload or the platform, or the platform lacks T0, Q or
                compute figures.
        """
        launch = self.launch(workload, config)
        runs = [launch.run(seed) for seed in range(repeats)]
        return KernelRun(
            latency_ns=tuple(run.makespan_ns for run in runs),
            stall_ns=tuple(_stall_ns(run) for run in runs),
        )

    def launch(self, workload: Workload, config: KernelConfig) -> Launch:
        """The launch of a config on the rank that receives most.

        Raises:
            UsageError: as :meth:`run_kernel`.
        """
        require_feasible(config, workload, self._platform)
        drain = self._drain(config.store_flavour)
        if isinstance(config, MegaMoeConfig) and isinstance(workload, MoeWorkload):
            return Launch(_moe_streams(config, workload, self._platform), drain, config.staging_depth)
        if isinstance(config, AttentionConfig) and isinstance(workload, AttentionWorkload):
            streams = _attention_streams(config, workload, self._platform)
            return Launch(streams, drain, _SLOTS[config.output_staging])
        raise UsageError(f"a config of kind '{config.kind}' does not fit the workload '{workload.name}'")

    def _drain_of(self, flavour: str) -> DrainModel:
        return drain_model(self._platform, flavour="tma" if flavour == "tma" else "st.v4")


def simulator_schedule(schedule: ScheduleConfig) -> orders.Schedule:
    """A config's schedule as the simulator's tile order."""
    if schedule.kind == "wave" and schedule.experts_per_wave is not None:
        return orders.ExpertWave(schedule.experts_per_wave)
    if schedule.kind == "interleaved" and schedule.lead_rows is not None:
        return orders.Interleaved(schedule.lead_rows)
    return orders.Alternating() if schedule.kind == "alternating" else orders.ClampedLag()


def moe_grid(config: MegaMoeConfig, workload: MoeWorkload, platform: PlatformProfile) -> orders.MoeGrid:
    """The tiles of the rank that receives most."""
    tokens = local_tokens_per_expert(workload, busiest_rank(workload))
    return orders.MoeGrid(
        tokens_per_expert=tuple(tokens.tolist()),
        block_m=config.block_m,
        l1_tiles=workload.linear1_shape[0] // config.block_n,
        l2_tiles=workload.linear2_shape[0] // config.block_n,
        sms=platform.gpu.sm_count,
        cta_group=architecture_of(platform).cta_group,
    )


def _moe_streams(config: MegaMoeConfig, workload: MoeWorkload, platform: PlatformProfile) -> Streams:
    times = moe_tile_times(config, workload, platform)
    grid = moe_grid(config, workload, platform)
    order = orders.megamoe_order(grid, simulator_schedule(config.schedule))
    stores = MoeStores(
        # SwiGLU makes one output of a gate and an up column.
        l1_bytes_per_token=config.block_n / 2 * workload.activation_bytes,
        l2_bytes_per_token=float(config.block_n * OUTPUT_BYTES),
        remote_fraction=workload.combine_remote_fraction,
        local_bytes_per_ns=local_store_bytes_per_ns(platform),
    )
    streams = megamoe_streams(grid, order, _mainloop_ns(times, workload, platform, grid, order), stores)
    epilogue_ns = grid.row_tokens[order.row] * times.epilogue_ns_per_token
    # Accumulators in registers leave them at the mainloop's end, when they need a buffer; in tensor memory
    # they need one from its begin.
    in_registers = not architecture_of(platform).tensor_memory
    return replace(
        streams,
        staging_ns=streams.staging_ns + epilogue_ns,
        slot_offset_ns=streams.mainloop_ns if in_registers else streams.slot_offset_ns,
    )


def _mainloop_ns(
    times: MoeTileTimes,
    workload: MoeWorkload,
    platform: PlatformProfile,
    grid: orders.MoeGrid,
    order: orders.MoeOrder,
) -> np.ndarray:
    """Mainloops with weights from memory, none shorter than its operands' way from L2."""
    model = replace(compute_model(platform, workload.tensor_dtype), efficiency=times.efficiency)
    shape = MoeShape(
        hidden=workload.hidden,
        intermediate=workload.intermediate,
        block_n=times.block_n,
        weight_bytes=workload.weight_bytes,
        activation_bytes=workload.activation_bytes,
    )
    depth = np.where(order.layer == orders.LINEAR1, workload.hidden, workload.intermediate)
    from_l2 = times.fill_ns + times.load_ns(grid.row_tokens[order.row], depth)
    return np.maximum(moe_mainloop_ns(model, shape, grid, order), from_l2)


def _attention_streams(
    config: AttentionConfig, workload: AttentionWorkload, platform: PlatformProfile
) -> Streams:
    times = attention_tile_times(config, workload, platform)
    given = workload.remote_fraction
    grid = AttentionGrid(
        heads=workload.local_heads,
        tokens=workload.tokens,
        block_m=config.block_m,
        sms=platform.gpu.sm_count,
        ranks=workload.degree,
        rank=0 if given is None else None,
    )
    loop = QLoop(config.block_n, times.kv_tile_ns, times.fixed_ns, times.cover_ns)
    stores = OutputStores(
        row_bytes=float(workload.head_dim * OUTPUT_BYTES),
        local_bytes_per_ns=local_store_bytes_per_ns(platform),
        fixed_ns=times.epilogue_ns,
    )
    streams = attention_streams(grid, attention_order(grid, config.tile_order), loop, stores)
    return replace(
        streams,
        remote_bytes=streams.remote_bytes * (1.0 if given is None else given),
        slot_offset_ns=_slot_offset_ns(config, streams, times.cover_ns),
    )


def _slot_offset_ns(config: AttentionConfig, streams: Streams, cover_ns: float) -> np.ndarray:
    """How far a Q-loop gets while the tile before it is stored.

    The buffer of Q is needed at once, that of V after the first product, an own one only at the end.
    """
    if config.output_staging == "alias-q":
        return np.zeros(streams.tiles)
    if config.output_staging == "alias-v":
        return np.minimum(cover_ns, streams.mainloop_ns)
    return streams.mainloop_ns


def _stall_ns(run: PipelineRun) -> float:
    waits = run.stall_ns + run.dependency_wait_ns
    return float(waits.sum()) / run.streams.sms
