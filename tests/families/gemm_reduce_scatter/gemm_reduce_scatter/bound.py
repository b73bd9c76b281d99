"""The family for one GEMM on one platform."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import get_args

from gemm_reduce_scatter.config import GemmConfig, TileOrder
from gemm_reduce_scatter.estimate import GemmEstimate, estimate_gemm
from gemm_reduce_scatter.launch import BLOCK_K, count_tiles, gemm_launch, gemm_load
from gemm_reduce_scatter.workload import GemmWorkload
from xstage_tune.families.advice import Action, TileSide, passes, piggyback, shrink
from xstage_tune.families.budget import Budget, Term, Violation
from xstage_tune.families.family import Axes, BoundFamily, Judged
from xstage_tune.families.launch import FusedLaunch, GivenTimes
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.platforms.queries import preferred_flavour

_MATH_THREADS = 256
_ACCUMULATOR_BYTES = 4
_BOOKKEEPING_REGISTERS = 40


class BoundGemm(BoundFamily[GemmWorkload, GemmConfig]):
    config_model = GemmConfig

    def budgets(self, config: GemmConfig) -> tuple[Budget, ...]:
        area = config.block_m * config.block_n
        shared = (
            Term(
                "operand stages", config.stages * BLOCK_K * (config.block_m + config.block_n) * OUTPUT_BYTES
            ),
            Term("output staging", config.staging_slots * area * OUTPUT_BYTES),
        )
        memory = Budget("shared memory", "B", self.compute.shared_bytes_per_cta, shared)
        if self.architecture.tensor_memory:
            held = Term("accumulators", area * _ACCUMULATOR_BYTES)
            return memory, Budget("tensor memory", "B", self.compute.tensor_memory_bytes_per_sm, (held,))
        registers = (Term("accumulators", area // _MATH_THREADS), Term("bookkeeping", _BOOKKEEPING_REGISTERS))
        limit = self.architecture.thread_registers
        return memory, Budget("registers of a math thread", "registers", limit, registers)

    def rules(self, config: GemmConfig) -> Iterator[Violation]:
        rows, step, most = self.architecture.mma_m, self.architecture.mma_n_step, self.architecture.mma_n_max
        if config.block_m % rows:
            yield Violation("MMA shape", f"block_m = {config.block_m} is not a multiple of {rows}")
        if config.block_n % step or config.block_n > most:
            yield Violation(
                "MMA shape", f"block_n = {config.block_n} is not a multiple of {step} up to {most}"
            )

    def default_candidates(self) -> Sequence[GemmConfig]:
        flavour = preferred_flavour(self.platform)
        return [
            GemmConfig(
                block_m=128, block_n=block_n, stages=4, staging_slots=1, tile_order="sequential",
                store_flavour=flavour,
            )
            for block_n in (128, 64)
        ]  # fmt: skip

    def axes(self) -> Axes:
        return {
            "block_m": (64, 128, 192),
            "block_n": (64, 128, 256),
            "stages": (3, 4, 6),
            "staging_slots": (1, 2),
            "tile_order": get_args(TileOrder),
        }

    def tiles(self, config: GemmConfig) -> int:
        return count_tiles(config, self.workload)

    def launch(
        self,
        config: GemmConfig,
        given: GivenTimes | None = None,
        *,
        dependencies: bool = True,  # noqa: ARG002 - its tiles wait for none
    ) -> FusedLaunch:
        return gemm_launch(config, self.workload, self.platform, given or GivenTimes())

    def judge(self) -> Callable[[GemmConfig], Judged]:
        def judge(config: GemmConfig) -> Judged:
            load = gemm_load(config, self.workload, self.platform)
            return Judged(load.floors(), load.prediction(), (load, config.tile_order))

        return judge

    def estimate(
        self,
        config: GemmConfig,
        given: GivenTimes | None = None,  # noqa: ARG002 - by the platform's rates
    ) -> GemmEstimate:
        return estimate_gemm(self.workload, self.platform, config)

    def advice(self, config: GemmConfig, estimate: GemmEstimate) -> tuple[Action, ...]:
        if passes(estimate.burst, estimate.predicted):
            return (piggyback(),)
        column_bytes = config.block_m * OUTPUT_BYTES
        side = TileSide(config, "block_n", column_bytes, lambda other: self.check(other).feasible)
        return tuple(shrink(estimate.burst, estimate.predicted, side))

    def depth(self, config: GemmConfig) -> int:
        return config.stages
