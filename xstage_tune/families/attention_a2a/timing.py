"""Launches of an attention and its All-to-All: a case in; checks, replays and spans out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.families.attention_a2a.budget import staged_rows
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.ownership import first_token, rows_per_rank
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.config_files import config_keys
from xstage_tune.families.profiled import (
    CheckFigures,
    Distribution,
    ProfiledKind,
    ProfiledLaunch,
    ReplayFigures,
    What,
)
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.launches.device import LaunchKind, Outcome

#: ``attention``: the fused kernel with one local destination, T_FA. ``all-to-all``: the direct stores alone.
#: ``serial-direct``, ``serial-copy``, ``serial-permute``: the attention, then the All-to-All by direct stores
#: of all SMs, by the copy engine, or by contiguous copies and a permute. ``fused``: the attention whose
#: output tiles leave as remote stores. ``fused-received``: the same as a call over a group runs it, until all
#: ranks have signalled and this rank's tokens are copied to the caller. ``attention-recording``,
#: ``fused-recording``: attention and fused, built to record spans.
Implementation = Literal[
    "attention",
    "all-to-all",
    "serial-direct",
    "serial-copy",
    "serial-permute",
    "fused",
    "fused-received",
    "attention-recording",
    "fused-recording",
]
SERIAL: tuple[Implementation, ...] = ("serial-direct", "serial-copy", "serial-permute")
#: Those that leave spans off.
IMPLEMENTATIONS: tuple[Implementation, ...] = (
    "attention",
    "all-to-all",
    *SERIAL,
    "fused",
    "fused-received",
)
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
    def words(self) -> str:
        """See :class:`~xstage_tune.families.profiled.ProfiledCase`."""
        return self.config.label

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


@dataclass(frozen=True, slots=True)
class AttentionLaunch(ProfiledLaunch[ProfileCase, Implementation]):
    """See :class:`~xstage_tune.families.profiled.ProfiledLaunch`.

    Of checks the attention's own comes first, since the others' outputs have to equal it. Spans are those of
    the recording variant of an implementation of :data:`RECORDING`, after a rest, so that clocks are those of
    neither the replays nor the other recording.
    """

    @property
    def kind(self) -> LaunchKind[AttentionLaunch, Figures, AttentionPoint]:
        """See :class:`~xstage_tune.launches.device.Launch`."""
        return ATTENTIONS


AttentionOutcome = Outcome[AttentionLaunch, Figures]


def replays(case: ProfileCase, in_turn: Sequence[Implementation]) -> tuple[AttentionLaunch, ...]:
    """The launches that time implementations in turn."""
    turns = tuple(in_turn)
    return tuple(AttentionLaunch(case, one, "replay", turns, place) for place, one in enumerate(turns))


@dataclass(frozen=True, slots=True)
class AttentionPoint:
    """A launch of a profiled attention in the store.

    Args:
        label: of the case; empty for a run's only one.
        what: kind of the launch, as its figures name it.
        producers: CTAs of the attention, SMs of an All-to-All.
        remote_tile_bytes: that a CTA of the fused kernel stores of an output tile; 0 where none has remote
            bytes.
        config: keys of the attention's config.
    """

    label: str
    implementation: Implementation
    what: What
    path: StorePath
    flavour: StoreFlavour
    producers: int
    tokens: int
    heads: int
    head_dim: int
    ranks: int
    remote_ranks: int
    remote_bytes: int
    remote_tile_bytes: int
    config: dict[str, Any]
    mode: Literal["profile"] = "profile"

    @property
    def burst_bytes(self) -> int:
        """See :class:`~xstage_tune.launches.device.Point`."""
        return self.remote_tile_bytes

    @property
    def gap_ns(self) -> int:
        """See :class:`~xstage_tune.launches.device.Point`."""
        return 0


class _Attentions(ProfiledKind[AttentionLaunch, Figures, AttentionPoint]):
    name = "attentions"
    figures: TypeAdapter[Figures] = TypeAdapter(Annotated[Figures, Field(discriminator="what")])
    modes = ("profile",)
    points = TypeAdapter(AttentionPoint)

    def sha256(self, launch: AttentionLaunch) -> str:
        return case_sha256(launch.case)

    def point(self, outcome: AttentionOutcome) -> AttentionPoint:
        launch, case = outcome.launch, outcome.launch.case
        remote = 0 if launch.implementation in STORE_LOCALLY else case.remote_bytes
        rows = min(staged_rows(case.config), case.tokens)
        return AttentionPoint(
            label=case.label,
            implementation=launch.implementation,
            what=launch.what,
            path=case.path if remote else "local",
            flavour=case.config.store_flavour,
            producers=outcome.info.producers,
            tokens=case.tokens,
            heads=case.heads,
            head_dim=case.head_dim,
            ranks=case.ranks,
            remote_ranks=case.remote_ranks,
            remote_bytes=remote,
            remote_tile_bytes=case.output_bytes // case.tokens // case.heads * rows if remote else 0,
            config=config_keys(case.config),
        )


ATTENTIONS = _Attentions()


def case_sha256(case: ProfileCase) -> str:
    """Hash of a case: what a recorded launch is of."""
    keys = {one.name: getattr(case, one.name) for one in fields(case)}
    # Runs of before tiles were split are of none: the same case without the key.
    split = case.config.kv_splits > 1
    keys["config"] = {
        key: value for key, value in config_keys(case.config).items() if split or key != "kv_splits"
    }
    return hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()
