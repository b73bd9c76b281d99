"""What an implementation takes beyond the attention alone, of replays next to each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from statistics import fmean, median

from xstage_tune.devices.attention_profiles import IMPLEMENTATIONS, Implementation
from xstage_tune.errors import UsageError

#: What is compared with the attention alone.
COMPARED: tuple[Implementation, ...] = tuple(
    one for one in IMPLEMENTATIONS if one not in ("attention", "all-to-all")
)


def block(implementation: Implementation) -> tuple[Implementation, ...]:
    """The replays of one comparison, in turn.

    Clocks that drift steadily drop out of their difference. So does, to first order, what a replay inherits
    of the one before it: half of either kind follow the attention, half the implementation.
    """
    return "attention", implementation, implementation, "attention"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Times of an implementation and of the attention alone around it, in ns a launch."""

    own_ns: tuple[float, ...]
    attention_ns: tuple[float, ...]

    @property
    def beyond_ns(self) -> float:
        """What the implementation takes beyond the attention alone."""
        return fmean(self.own_ns) - fmean(self.attention_ns)


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
        if names[1] not in COMPARED or names != block(names[1]):
            raise UsageError(f"replays of another version: {', '.join(names)} are no block", "profile again")
        before_ns, first_ns, second_ns, behind_ns = (time_ns for _, time_ns in four)
        found.setdefault(names[1], []).append(Comparison((first_ns, second_ns), (before_ns, behind_ns)))
    return found


def within_repeats(times_ns: Mapping[Implementation, Sequence[float]]) -> Comparisons:
    """Comparisons of replays that were made in repeats of one of each, with the attention of the same one."""
    alone_ns = times_ns.get("attention", ())
    return {
        one: [
            Comparison((own,), (alone,)) for own, alone in zip(times_ns.get(one, ()), alone_ns, strict=False)
        ]
        for one in COMPARED
    }


def median_interval95(values: Sequence[float]) -> tuple[float, float] | None:
    """The narrowest pair of order statistics that has the median between it with at least 95% confidence.

    Whatever the distribution: each value is above its median with probability 1/2, so that of n values fewer
    than k are has the binomial one. None of fewer than six, of which even the least and the greatest miss it
    more often.
    """
    ordered, count = sorted(values), len(values)
    outside, rank = 0.0, 0
    while outside + 2 * comb(count, rank) / 2**count <= 0.05:
        outside += 2 * comb(count, rank) / 2**count
        rank += 1
    return (ordered[rank - 1], ordered[-rank]) if rank else None


def median_of(values: Sequence[float]) -> float | None:
    """None of no values."""
    return median(values) if values else None
