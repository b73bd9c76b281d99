"""What to change in a MoE layer's kernel, with the numbers that would satisfy the bounds."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from xstage_tune.base.number_format import duration
from xstage_tune.estimates.figures import derived
from xstage_tune.estimates.schedule import SchedulePrediction
from xstage_tune.families.advice import Action, TileSide, passes, piggyback, shrink
from xstage_tune.families.megamoe.config import MegaMoeConfig, Schedule
from xstage_tune.families.megamoe.estimate import MoeEstimate


def moe_actions(
    config: MegaMoeConfig, audit: MoeEstimate, fits: Callable[[MegaMoeConfig], bool]
) -> tuple[Action, ...]:
    """What to change in a layer's kernel, the most useful first; piggyback where nothing need be."""
    audited, interleaved = audit.predicted[audit.schedule], audit.predicted["interleaved"]
    ordered = _with_lead(config, audit, fits)
    raised = [_raise_lead(audit, audited, interleaved, ordered)] if audit.starved else []
    if passes(audit.burst, audited):
        return (piggyback(), *raised)
    widens = not audited.rate_ok and interleaved.gap_ns.value > audited.gap_ns.value
    actions = raised or ([_interleave(audit, audited, interleaved, ordered)] if widens else [])
    reached = interleaved if widens else audited
    if not passes(audit.burst, reached):
        column_bytes = audit.burst.burst_bytes.value / config.block_n
        actions += shrink(audit.burst, reached, TileSide(config, "block_n", column_bytes, fits))
    return tuple(actions)


def _with_lead(
    config: MegaMoeConfig, audit: MoeEstimate, fits: Callable[[MegaMoeConfig], bool]
) -> MegaMoeConfig | None:
    """The config interleaved with the lead to run with; None where that does not fit."""
    lead = Schedule(
        kind="interleaved", lead_rows=round(audit.lead_rows.value), placement=config.schedule.placement
    )
    ordered = config.model_copy(update={"schedule": lead})
    return ordered if fits(ordered) else None


def _interleave(
    audit: MoeEstimate,
    audited: SchedulePrediction,
    interleaved: SchedulePrediction,
    ordered: MegaMoeConfig | None,
) -> Action:
    knee, lead = audit.lead_knee_rows.value, audit.lead_rows.value
    return Action(
        "interleave",
        audit.lead_rows,
        f"interleave Linear-1 with Linear-2 tiles, lead D = {lead:.0f} rows (D_knee is {knee:.1f}): "
        f"{_widening(audit, audited, interleaved)}",
        ordered,
    )


def _raise_lead(
    audit: MoeEstimate,
    audited: SchedulePrediction,
    interleaved: SchedulePrediction,
    ordered: MegaMoeConfig | None,
) -> Action:
    least = derived(ceil(audit.lead_knee_rows.value), "D_knee, rounded up", audit.lead_knee_rows)
    return Action(
        "raise_lead",
        least,
        f"raise the lead to at least {least.value:.0f} rows, better D = {audit.lead_rows.value:.0f}: "
        f"{_widening(audit, audited, interleaved)}",
        ordered,
    )


def _widening(audit: MoeEstimate, audited: SchedulePrediction, interleaved: SchedulePrediction) -> str:
    """What the interleaved schedule's gap does for the rate bound."""
    gaps = f"raises the gap from {duration(audited.gap_ns.value)} to {duration(interleaved.gap_ns.value)}"
    target = duration(audit.burst.recovery_gap_ns.value)
    enough = (
        f"G* = {target} is reached"
        if interleaved.rate_ok
        else f"G* = {target} is not reached: the bursts have to shrink too"
    )
    return f"{gaps}; {enough}"
