"""What an implementation takes beyond its reference, of replays with the same clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from xstage_tune.base.errors import UsageError
from xstage_tune.families.attention_a2a.timing import RECORDING, SERIAL, Implementation

#: What is compared with the attention alone.
COMPARED: tuple[Implementation, ...] = (*SERIAL, "fused", "fused-received")
#: The reference of each recording variant: the same without spans.
_UNRECORDED = {recording: one for one, recording in RECORDING.items()}


def block(implementation: Implementation) -> tuple[Implementation, ...]:
    """The replays of one comparison, in turn: the reference, twice the implementation, the reference.

    The reference is the attention alone; of a recording variant, what it records. What a replay inherits of
    the one before it, caches for one, drops out of the difference to first order: half of either kind follow
    the reference, half the implementation.
    """
    reference = _UNRECORDED.get(implementation, "attention")
    return reference, implementation, implementation, reference


@dataclass(frozen=True, slots=True)
class Comparison:
    """Times of an implementation and of its reference around it, in ns a launch."""

    own_ns: tuple[float, ...]
    reference_ns: tuple[float, ...]

    @property
    def beyond_ns(self) -> float:
        """What the implementation takes beyond its reference."""
        return fmean(self.own_ns) - fmean(self.reference_ns)


Comparisons = Mapping[Implementation, Sequence[Comparison]]


def alone_and_compared(
    order: Sequence[Sequence[Implementation]], replays: Sequence[tuple[Implementation, float]]
) -> tuple[Mapping[Implementation, Sequence[float]], Comparisons]:
    """Times in ns of what ran alone, and comparisons of what ran in blocks.

    Args:
        order: of the replays, as they were asked for: entries of one implementation, or blocks.
        replays: implementation and time of each, in turn; an interrupted run has fewer. What it broke off
            does not count.

    Raises:
        UsageError: these are other ones.
    """
    alone: dict[Implementation, list[float]] = {}
    compared: dict[Implementation, list[Comparison]] = {}
    begin = 0
    for in_turn in order:
        found = replays[begin : begin + len(in_turn)]
        begin += len(in_turn)
        names, times_ns = [name for name, _ in found], [time_ns for _, time_ns in found]
        if names != list(in_turn[: len(names)]):
            raise UsageError(
                f"replays of another version: {', '.join(names)} for {', '.join(in_turn)}", "profile again"
            )
        if len(names) < len(in_turn):
            break
        if len(in_turn) == 1:
            alone.setdefault(names[0], []).extend(times_ns)
        else:
            before_ns, first_ns, second_ns, behind_ns = times_ns
            comparison = Comparison((first_ns, second_ns), (before_ns, behind_ns))
            compared.setdefault(names[1], []).append(comparison)
    return alone, compared


def within_repeats(alone: Mapping[Implementation, Sequence[float]]) -> Comparisons:
    """Comparisons of replays that were made in repeats of one of each, with the attention of the same one.

    Args:
        alone: times in ns of the replays of each implementation, in the order of the repeats.
    """
    return {
        one: [
            Comparison((own_ns,), (attention_ns,))
            for own_ns, attention_ns in zip(alone.get(one, ()), alone.get("attention", ()), strict=False)
        ]
        for one in COMPARED
    }
