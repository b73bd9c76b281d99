"""What an attention config asks of one rank's SMs and path, in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from xstage_tune.families.attention_a2a.budget import staged_rows
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.launch import attention_grid, last_round_remote_bytes
from xstage_tune.families.attention_a2a.tile_times import attention_tile_times
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.tile_times import local_store_bytes_per_ns
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.model.attention import output_tile_bytes
from xstage_tune.platforms.queries import capacity_bytes, issue_ns
from xstage_tune.platforms.rooms import shared_room_bytes
from xstage_tune.platforms.schema import PlatformProfile


@dataclass(frozen=True, slots=True)
class AttentionLoad:
    """A launch of equal Q-loops.

    Args:
        tiles: output tiles; where CTAs share them, each CTA's part of one counts as a tile.
        sms: CTAs of the launch, in whole teams where they share tiles.
        q_loop_ns: G_Qloop.
        cover_ns: how far a Q-loop gets while the tile before it is stored.
        staging_ns: of a full tile before its remote stores: epilogue and local stores.
        least_staging_ns: of any tile.
        free_issue_ns: T0 of its remote bytes.
        remote_bytes: that leave, all together.
        burst_bytes: V, of a round of all SMs' tiles: the mean of those that a Q-loop follows; 0 if none does.
        last_round_bytes: of the last round, which no Q-loop follows and which may be part of one.
        drain_bytes_per_ns: R.
        capacity_bytes: Q at this many producers.
        operand_wait_ns: how long a round's burst holds up a Q-loop that has used up its operands; 0 where the
            platform does not tell how Q is divided.
        paced: stores are spread over the next Q-loop, so that nothing waits behind them.
    """

    tiles: int
    sms: int
    q_loop_ns: float
    cover_ns: float
    staging_ns: float
    least_staging_ns: float
    free_issue_ns: float
    remote_bytes: float
    burst_bytes: float
    last_round_bytes: float
    drain_bytes_per_ns: float
    capacity_bytes: float
    operand_wait_ns: float
    paced: bool

    @property
    def rounds(self) -> int:
        """Tiles of the SM that has most."""
        return -(-self.tiles // self.sms)

    @property
    def mainloop_ns(self) -> float:
        """Q-loops of the SM that has most."""
        return self.rounds * self.q_loop_ns

    @property
    def drain_tile_ns(self) -> float:
        """V/R of a burst in which every SM stores one tile."""
        return self.burst_bytes / self.drain_bytes_per_ns

    @property
    def last_drain_ns(self) -> float:
        """V/R of the last round."""
        return self.last_round_bytes / self.drain_bytes_per_ns


def attention_load(
    config: AttentionConfig, workload: AttentionWorkload, platform: PlatformProfile
) -> AttentionLoad:
    """The load of a config.

    Raises:
        UsageError: the platform lacks compute figures, T0 or Q.
    """
    grid = attention_grid(config, workload, platform)
    sms = grid.teams * grid.kv_splits
    times = attention_tile_times(config, workload, platform)
    fraction = workload.output_remote_fraction
    size = float(
        output_tile_bytes(block_m=staged_rows(config), head_dim=workload.head_dim, element_bytes=OUTPUT_BYTES)
    )
    q_loop_ns = times.q_loop_ns
    covers = {"alias-q": 0.0, "alias-v": min(times.cover_ns, q_loop_ns), "dedicated-x1": q_loop_ns}
    last_round_bytes = last_round_remote_bytes(config, workload, platform)
    burst_bytes = max(0.0, workload.remote_bytes - last_round_bytes) / max(1, grid.rounds - 1)
    drain_bytes_per_ns = platform.drain.bytes_per_s / 1e9
    operand_wait_ns = 0.0
    if isfinite(shared_room_bytes(platform, config.store_flavour)):
        operand_wait_ns = max(0.0, burst_bytes / drain_bytes_per_ns - config.kv_stages * times.kv_tile_ns)
    return AttentionLoad(
        tiles=grid.tiles * grid.kv_splits,
        sms=sms,
        q_loop_ns=q_loop_ns,
        cover_ns=covers.get(config.output_staging, 2 * q_loop_ns),
        staging_ns=times.epilogue_ns + size * (1 - fraction) / local_store_bytes_per_ns(platform),
        least_staging_ns=times.epilogue_ns,
        free_issue_ns=float(issue_ns(platform, config.store_flavour, sms, size * fraction))
        if fraction > 0
        else 0.0,
        remote_bytes=workload.remote_bytes,
        burst_bytes=burst_bytes,
        last_round_bytes=last_round_bytes,
        drain_bytes_per_ns=drain_bytes_per_ns,
        capacity_bytes=float(capacity_bytes(platform, config.store_flavour, sms)),
        operand_wait_ns=operand_wait_ns,
        paced=config.paces_stores,
    )
