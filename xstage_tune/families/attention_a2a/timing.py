"""The seam where an attention and its All-to-All are timed: a case in; checks, replays and spans out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StorePath
from xstage_tune.base.field_types import Count, Positive
from xstage_tune.base.spans import LANE_DTYPE, SPAN_DTYPE, SpanTable
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.ownership import first_token, rows_per_rank
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.launches.device import DeviceDescription, LaunchInfo, Verification

#: ``attention``: the fused kernel with one local destination, T_FA. ``all-to-all``: the direct stores alone.
#: ``serial-direct``, ``serial-copy``, ``serial-permute``: the attention, then the All-to-All by direct stores
#: of all SMs, by the copy engine, or by contiguous copies and a permute. ``fused``: the attention whose
#: output tiles leave as remote stores. ``attention-recording``, ``fused-recording``: those two, built
#: to record spans.
Implementation = Literal[
    "attention",
    "all-to-all",
    "serial-direct",
    "serial-copy",
    "serial-permute",
    "fused",
    "attention-recording",
    "fused-recording",
]
SERIAL: tuple[Implementation, ...] = ("serial-direct", "serial-copy", "serial-permute")
#: Those that leave spans off.
IMPLEMENTATIONS: tuple[Implementation, ...] = ("attention", "all-to-all", *SERIAL, "fused")
#: The recording variant of each implementation that has one.
RECORDING: Mapping[Implementation, Implementation] = {
    "attention": "attention-recording",
    "fused": "fused-recording",
}
#: Attentions that store to local memory alone; those of the other one of :data:`RECORDING` go to all ranks.
STORE_LOCALLY: tuple[Implementation, ...] = ("attention", RECORDING["attention"])


@dataclass(frozen=True, slots=True)
class ProfileCase:
    """One shape and config, all of whose implementations are timed together.

    The rank profiled is rank 0. The buffers of the last ``remote_ranks`` ranks are on ``path``, those of the
    others in the GPU's own memory.

    Args:
        label: unique in a request; empty for its only one.
        heads: of this rank.
        seed: of the inputs.
    """

    label: str
    tokens: int
    heads: int
    head_dim: int
    ranks: int
    remote_ranks: int
    config: AttentionConfig
    path: StorePath
    seed: int = 0

    @property
    def flops(self) -> int:
        """Of both matrix products on this rank."""
        return 4 * self.tokens**2 * self.head_dim * self.heads

    @property
    def rows_per_rank(self) -> int:
        """Tokens that a rank owns; the last ranks may own fewer."""
        return rows_per_rank(self.tokens, self.ranks)

    @property
    def local_ranks(self) -> int:
        """Ranks from the profiled one on whose buffers are local."""
        return self.ranks - self.remote_ranks

    @property
    def local_tokens(self) -> int:
        """Tokens from the first one on whose owners' buffers are local."""
        return first_token(self.tokens, self.ranks, self.local_ranks)

    @property
    def output_bytes(self) -> int:
        """Of this rank's attention output."""
        return self.tokens * self.heads * self.head_dim * OUTPUT_BYTES

    @property
    def remote_bytes(self) -> int:
        """What of it leaves for the path."""
        return self.output_bytes // self.tokens * (self.tokens - self.local_tokens)


def profile_case(
    label: str, workload: AttentionWorkload, config: AttentionConfig, path: StorePath, seed: int
) -> ProfileCase:
    """The case of a workload.

    Raises:
        UsageError: its remote fraction is no whole number of ranks, so no buffers have it.
    """
    if workload.remote_ranks is None:
        raise UsageError(
            f"'{workload.name}': remote_fraction = {workload.output_remote_fraction:g} of "
            f"{workload.degree} ranks is no whole number of ranks",
            f"a fraction in steps of 1/{workload.degree} has buffers; or leave it out",
        )
    return ProfileCase(
        label=label,
        tokens=workload.tokens,
        heads=workload.local_heads,
        head_dim=workload.head_dim,
        ranks=workload.degree,
        remote_ranks=workload.remote_ranks,
        config=config,
        path=path,
        seed=seed,
    )


@dataclass(frozen=True, slots=True)
class CheckFigures:
    """Whether an implementation's output is right.

    Args:
        relative_error: norm of the error over that of an fp32 reference, on sampled tokens of all heads; of
            the attention alone. The others' outputs have to equal the attention's bit for bit.
        place: where the output is wrong first, or for the attention most; empty where it is right.
    """

    relative_error: float | None
    place: str
    what: Literal["check"] = "check"


@dataclass(frozen=True, slots=True)
class ReplayFigures:
    """Replays of a CUDA graph: ``launches`` of an implementation back to back, or in some runs of them.

    Args:
        time_ns: of one of them, between events around each run; the mean.
    """

    launches: Count
    time_ns: Positive
    what: Literal["replay"] = "replay"


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of a kind of spans; times in ns."""

    count: int
    mean_ns: float
    p50_ns: float
    p90_ns: float
    p99_ns: float
    max_ns: float


@dataclass(frozen=True, slots=True)
class SpanFigures:
    """Spans of one launch of a recording variant; None where no tile has the span.

    Args:
        launch_ns: on the sender: from the first CTA's begin until the last one has issued its stores.
        tiles: whose spans were kept, in whole. Of a tile that CTAs share each CTA's part is one.
        dropped: spans that found no room.
        q_loop: of a tile, the mean of its warpgroups.
        staging_wait: of a tile, for its staging slot: the longest of its warpgroups.
        issue: T_RS of a tile with remote rows, from its first warpgroup's first store to the last one's end.
            Of a launch that stores nothing remotely, of every tile: the local control.
        warpgroup_issue: T_RS of 64 rows of such a tile.
    """

    launch_ns: float
    tiles: int
    dropped: int
    q_loop: Distribution | None
    staging_wait: Distribution | None
    issue: Distribution | None
    warpgroup_issue: Distribution | None
    what: Literal["spans"] = "spans"


Figures = CheckFigures | ReplayFigures | SpanFigures


#: Of launches that record none.
NO_SPANS = SpanTable(np.empty(0, SPAN_DTYPE), np.empty(0, LANE_DTYPE))
#: Of launches whose output nobody reads.
NOT_VERIFIED = Verification(checked_bytes=0, mismatched_bytes=0)


@dataclass(frozen=True, slots=True)
class ProfileLaunch:
    """One thing that was done with an implementation of a case.

    Args:
        producers: CTAs of the attention, SMs of an All-to-All.
        verification: of a check; nothing else is verified.
        table: spans of a recording launch; otherwise empty.
    """

    case: ProfileCase
    implementation: Implementation
    producers: int
    figures: Figures
    table: SpanTable
    verification: Verification
    launch: LaunchInfo


class PreparedProfile(Protocol):
    """A case with its kernels and memory, on a device."""

    def check(self, implementation: Implementation) -> ProfileLaunch:
        """Run once on poisoned buffers and compare the output; ``attention`` first.

        Raises:
            DeviceError: the launch failed.
        """
        ...

    def replay(self, in_turn: Sequence[Implementation]) -> Sequence[ProfileLaunch]:
        """Time graphs of implementations that run in turn, over and over, without a pause.

        Returns:
            A launch for each, in the same order.

        Raises:
            DeviceError: a replay failed or did not end.
        """
        ...

    def record(self, implementation: Implementation) -> ProfileLaunch:
        """Spans of an implementation of :data:`RECORDING`: of the last of some launches of its variant.

        The device rests before, so that clocks are those of neither the replays nor the other recording.

        Raises:
            DeviceError: the launch failed.
        """
        ...

    def close(self) -> None:
        """Free kernels and memory; safe to call twice."""
        ...


class ProfileDevice(Protocol):
    """Where attentions are profiled."""

    #: What ran them, as results name it: times of different identities are never compared.
    identity: str

    def describe(self) -> DeviceDescription:
        """Identity of the device; cheap."""
        ...

    def label_launches(self, run_id: str) -> None:
        """As :meth:`xstage_tune.launches.device.BurstDevice.label_launches`."""
        ...

    def prepare(self, case: ProfileCase) -> PreparedProfile:
        """Compile and allocate for a case.

        Raises:
            UsageError: the kernel or its recording variant lacks the config, or a size is out of its range.
            DeviceError: the GPU cannot run it, or there is too little memory: says how much is needed.
        """
        ...

    def close(self) -> None:
        """Free what the device holds; safe to call twice."""
        ...
