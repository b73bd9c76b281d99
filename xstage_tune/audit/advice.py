"""From violated bounds to what an engineer can change, with the numbers that would satisfy them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Literal

from xstage_tune.audit.attention import AttentionAudit, audit_attention
from xstage_tune.audit.bursts import BurstTerms
from xstage_tune.audit.figures import Figure, derived
from xstage_tune.audit.moe import MoeAudit
from xstage_tune.audit.prediction import SchedulePrediction
from xstage_tune.configs.resources import check_config
from xstage_tune.configs.schema import AttentionConfig, KernelConfig, MegaMoeConfig
from xstage_tune.devices.fused_launch import attention_grid
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.report.format import byte_count, duration
from xstage_tune.workloads.schema import OUTPUT_BYTES, AttentionWorkload, MoeWorkload, Workload

ActionKind = Literal[
    "interleave", "raise_lead", "smaller_bursts", "fewer_producers", "longer_sequence", "piggyback", "search"
]


@dataclass(frozen=True, slots=True)
class Action:
    """One change; ``limit`` is the number that satisfies the bound, in the unit that ``kind`` implies.

    ``interleave``: lead D in rows. ``raise_lead``: least lead in rows. ``smaller_bursts``: most bytes
    of one producer's burst. ``fewer_producers``: most producers that may align. ``longer_sequence``: fewest
    tokens.
    """

    kind: ActionKind
    limit: Figure | None
    text: str


def moe_actions(layer: MoeWorkload, config: MegaMoeConfig, audit: MoeAudit) -> tuple[Action, ...]:
    """What to change in a layer's kernel, the most useful first; piggyback where nothing need be."""
    audited, interleaved = audit.predicted[audit.schedule], audit.predicted["interleaved"]
    raised = [_raise_lead(audit, audited, interleaved)] if audit.starved else []
    if _passes(audit.burst, audited):
        return (_piggyback(), *raised)
    widens = not audited.rate_ok and interleaved.gap_ns.value > audited.gap_ns.value
    actions = raised or ([_interleave(audit, audited, interleaved)] if widens else [])
    reached = interleaved if widens else audited
    if not _passes(audit.burst, reached):
        column_bytes = audit.burst.burst_bytes.value / config.block_n
        actions += _shrink(audit.burst, reached, _TileSide(layer, config, "block_n", column_bytes))
    return tuple(actions)


def attention_actions(
    workload: AttentionWorkload, config: AttentionConfig, audit: AttentionAudit
) -> tuple[Action, ...]:
    """What to change in an attention kernel; piggyback where nothing need be."""
    if _passes(audit.burst, audit.predicted):
        return (_piggyback(),)
    actions = [] if audit.predicted.rate_ok else [_longer_sequence(workload, config, audit)]
    row_bytes = workload.head_dim * OUTPUT_BYTES * workload.output_remote_fraction
    # Of a tile that CTAs share, each stores its part of the rows.
    side = _TileSide(workload, config, "block_m", row_bytes / config.kv_splits)
    return (*actions, *_shrink(audit.burst, audit.predicted, side))


def reconciled(
    advised: tuple[Action, ...], *, hides: bool, stalls: bool, searched: bool
) -> tuple[Action, ...]:
    """The advice of the bounds, in accord with a verdict that may be another than theirs.

    Args:
        advised: what satisfies the bounds.
        hides: the verdict: the launch hides its remote stores.
        stalls: the closed forms predict a stall; where the launch has none, neither do its remedies matter.
        searched: the config was given, maybe by a search.
    """
    others = tuple(action for action in advised if action.kind != "piggyback")
    if hides:
        kept = tuple(action for action in others if action.kind == "raise_lead" or not stalls)
        return (_piggyback(), *kept)
    return others if others and searched else (*others, _search())


def _passes(burst: BurstTerms, prediction: SchedulePrediction) -> bool:
    return burst.rate_ok(prediction.gap_ns.value) and burst.capacity_ok


def _piggyback() -> Action:
    text = (
        "let the role that owns the output issue the burst and go back to work; reserve none to communicate"
    )
    return Action("piggyback", None, text)


def _search() -> Action:
    return Action("search", None, "xstage-tune search finds the tiles and the order that expose least")


def _interleave(audit: MoeAudit, audited: SchedulePrediction, interleaved: SchedulePrediction) -> Action:
    knee, lead = audit.lead_knee_rows.value, audit.lead_rows.value
    return Action(
        "interleave",
        audit.lead_rows,
        f"interleave Linear-1 with Linear-2 tiles, lead D = {lead:.0f} rows (D_knee is {knee:.1f}): "
        f"{_widening(audit, audited, interleaved)}",
    )


def _raise_lead(audit: MoeAudit, audited: SchedulePrediction, interleaved: SchedulePrediction) -> Action:
    least = derived(ceil(audit.lead_knee_rows.value), "D_knee, rounded up", audit.lead_knee_rows)
    return Action(
        "raise_lead",
        least,
        f"raise the lead to at least {least.value:.0f} rows, better D = {audit.lead_rows.value:.0f}: "
        f"{_widening(audit, audited, interleaved)}",
    )


def _widening(audit: MoeAudit, audited: SchedulePrediction, interleaved: SchedulePrediction) -> str:
    """What the interleaved schedule's gap does for the rate bound."""
    gaps = f"raises the gap from {duration(audited.gap_ns.value)} to {duration(interleaved.gap_ns.value)}"
    target = duration(audit.burst.recovery_gap_ns.value)
    enough = (
        f"G* = {target} is reached"
        if interleaved.rate_ok
        else f"G* = {target} is not reached: the bursts have to shrink too"
    )
    return f"{gaps}; {enough}"


def _longer_sequence(workload: AttentionWorkload, config: AttentionConfig, audit: AttentionAudit) -> Action:
    """M*_ub of bursts of all SMs: with fewer, bursts grow as fast as the gap does."""
    platform = audit.burst.platform
    tiles_at_once = attention_grid(config, workload, platform).teams
    whole_round = config.block_m * ceil(tiles_at_once / workload.local_heads)
    longer = workload.model_copy(update={"tokens": max(workload.tokens, whole_round)})
    found = audit_attention(longer, platform, config)
    tokens = max(longer.tokens, ceil(found.converged_tokens.value))
    limit = derived(tokens, "M*_ub of bursts of all SMs, rounded up", found.converged_tokens)
    gap, target = duration(audit.predicted.gap_ns.value), duration(found.burst.recovery_gap_ns.value)
    text = f"from {tokens:,} tokens on the gap is G* = {target}; at {workload.tokens:,} it is {gap}"
    return Action("longer_sequence", limit, text)


@dataclass(frozen=True, slots=True)
class _TileSide:
    """The side of a config's tile that a burst grows with, by ``unit_bytes`` for each row or column."""

    workload: Workload
    config: KernelConfig
    key: str
    unit_bytes: float

    def largest(self, burst_bytes: float, platform: PlatformProfile) -> int | None:
        """The longest side that runs and whose burst is at most ``burst_bytes``; None if no side does."""
        for side in range(int(burst_bytes // self.unit_bytes), 0, -1):
            if check_config(
                self.config.model_copy(update={self.key: side}), self.workload, platform
            ).feasible:
                return side
        return None


def _shrink(burst: BurstTerms, prediction: SchedulePrediction, tile: _TileSide) -> Iterator[Action]:
    """Smaller bursts and fewer producers. A smaller tile also has a shorter gap, so it only helps with Q."""
    gap_ns = prediction.gap_ns.value
    largest, most = burst.largest_burst_bytes(gap_ns), burst.most_producers(gap_ns)
    if largest:
        now, side = byte_count(burst.burst_bytes.value), tile.largest(largest.value, burst.platform)
        smaller = f", or take {tile.key} <= {side}" if side else ""
        how = (
            f"store a tile in parts over its mainloop{smaller}"
            if prediction.rate_ok
            else "send fewer bytes a tile; a smaller tile alone shortens the gap as much"
        )
        text = f"at most {byte_count(largest.value)} a producer and burst, now {now}: {how}"
        yield Action("smaller_bursts", largest, f"{text}; {_exposure(prediction)}")
    if most:
        how = (
            "offset the tile boundaries of the others"
            if prediction.rate_ok
            else "give the others work without remote stores meanwhile"
        )
        text = f"at most {most.value:.0f} producers storing together, now {burst.producers}: {how}"
        yield Action("fewer_producers", most, text)


def _exposure(prediction: SchedulePrediction) -> str:
    """What the violation costs if nothing is done."""
    added, stall = duration(prediction.issue_overhead_ns.value), prediction.stall_ns.value
    if not stall:
        return f"until then issue takes {added} longer, which local staging hides"
    return f"until then issue takes {added} longer and each tile stalls for {duration(stall)}"
