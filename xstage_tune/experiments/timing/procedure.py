"""The launches of a profile run: all checked, then timed alone and in turn with another, then recorded.

E_res is a difference of two times, a few percent of either. On a GPU at its power limit times move by as much
with what ran in the tenths of a second before. So an implementation and the attention alone also run in turn,
over and over in blocks of some milliseconds, which gives both the same clocks. A recording variant is
compared likewise, with what it records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xstage_tune.experiments.launch_order import balanced, rotated
from xstage_tune.experiments.timing.comparison import COMPARED, block
from xstage_tune.experiments.timing.request import ProfileRequest
from xstage_tune.families.attention_a2a.timing import (
    IMPLEMENTATIONS,
    RECORDING,
    AttentionLaunch,
    Implementation,
    ProfileCase,
    replays,
)


def launches(request: ProfileRequest) -> Iterator[AttentionLaunch]:
    """Those of all cases of a request.

    Raises:
        UsageError: a case does not fit the workload.
    """
    order = replay_order(request)
    for value in request.values():
        yield from case_launches(request.case_at(value), implementations(request), order)


def implementations(request: ProfileRequest) -> Sequence[Implementation]:
    """What a request asks for; former kinds of replays had none that is received."""
    received = request.replays == "with-receipt"
    return [one for one in IMPLEMENTATIONS if received or one != "fused-received"]


def case_launches(
    case: ProfileCase, checked: Sequence[Implementation], order: Sequence[Sequence[Implementation]]
) -> Iterator[AttentionLaunch]:
    """The launches of one case.

    Args:
        checked: before anything is timed.
        order: of the replays; each entry of what runs in turn.
    """
    for implementation in checked:
        yield AttentionLaunch(case, implementation, "check")
    for in_turn in order:
        yield from replays(case, in_turn)
    for implementation in RECORDING:
        yield AttentionLaunch(case, implementation, "spans")


def replay_order(request: ProfileRequest) -> Sequence[Sequence[Implementation]]:
    """The replays of a case: each implementation alone, and a block of each that is compared, every repeat.

    Two former kinds of replays had only one of the two, in blocks all but the All-to-All.
    """
    order: list[Sequence[Implementation]] = []
    asked = implementations(request)
    recorded = () if request.replays == "blocks" else RECORDING.values()
    compared = [*(one for one in COMPARED if one in asked), *recorded]
    if request.replays == "blocks":
        order += [["all-to-all"] for _ in range(request.repeats)]
    for repeat in range(request.repeats):
        if request.replays != "blocks":
            order += [[asked[index]] for index in balanced(len(asked), repeat)]
        if request.replays != "balanced":
            order += [block(compared[index]) for index in rotated(len(compared), repeat)]
    return order
