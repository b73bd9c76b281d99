"""What an implementation takes beyond its reference, of replays next to each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from xstage_tune.devices.attention_profiles import RECORDING, SERIAL, Implementation
from xstage_tune.errors import UsageError

#: What is compared with the attention alone.
COMPARED: tuple[Implementation, ...] = (*SERIAL, "fused")
#: The reference of each recording variant: the same without spans.
_UNRECORDED = {recording: one for one, recording in RECORDING.items()}


def block(implementation: Implementation) -> tuple[Implementation, ...]:
    """The replays of one comparison, in turn: the reference, twice the implementation, the reference.

    The reference is the attention alone; of a recording variant, what it records. Clocks that drift steadily
    drop out of the difference. So does, to first order, what a replay inherits of the one before it: half of
    either kind follow the reference, half the implementation.
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


def within_blocks(replays: Iterable[tuple[Implementation, float]]) -> Comparisons:
    """Comparisons of replays that were made in blocks; what an interrupted run broke off does not count.

    Args:
        replays: implementation and time of each, in turn. The All-to-All alone belongs to no block.

    Raises:
        UsageError: these are no blocks.
    """
    in_blocks = iter([replay for replay in replays if replay[0] != "all-to-all"])
    found: dict[Implementation, list[Comparison]] = {}
    for four in zip(in_blocks, in_blocks, in_blocks, in_blocks, strict=False):
        names = tuple(name for name, _ in four)
        if names[1] not in (*COMPARED, *_UNRECORDED) or names != block(names[1]):
            raise UsageError(f"replays of another version: {', '.join(names)} are no block", "profile again")
        before_ns, first_ns, second_ns, behind_ns = (time_ns for _, time_ns in four)
        found.setdefault(names[1], []).append(Comparison((first_ns, second_ns), (before_ns, behind_ns)))
    return found


def within_repeats(replays: Iterable[tuple[Implementation, float]]) -> Comparisons:
    """Comparisons of replays that were made in repeats of one of each, with the attention of the same one.

    Args:
        replays: implementation and time of each, in turn.
    """
    times_ns: dict[Implementation, list[float]] = {}
    for implementation, time_ns in replays:
        times_ns.setdefault(implementation, []).append(time_ns)
    return {
        one: [
            Comparison((own,), (alone,))
            for own, alone in zip(times_ns.get(one, ()), times_ns.get("attention", ()), strict=False)
        ]
        for one in COMPARED
    }
