"""What a MegaMoE config asks of one rank's SMs and path, whatever the schedule: sums in closed form.

They are those of the simulated launch: every tile of either layer on the rank that receives most, each
mainloop at least as long as its operands' way from L2 allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xstage_tune.families.architecture import architecture_of, compute_of
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.routing import busiest_tokens
from xstage_tune.families.megamoe.tile_times import moe_tile_times
from xstage_tune.families.megamoe.tiling import RowTiles, linear_tiles
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.tile_times import local_store_bytes_per_ns
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.model import locality
from xstage_tune.model.burst_gap import drain_ns
from xstage_tune.platforms.latencies import Latencies, latencies_of
from xstage_tune.platforms.queries import capacity_bytes, issue_ns
from xstage_tune.platforms.rooms import tells_shared_room
from xstage_tune.platforms.schema import PlatformProfile

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LayerLoad:
    """One of the two Linears.

    Args:
        row_tiles: N-tiles of a row that are computed, partial and empty ones included.
        mean_ns: mainloop of a tile, mean over the tiles.
        least_ns: shortest mainloop.
        issue_ns: T_RS of a tile without backpressure, mean: epilogue, local and remote stores.
        least_issue_ns: shortest of those.
        weight_tile_bytes: weights of an N-tile, mean over the row's.
    """

    row_tiles: int
    mean_ns: float
    least_ns: float
    issue_ns: float
    least_issue_ns: float
    weight_tile_bytes: float


@dataclass(frozen=True)
class MoeLoad:
    """Both Linears on one rank.

    Args:
        rows: ``[experts]`` rows of tokens of each local expert.
        sms: SMs that take part.
        slots: tiles between the mainloop's need of a buffer and the end of their stores.
        linear1, linear2: the layers.
        remote_bytes: Combine bytes that leave, all together.
        drain_bytes_per_s: R.
        capacity_bytes: Q at this many producers.
        memory_bytes_per_s: of the GPU.
        latencies: of the platform.
        load_cover_ns: how long a mainloop goes on while its loads wait behind its SM's stores; infinity where
            the platform does not tell that they do.
    """

    rows: Ints
    sms: int
    slots: int
    linear1: LayerLoad
    linear2: LayerLoad
    remote_bytes: float
    drain_bytes_per_s: float
    capacity_bytes: float
    memory_bytes_per_s: float
    latencies: Latencies
    load_cover_ns: float = math.inf

    @property
    def total_rows(self) -> int:
        return int(self.rows.sum())

    @property
    def serial(self) -> bool:
        """Whether a mainloop cannot begin before the tile before it is stored."""
        return self.slots == 1

    def row_ns(self, linear1_ns: float, linear2_ns: float) -> float:
        """What an SM's part of a row takes, at these times of a tile of either layer."""
        tiles_ns = self.linear1.row_tiles * linear1_ns + self.linear2.row_tiles * linear2_ns
        return tiles_ns / self.sms

    @property
    def mainloop_ns(self) -> float:
        """Mainloops of one SM, mean over the SMs."""
        return self.total_rows * self.row_ns(self.linear1.mean_ns, self.linear2.mean_ns)

    @property
    def issue_ns(self) -> float:
        """Stores of one SM without backpressure, mean over the SMs."""
        return self.total_rows * self.row_ns(self.linear1.issue_ns, self.linear2.issue_ns)

    def drained_ns(self, volume_bytes: float) -> float:
        """How long bytes drain."""
        return float(drain_ns(volume_bytes=volume_bytes, drain_bytes_per_s=self.drain_bytes_per_s))

    @cached_property
    def drain_tile_ns(self) -> float:
        """V/R of a burst in which every SM stores one Linear-2 tile: the drain-limited period."""
        tiles = self.total_rows * self.linear2.row_tiles
        return self.drained_ns(self.remote_bytes / tiles * self.sms) if tiles else 0.0

    @cached_property
    def fill_ns(self) -> float:
        """Q/R: how long a full queue drains."""
        return self.drained_ns(self.capacity_bytes)

    @cached_property
    def exposed_weights_ns(self) -> float:
        """What the first use of each expert's weights, from memory, adds to the mainloops of an SM."""
        return self._exposed_weights_ns(self.linear1) + self._exposed_weights_ns(self.linear2)

    def _exposed_weights_ns(self, layer: LayerLoad) -> float:
        rows = self.rows[self.rows > 0]
        new_tiles = locality.distinct_weight_tiles(step_tiles=self.sms, row_tiles=layer.row_tiles, rows=rows)
        exposed_ns = locality.exposed_load_ns(
            loaded_bytes=new_tiles * layer.weight_tile_bytes,
            memory_bytes_per_s=self.memory_bytes_per_s,
            mainloop_ns=layer.mean_ns,
        )
        return float((layer.row_tiles / new_tiles * exposed_ns).sum())

    @property
    def weight_bytes(self) -> float:
        """Weights of the experts that receive tokens."""
        row_bytes = sum(layer.row_tiles * layer.weight_tile_bytes for layer in (self.linear1, self.linear2))
        return row_bytes * int(np.count_nonzero(self.rows))


def moe_load(config: MegaMoeConfig, workload: MoeWorkload, platform: PlatformProfile) -> MoeLoad:
    """The load of a config; its schedule plays no part.

    Raises:
        UsageError: the platform lacks compute figures, T0 or Q.
    """
    architecture, sms = architecture_of(platform), platform.gpu.sm_count
    times = moe_tile_times(config, workload, platform)
    tokens = busiest_tokens(workload)
    sizes, counts = _row_sizes(tokens, config.block_m)
    local_rate = local_store_bytes_per_ns(platform)
    epilogue_ns = sizes * times.epilogue_ns_per_token
    combine = sizes * float(config.block_n * OUTPUT_BYTES)
    fraction = workload.combine_remote_fraction
    activations = sizes * config.block_n / 2 * workload.activation_bytes

    def stores1_ns(part: float) -> Floats:
        return epilogue_ns + part * activations / local_rate

    def stores2_ns(part: float) -> Floats:
        remote = part * fraction * combine
        free_ns = np.zeros_like(remote)
        if part * fraction > 0 and sizes.size:
            free_ns = issue_ns(platform, config.store_flavour, sms, remote)
        return epilogue_ns + (part * combine - remote) / local_rate + free_ns

    def layer(tiles: RowTiles, depth: int, stores_ns: Callable[[float], Floats]) -> LayerLoad:
        mainloop_ns = times.mainloop_ns(sizes, depth)
        stored_ns = [(stores_ns(part), number) for part, number in tiles.parts()]
        return LayerLoad(
            row_tiles=tiles.count,
            mean_ns=_mean(mainloop_ns, counts),
            least_ns=float(mainloop_ns.min(initial=np.inf)),
            issue_ns=sum(_mean(each, counts) * number for each, number in stored_ns) / tiles.count,
            least_issue_ns=min(float(each.min(initial=np.inf)) for each, _ in stored_ns),
            weight_tile_bytes=config.block_n * depth * workload.weight_bytes * tiles.filled,
        )

    tiles1, tiles2 = linear_tiles(config, workload, architecture)
    linear1 = layer(tiles1, workload.linear1_shape[1], stores1_ns)
    waits = tells_shared_room(platform, config.store_flavour)
    loaded_ahead = config.pipeline_stages * config.block_k / workload.hidden
    return MoeLoad(
        rows=-(-tokens // config.block_m),
        sms=sms // architecture.cta_group * architecture.cta_group,
        # A tile needs tensor memory from its begin, but an output buffer only once it is computed.
        slots=config.staging_depth if architecture.tensor_memory else config.staging_depth + 1,
        linear1=linear1,
        linear2=layer(tiles2, workload.linear2_shape[1], stores2_ns),
        remote_bytes=float(combine @ counts) * fraction * tiles2.extent,
        drain_bytes_per_s=platform.drain.bytes_per_s,
        capacity_bytes=float(capacity_bytes(platform, config.store_flavour, sms)),
        memory_bytes_per_s=compute_of(platform).memory_bytes_per_s,
        latencies=latencies_of(platform),
        load_cover_ns=loaded_ahead * linear1.mean_ns if waits else math.inf,
    )


def _row_sizes(tokens: Ints, block_m: int) -> tuple[Ints, Ints]:
    """Distinct tokens of a row, and how many rows have them."""
    partial = tokens % block_m
    rows = np.concatenate((np.array([block_m]), partial[partial > 0]))
    counts = np.concatenate((np.array([(tokens // block_m).sum()]), np.ones(rows.size - 1, np.int64)))
    return rows[counts > 0], counts[counts > 0]


def _mean(values: Floats, counts: Ints) -> float:
    total = int(counts.sum())
    return float(values @ counts) / total if total else 0.0
