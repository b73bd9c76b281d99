"""The family itself, which the package's entry point names."""

from __future__ import annotations

from typing import get_args

from gemm_reduce_scatter.config import GemmConfig, TileOrder
from gemm_reduce_scatter.workload import GemmWorkload
from xstage_tune.families.family import BoundFamily, Family
from xstage_tune.platforms.schema import PlatformProfile


class GemmFamily(Family[GemmWorkload, GemmConfig]):
    workload_kind = "gemm-rs"
    config_kind = "gemm-rs"
    workload_model = GemmWorkload
    config_model = GemmConfig
    orders = get_args(TileOrder)
    template_heading = "A GEMM and its reduce-scatter, for xstage-tune. The values are examples."

    def bind(
        self, workload: GemmWorkload, platform: PlatformProfile
    ) -> BoundFamily[GemmWorkload, GemmConfig]:
        from gemm_reduce_scatter.bound import BoundGemm  # a lookup needs none of it

        return BoundGemm(workload, platform)

    def shape_words(self, workload: GemmWorkload) -> str:
        return f"{workload.columns} columns, depth {workload.depth}"


FAMILY = GemmFamily()
