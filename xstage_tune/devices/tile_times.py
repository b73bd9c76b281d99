"""Time of a full tile of a config, by closed forms: what bounds and rankings use, and the simulator too.

A mainloop takes ``fill + max(compute, load)``. Compute is the work at the SM's part of peak times efficiency;
load is the operands' way from L2, at the port's rate or at what the pipeline keeps in flight over the latency
(Little's law), whichever is less. Weights that come from memory are not in here: see
:func:`xstage_tune.devices.simulator.compute.moe_mainloop_ns`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.configs.architecture import architecture_of, compute_of, unmeasured_compute
from xstage_tune.configs.attention_budget import WARPGROUP_ROWS
from xstage_tune.configs.schema import AttentionConfig, KernelConfig, MegaMoeConfig
from xstage_tune.errors import UsageError
from xstage_tune.model.attention import q_loop_kv_tiles
from xstage_tune.platforms.schema import AttentionTile, PlatformProfile
from xstage_tune.workloads.schema import OUTPUT_BYTES, AttentionWorkload, MoeWorkload, Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Tokens of a row are computed in multiples of this.
ROW_GRANULARITY = 16
#: From a tile's last byte leaving its SM to its counter's being raised, and from there to another SM's seeing
#: it, on an idle H200: 359 and 605 ns (st.v4), 354 and 588 (tma) in the recorded run of
#: ``benchmarks/neighbour_waits.py``, 374 and 604 in an earlier one. A signal alone takes 832 ns on a B200
#: (ParallelKittens, arXiv 2511.13940).
RAISE_NS = 370.0
SIGNAL_NS = 600.0
#: From the last byte's leaving to its being visible: one way over NVLink (MSCCL++).
COMPLETION_LATENCY_NS = 800.0

# Not in a platform profile, so the same everywhere. An SM's port to L2 is 64 bytes wide. A bulk copy takes
# about half a microsecond: an L2 hit of 260 cycles (arXiv 2402.13499, H100) behind a queue of others.
_L2_PORT_BYTES_PER_CLOCK = 64
_LOAD_LATENCY_NS = 500.0
# The paper's Table 2: a 192x128 tile that never waits spends 3.6 to 3.9 us in its epilogue, of which the
# remote stores take T0 = 1.1 us. The rest is divided among 8 warps, DeepGEMM's number.
_EPILOGUE_WARP_NS_PER_ELEMENT = 2500.0 * 8 / (192 * 128)
#: Warps that hand an attention tile's output on: one warpgroup.
_ATTENTION_EPILOGUE_WARPS = 4
# What a storer warp stores at once of its warpgroup's rows: 16 bytes a thread.
_STORE_INSTRUCTION_BYTES = 512


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
    rate = next((rate for rate in compute.tensor if rate.dtype == workload.tensor_dtype), None)
    if rate is None:
        raise UsageError(
            f"platform '{platform.name}' has no compute.tensor rate for '{workload.tensor_dtype}'",
            "add [[compute.tensor]] to the profile",
        )
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
        load_bytes_per_ns=_load_bytes_per_ns(in_flight, platform),
        token_bytes=token_bytes,
        weight_bytes=weight_bytes,
        epilogue_ns_per_token=config.block_n * _EPILOGUE_WARP_NS_PER_ELEMENT / config.epilogue_warps,
    )


@dataclass(frozen=True, slots=True)
class AttentionTileTimes:
    """What one output tile takes a CTA: its Q-loop, then its epilogue.

    Args:
        kv_tiles: that the CTA goes over.
        kv_tile_ns: sigma, of each.
        fixed_ns: of every Q-loop.
        exchange_ns: of merging the outputs of the CTAs that share a tile; 0 where none do.
        cover_ns: G_QK of equation 19, the first product of a KV tile.
        epilogue_ns: of staging its rows of a full tile, whose warpgroups do so side by side.
    """

    kv_tiles: int
    kv_tile_ns: float
    fixed_ns: float
    exchange_ns: float
    cover_ns: float
    epilogue_ns: float

    @property
    def q_loop_ns(self) -> float:
        """G_Qloop."""
        return self.fixed_ns + self.kv_tile_ns * self.kv_tiles + self.exchange_ns


def attention_tile_times(
    config: AttentionConfig, workload: AttentionWorkload, platform: PlatformProfile
) -> AttentionTileTimes:
    """Tile times of a config: the platform's measured sigma of the nearest tile, scaled by the work.

    Raises:
        UsageError: the platform has no compute section, no attention tile or, for a config that splits KV,
            none with split times; or an unknown architecture.
    """
    architecture = architecture_of(platform)
    reference = _nearest_tile(config, workload, platform)
    # Fewer rows than the Tensor Core works on take as long as a full set.
    rows = -(-config.block_m // architecture.mma_m_full_rate) * architecture.mma_m_full_rate
    work = rows * config.block_n * workload.head_dim
    split = reference.split if config.kv_splits > 1 else None
    sigma_ns = (
        measured_sigma_ns(reference, config)
        * work
        / (reference.block_m * reference.block_n * reference.head_dim)
    )
    kv_bytes = 2.0 * config.block_n * workload.head_dim * OUTPUT_BYTES
    load_ns = kv_bytes / _load_bytes_per_ns(config.kv_stages * kv_bytes, platform)
    kv_tile_ns = max(sigma_ns, load_ns)
    staging_ns = reference.staging_ns
    if split is not None and split.staging_ns is not None:
        staging_ns = split.staging_ns
    if staging_ns is None:
        elements = config.block_m * workload.head_dim
        epilogue_ns = elements * _EPILOGUE_WARP_NS_PER_ELEMENT / _ATTENTION_EPILOGUE_WARPS
    else:
        larger = config.block_m * workload.head_dim / (reference.block_m * reference.head_dim)
        epilogue_ns = staging_ns * larger
    return AttentionTileTimes(
        kv_tiles=q_loop_kv_tiles(tokens=workload.tokens, block_n=config.block_n, kv_splits=config.kv_splits),
        kv_tile_ns=kv_tile_ns,
        fixed_ns=reference.fixed_ns,
        exchange_ns=split.exchange_ns if split else 0.0,
        cover_ns=kv_tile_ns / 2,
        epilogue_ns=epilogue_ns,
    )


def measured_sigma_ns(tile: AttentionTile, config: AttentionConfig) -> float:
    """Sigma of a platform's tile, whole or shared by CTAs as the config's."""
    return tile.split.kv_tile_ns if config.kv_splits > 1 and tile.split else tile.kv_tile_ns


def paced_part_of_q_loop(head_dim: int) -> float:
    """Part of a Q-loop over which the attention kernel spreads paced stores of the tile before.

    A warp's stores are evenly apart, and the first leaves at once (``storer.cuh``).
    """
    stores = WARPGROUP_ROWS * head_dim * OUTPUT_BYTES // _STORE_INSTRUCTION_BYTES
    return 1.0 - 1.0 / stores


def assumed_times(config: KernelConfig, workload: Workload, platform: PlatformProfile) -> str | None:
    """What the time of a config's tile rests on that nobody measured, in words; None for nothing.

    Raises:
        UsageError: as :func:`attention_tile_times`.
    """
    found = (unmeasured_compute(platform), scaled_from(config, workload, platform))
    return "; ".join(filter(None, found)) or None


def scaled_from(config: KernelConfig, workload: Workload, platform: PlatformProfile) -> str | None:
    """What the time of a config's tile is scaled from, in words; None where it is that of a measured tile.

    Raises:
        UsageError: as :func:`attention_tile_times`.
    """
    if not isinstance(config, AttentionConfig) or not isinstance(workload, AttentionWorkload):
        return None
    reference = _nearest_tile(config, workload, platform)
    measured = (reference.block_m, reference.block_n, reference.head_dim)
    if measured == (config.block_m, config.block_n, workload.head_dim):
        return None
    shared = f" of {config.kv_splits} CTAs" if config.kv_splits > 1 else ""
    return (
        f"the time of a {config.block_m}x{config.block_n} tile{shared} (head dim {workload.head_dim}) is "
        f"scaled by its work from that of {reference.block_m}x{reference.block_n} (head dim "
        f"{reference.head_dim})"
    )


def local_store_bytes_per_ns(platform: PlatformProfile) -> float:
    """Rate of one SM's local stores: its part of the memory's bandwidth."""
    return compute_of(platform).memory_bytes_per_s / platform.gpu.sm_count / 1e9


def _load_bytes_per_ns(in_flight_bytes: float, platform: PlatformProfile) -> float:
    port = _L2_PORT_BYTES_PER_CLOCK * platform.gpu.sm_clock_mhz / 1e3
    return min(port, in_flight_bytes / _LOAD_LATENCY_NS)


def _tiles_of(
    config: AttentionConfig, workload: AttentionWorkload, platform: PlatformProfile
) -> list[AttentionTile]:
    """Tiles whose times say something of the config's."""
    tiles = [tile for tile in compute_of(platform).attention if tile.dtype == workload.dtype]
    if not tiles:
        raise UsageError(
            f"platform '{platform.name}' has no compute.attention tile for '{workload.dtype}'",
            "add [[compute.attention]] with the time of a KV tile to the profile",
        )
    if config.kv_splits == 1:
        return tiles
    split = [tile for tile in tiles if tile.split is not None]
    if not split:
        raise UsageError(
            f"platform '{platform.name}' has no compute.attention tile with split times",
            "add them to a tile of the profile, or take kv_splits = 1",
        )
    return split


def _nearest_tile(
    config: AttentionConfig, workload: AttentionWorkload, platform: PlatformProfile
) -> AttentionTile:
    def distance(tile: AttentionTile) -> tuple[float, ...]:
        pairs = (
            (tile.head_dim, workload.head_dim),
            (tile.block_m, config.block_m),
            (tile.block_n, config.block_n),
        )
        return tuple(abs(np.log(measured / wanted)) for measured, wanted in pairs)

    return min(_tiles_of(config, workload, platform), key=distance)
