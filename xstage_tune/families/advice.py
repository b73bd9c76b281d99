"""From violated bounds to what an engineer can change, with the numbers that would satisfy them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from xstage_tune.base.number_format import byte_count, duration
from xstage_tune.estimates.bursts import BurstTerms
from xstage_tune.estimates.figures import Figure
from xstage_tune.estimates.schedule import SchedulePrediction
from xstage_tune.families.config import KernelConfig

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

    def largest(self, burst_bytes: float) -> int | None:
        """The longest side that runs and whose burst is at most ``burst_bytes``; None if no side does."""
        for side in range(int(burst_bytes // self.unit_bytes), 0, -1):
            if self.fits(self.config.model_copy(update={self.key: side})):
                return side
        return None


def shrink(burst: BurstTerms, prediction: SchedulePrediction, tile: TileSide) -> Iterator[Action]:
    """Smaller bursts and fewer producers. A smaller tile also has a shorter gap, so it only helps with Q."""
    gap_ns = prediction.gap_ns.value
    largest, most = burst.largest_burst_bytes(gap_ns), burst.most_producers(gap_ns)
    if largest:
        now, side = byte_count(burst.burst_bytes.value), tile.largest(largest.value)
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
