"""From violated bounds to what an engineer can change, with the numbers that would satisfy them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from xstage_tune.base.number_format import byte_count, duration, share
from xstage_tune.estimates.bursts import BurstTerms
from xstage_tune.estimates.figures import Figure
from xstage_tune.estimates.schedule import SchedulePrediction
from xstage_tune.families.config import KernelConfig

ActionKind = Literal[
    "interleave",
    "raise_lead",
    "longer_gap",
    "smaller_bursts",
    "smaller_tile",
    "fewer_producers",
    "longer_sequence",
    "piggyback",
    "search",
]


#: What tells on a GPU whether a change of the config helps.
_MEASURED_BY = "xstage-tune search or emulate on a GPU"


@dataclass(frozen=True, slots=True)
class Action:
    """One change; ``limit`` is the number that satisfies the bound, in the unit that ``kind`` implies.

    ``interleave``: lead D in rows. ``raise_lead``: least lead in rows. ``longer_gap``: least ns.
    ``smaller_bursts``, ``smaller_tile``: most bytes of one producer's burst. ``fewer_producers``: most
    producers that may align. ``longer_sequence``: fewest tokens.

    Args:
        config: the audited config with the change; None where that takes more than other values of its keys.
        saves_ns: what its launch takes less than the audited one's, negative where it takes more; None where
            that was not simulated.
    """

    kind: ActionKind
    limit: Figure | None
    text: str
    config: KernelConfig | None = None
    saves_ns: Figure | None = None


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
        return (piggyback(), *kept)
    return others if others and searched else (*others, _search())


def weighed(
    advised: tuple[Action, ...], latency_ns: float, worth: float
) -> tuple[tuple[Action, ...], tuple[Action, ...]]:
    """The advice of the bounds in accord with what its changes did to a simulated launch.

    The bounds tell what would satisfy them, not what a launch gains by it: its tiles wait for inputs too, and
    another tile or order changes that.

    Args:
        advised: of which those with :attr:`Action.saves_ns` were simulated.
        latency_ns: of the audited launch.
        worth: part of the launch below which a change decides nothing.

    Returns:
        What is advised still, that saves most first, what decides nothing after that; and what would make the
        launch longer.
    """
    better, even, worse = [], [], []
    for action in advised:
        if action.saves_ns is None:
            even.append(action)
            continue
        saves_ns = action.saves_ns.value
        part = f"{duration(abs(saves_ns))}, {share(abs(saves_ns) / latency_ns)} of it,"
        if saves_ns > worth * latency_ns:
            better.append(replace(action, text=f"{action.text}. Simulated, the launch takes {part} less"))
        elif saves_ns < -worth * latency_ns:
            worse.append(replace(action, text=f"not advised: simulated, the launch takes {part} more"))
        else:
            text = (
                f"{action.text}. Undecided: simulated, the launch takes as long; measure it by {_MEASURED_BY}"
            )
            even.append(replace(action, text=text))
    better.sort(key=lambda action: -action.saves_ns.value if action.saves_ns else 0.0)
    return (*better, *even), tuple(worse)


def passes(burst: BurstTerms, prediction: SchedulePrediction) -> bool:
    return burst.rate_ok(prediction.gap_ns.value) and burst.capacity_ok


def piggyback() -> Action:
    text = (
        "let the role that owns the output issue the burst and go back to work; reserve none to communicate"
    )
    return Action("piggyback", None, text)


def _search() -> Action:
    return Action("search", None, "xstage-tune search finds the tiles and the order that expose least")


@dataclass(frozen=True, slots=True)
class TileSide:
    """The side of a config's tile that a burst grows with, by ``unit_bytes`` for each row or column.

    Args:
        fits: whether a config can run.
    """

    config: KernelConfig
    key: str
    unit_bytes: float
    fits: Callable[[Any], bool]

    def largest(self, burst_bytes: float) -> KernelConfig | None:
        """The config of the longest side that runs with no larger bursts; None if none does."""
        for side in range(int(burst_bytes // self.unit_bytes), 0, -1):
            shorter = self.config.model_copy(update={self.key: side})
            if self.fits(shorter):
                return shorter
        return None


def lengthen(burst: BurstTerms, prediction: SchedulePrediction) -> Iterator[Action]:
    """A gap of G*, where the gap is shorter."""
    if not prediction.rate_ok:
        now, least = duration(prediction.gap_ns.value), duration(burst.recovery_gap_ns.value)
        text = f"at least {least} of work without remote stores between two bursts, now {now}"
        yield Action("longer_gap", burst.recovery_gap_ns, text)


def shrink(
    burst: BurstTerms, prediction: SchedulePrediction, tile: TileSide | None = None
) -> Iterator[Action]:
    """Smaller bursts and fewer producers. A smaller tile also has a shorter gap, so it only helps with Q.

    Args:
        tile: that the bursts are of; None where that is not known.
    """
    gap_ns = prediction.gap_ns.value
    largest, most = burst.largest_burst_bytes(gap_ns), burst.most_producers(gap_ns)
    if largest:
        now, fits = byte_count(burst.burst_bytes.value), byte_count(largest.value)
        how = (
            "store a tile in parts over its mainloop"
            if prediction.rate_ok
            else "send fewer bytes a tile; a smaller tile alone shortens the gap as much"
        )
        text = f"at most {fits} a producer and burst, now {now}: {how}; {_exposure(prediction)}"
        yield Action("smaller_bursts", largest, text)
        if tile and prediction.rate_ok and (shorter := tile.largest(largest.value)):
            side = getattr(shorter, tile.key)
            yield Action("smaller_tile", largest, f"{tile.key} <= {side}: bursts of at most {fits}", shorter)
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
