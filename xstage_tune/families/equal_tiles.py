"""Launches of equal tiles that wait for none: what bounds and predicts them in closed form."""

from __future__ import annotations

from dataclasses import dataclass

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.families.floors import Floors
from xstage_tune.families.prediction import Prediction
from xstage_tune.families.tile_times import local_store_bytes_per_ns
from xstage_tune.model.burst_gap import drain_ns, isolated_issue_ns, issue_ns
from xstage_tune.platforms import queries
from xstage_tune.platforms.rooms import tells_shared_room
from xstage_tune.platforms.schema import PlatformProfile


@dataclass(frozen=True, slots=True)
class EqualTiles:
    """What the tiles of a config ask of one rank's SMs and path.

    Args:
        tiles: output tiles; where CTAs share them, each CTA's part of one counts as a tile.
        sms: CTAs of the launch, in whole teams where they share tiles.
        tile_ns: G, the mainloop of one.
        cover_ns: how far a mainloop gets while the tile before it is stored.
        staging_ns: of a full tile before its remote stores: epilogue and local stores.
        least_staging_ns: of any tile.
        free_issue_ns: T0 of its remote bytes.
        remote_bytes: that leave, all together.
        burst_bytes: V, of a round of all SMs' tiles: the mean of those that a mainloop follows; 0 if none
            does.
        last_round_bytes: of the last round, which no mainloop follows and which may be part of one.
        drain_bytes_per_s: R.
        capacity_bytes: Q at this many producers.
        operand_wait_ns: how long a round's burst holds up a mainloop that has used up its operands; 0 where
            the platform does not tell how Q is divided.
        paced: stores are spread over the next mainloop, so that nothing waits behind them.
    """

    tiles: int
    sms: int
    tile_ns: float
    cover_ns: float
    staging_ns: float
    least_staging_ns: float
    free_issue_ns: float
    remote_bytes: float
    burst_bytes: float
    last_round_bytes: float
    drain_bytes_per_s: float
    capacity_bytes: float
    operand_wait_ns: float
    paced: bool

    @property
    def rounds(self) -> int:
        """Tiles of the SM that has most."""
        return -(-self.tiles // self.sms)

    @property
    def mainloops_ns(self) -> float:
        """Mainloops of the SM that has most."""
        return self.rounds * self.tile_ns

    @property
    def drain_tile_ns(self) -> float:
        """V/R of a burst in which every SM stores one tile."""
        return self._drained_ns(self.burst_bytes)

    @property
    def last_drain_ns(self) -> float:
        """V/R of the last round."""
        return self._drained_ns(self.last_round_bytes)

    def _drained_ns(self, volume_bytes: float) -> float:
        return float(drain_ns(volume_bytes=volume_bytes, drain_bytes_per_s=self.drain_bytes_per_s))

    def floors(self) -> Floors:
        """Lower bounds that hold for every tile order; operands from memory are in the time of a tile."""
        leaving_ns = self._drained_ns(self.remote_bytes)
        return Floors(
            compute_ns=self.mainloops_ns + self.least_staging_ns,
            issue_ns=self.tile_ns + self.rounds * self.least_staging_ns,
            drain_ns=self.tile_ns + self.least_staging_ns + leaving_ns if leaving_ns else 0.0,
        )

    def prediction(self) -> Prediction:
        """Expected time: rounds of aligned bursts, the last of which drains behind all mainloops.

        A burst stalls the next mainloop by what its cover leaves of T_RS, or by the operands that wait behind
        it. Paced stores stall it by what a mainloop is too short to drain.
        """
        if self.paced:
            exposed_ns = max(0.0, self.drain_tile_ns - self.tile_ns)
        else:
            exposed_ns = max(0.0, self._burst_span_ns() - self.cover_ns, self.operand_wait_ns)
        stall_ns = (self.rounds - 1) * exposed_ns
        last_ns = self.staging_ns + max(self.free_issue_ns, self.last_drain_ns)
        return Prediction(self.mainloops_ns + stall_ns + last_ns, stall_ns)

    def _burst_span_ns(self) -> float:
        """T_RS of a round's bursts: staging, and equation 3 or 7, whichever is more."""
        alone_ns = isolated_issue_ns(
            free_issue_ns=self.free_issue_ns,
            volume_bytes=self.burst_bytes,
            drain_bytes_per_s=self.drain_bytes_per_s,
            capacity_bytes=self.capacity_bytes,
        )
        steady_ns = issue_ns(
            gap_ns=self.tile_ns,
            free_issue_ns=self.free_issue_ns,
            volume_bytes=self.burst_bytes,
            drain_bytes_per_s=self.drain_bytes_per_s,
        )
        return self.staging_ns + max(float(alone_ns), float(steady_ns))


def equal_tiles(
    platform: PlatformProfile,
    flavour: StoreFlavour,
    *,
    tiles: int,
    sms: int,
    tile_ns: float,
    cover_ns: float,
    epilogue_ns: float,
    tile_bytes: float,
    remote_fraction: float,
    remote_bytes: float,
    last_round_bytes: float,
    operands_ns: float,
    paced: bool = False,
) -> EqualTiles:
    """The tiles of a config, with what the platform says of their stores.

    Args:
        epilogue_ns: of a tile, before any of its stores.
        tile_bytes: that a full tile stores.
        remote_fraction: of them, in the mean.
        operands_ns: how long a mainloop goes on with the operands in its pipeline's stages.
        others: as :class:`EqualTiles` has them.

    Raises:
        UsageError: the platform lacks compute figures, T0 or Q.
    """
    followed = max(1, -(-tiles // sms) - 1)
    burst_bytes = max(0.0, remote_bytes - last_round_bytes) / followed
    operand_wait_ns = 0.0
    if tells_shared_room(platform, flavour):
        burst_ns = drain_ns(volume_bytes=burst_bytes, drain_bytes_per_s=platform.drain.bytes_per_s)
        operand_wait_ns = max(0.0, float(burst_ns) - operands_ns)
    free_ns = queries.issue_ns(platform, flavour, sms, tile_bytes * remote_fraction) if remote_fraction else 0
    return EqualTiles(
        tiles=tiles,
        sms=sms,
        tile_ns=tile_ns,
        cover_ns=cover_ns,
        staging_ns=epilogue_ns + tile_bytes * (1 - remote_fraction) / local_store_bytes_per_ns(platform),
        least_staging_ns=epilogue_ns,
        free_issue_ns=float(free_ns),
        remote_bytes=remote_bytes,
        burst_bytes=burst_bytes,
        last_round_bytes=last_round_bytes,
        drain_bytes_per_s=platform.drain.bytes_per_s,
        capacity_bytes=float(queries.capacity_bytes(platform, flavour, sms)),
        operand_wait_ns=operand_wait_ns,
        paced=paced,
    )
