"""Time of a full tile of a MegaMoE config, by closed forms: what bounds, rankings and the simulator use.

A mainloop takes ``fill + max(compute, load)``. Compute is the work at the SM's part of peak times efficiency;
load is the operands' way from L2, at the port's rate or at what the pipeline keeps in flight over the latency
(Little's law), whichever is less. Weights that come from memory are not in here: see
:func:`xstage_tune.families.megamoe.compute.moe_mainloop_ns`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xstage_tune.families.architecture import architecture_of, compute_of
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.tile_times import (
    EPILOGUE_WARP_NS_PER_ELEMENT,
    Floats,
    Ints,
    load_bytes_per_ns,
    tensor_rate,
)
from xstage_tune.platforms.schema import PlatformProfile

#: Tokens of a row are computed in multiples of this.
ROW_GRANULARITY = 16


@dataclass(frozen=True, slots=True)
class MoeTileTimes:
    """What the tiles of a MegaMoE config take, for one token or for rows of given tokens.

    Args:
        block_k: depth of a pipeline stage; depths are computed in whole ones.
        flop_per_ns: of one SM, with the tile's efficiency.
        efficiency: fraction of peak that full tiles reach.
        fill_ns: of every mainloop.
        load_bytes_per_ns: of one SM.
        token_bytes: that a CTA loads for one element of depth of one token.
        weight_bytes: that it loads for one element of depth of the whole N-tile.
        epilogue_ns_per_token: of the issue role, before it stores.
    """

    block_n: int
    block_k: int
    flop_per_ns: float
    efficiency: float
    fill_ns: float
    load_bytes_per_ns: float
    token_bytes: float
    weight_bytes: float
    epilogue_ns_per_token: float

    def compute_ns(self, tokens: Ints, depth: Ints | int) -> Floats:
        """Tensor Core time of tiles of ``tokens`` rows, padded, over ``depth``."""
        padded = -(-tokens // ROW_GRANULARITY) * ROW_GRANULARITY
        whole = -(-np.asarray(depth) // self.block_k) * self.block_k
        return np.asarray(2.0 * padded * self.block_n * whole / self.flop_per_ns, np.float64)

    def load_ns(self, tokens: Ints, depth: Ints | int) -> Floats:
        """Time that their operands take from L2."""
        loaded = depth * (tokens * self.token_bytes + self.weight_bytes)
        return np.asarray(loaded / self.load_bytes_per_ns, np.float64)

    def mainloop_ns(self, tokens: Ints, depth: Ints | int) -> Floats:
        """Mainloop of tiles whose weights are in L2."""
        time: Floats = self.fill_ns + np.maximum(self.compute_ns(tokens, depth), self.load_ns(tokens, depth))
        return time


def moe_tile_times(config: MegaMoeConfig, workload: MoeWorkload, platform: PlatformProfile) -> MoeTileTimes:
    """Tile times of a config.

    Raises:
        UsageError: the platform has no compute section, no rate for the precision, or an unknown
            architecture.
    """
    architecture, compute = architecture_of(platform), compute_of(platform)
    rate = tensor_rate(platform, workload.tensor_dtype)
    efficiency = rate.tile_efficiency * min(1.0, config.block_n / architecture.mma_m_full_rate)
    token_bytes = workload.activation_bytes / architecture.cta_group
    weight_bytes = config.block_n * workload.weight_bytes
    in_flight = config.pipeline_stages * config.block_k * (config.block_m * token_bytes + weight_bytes)
    return MoeTileTimes(
        block_n=config.block_n,
        block_k=config.block_k,
        flop_per_ns=rate.peak_flop_per_s * efficiency / platform.gpu.sm_count / 1e9,
        efficiency=efficiency,
        fill_ns=compute.tile_fill_ns,
        load_bytes_per_ns=load_bytes_per_ns(in_flight, platform),
        token_bytes=token_bytes,
        weight_bytes=weight_bytes,
        epilogue_ns_per_token=config.block_n * EPILOGUE_WARP_NS_PER_ELEMENT / config.epilogue_warps,
    )
