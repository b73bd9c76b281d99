"""The audit: aligned bursts of full tiles, all of whose rows are of other ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemm_reduce_scatter.config import GemmConfig
from gemm_reduce_scatter.launch import tile_times, tiles_of
from gemm_reduce_scatter.workload import GemmWorkload
from xstage_tune.base.number_format import duration
from xstage_tune.estimates.bursts import BurstTerms, burst_terms
from xstage_tune.estimates.figures import Basis, Figure, derived
from xstage_tune.estimates.schedule import SchedulePrediction, in_steady_state, issue_at
from xstage_tune.families.estimate import Estimate, Quantity
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.platforms.schema import PlatformProfile


@dataclass(frozen=True, slots=True)
class GemmEstimate(Estimate):
    """Bursts, the mainloop between them, and what the epilogue's stores then expose."""

    burst: BurstTerms
    predicted: SchedulePrediction

    @property
    def schedules(self) -> Mapping[str, SchedulePrediction]:
        return {"piggyback": self.predicted}

    @property
    def audited(self) -> str:
        return "piggyback"

    def quantities(self) -> Mapping[str, Quantity]:
        return {"mainloop_ns": Quantity(self.predicted.gap_ns, "mainloop of a tile", duration)}


def estimate_gemm(workload: GemmWorkload, platform: PlatformProfile, config: GemmConfig) -> GemmEstimate:
    tiles, times = tiles_of(config, workload, platform), tile_times(config, workload, platform)
    size = f"{config.block_m} x {config.block_n} tile"
    tile_bytes = Figure(
        float(config.block_m * config.block_n * OUTPUT_BYTES), Basis.DERIVED, f"{size}, all remote"
    )
    burst = burst_terms(platform, config.store_flavour, tiles.producers, tile_bytes)
    gap = Figure(times.mainloop_ns, Basis.ASSUMED, f"compute or L2 loads of a {size} at the platform's rates")
    cover = derived(config.staging_slots * gap.value, "the mainloops that staging covers", gap)
    span = derived(
        times.epilogue_ns + issue_at(burst, gap).value, "epilogue + T_iss", gap, burst.free_issue_ns
    )
    stall = derived(max(0.0, span.value - cover.value), "T_RS - T_cover", span, cover)
    predicted = in_steady_state(
        burst, gap, cover, span=span, stall=stall, bursts=tiles.rounds, total_bytes=workload.remote_bytes
    )
    return GemmEstimate(burst, predicted)
