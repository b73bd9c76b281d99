"""The launches of a profile run: all checked, then timed alone and in turn with another, then recorded.

E_res is a difference of two times, a few percent of either. On a GPU at its power limit times move by as much
with what ran in the tenths of a second before. So an implementation and the attention alone also run in turn,
over and over in blocks of some milliseconds, which gives both the same clocks. A recording variant is
compared likewise, with what it records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xstage_tune.base.progress import Progress
from xstage_tune.experiments.launch_order import balanced, rotated
from xstage_tune.experiments.timing.comparison import COMPARED, block
from xstage_tune.experiments.timing.request import ProfileRequest
from xstage_tune.families.attention_a2a.check import require_right
from xstage_tune.families.attention_a2a.timing import (
    IMPLEMENTATIONS,
    RECORDING,
    AttentionLaunch,
    Figures,
    Implementation,
    ProfileCase,
    replays,
)
from xstage_tune.launches.device import Device, Verification
from xstage_tune.launches.requirements import require_device


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """One launch's figures, without its spans: what a conclusion rests on."""

    label: str
    implementation: Implementation
    figures: Figures
    verification: Verification


def profile(device: Device, request: ProfileRequest, progress: Progress) -> list[LaunchResult]:
    """Check, time and record all implementations of all cases of a request.

    Nothing is timed before every output was found right.

    Args:
        progress: told how many launches there are.

    Raises:
        UsageError: a case does not fit the kernel, the device or the platform.
        DeviceError: the device lacks the path or the memory, or a launch failed.
        FindingError: an output is wrong.
    """
    require_device(device.describe(), request.platform, request.path, force=bool(request.other_gpu))
    order = replay_order(request)
    launches = [
        launch for value in request.values() for launch in case_launches(request.case_at(value), order)
    ]
    progress.planned(len(launches))
    results = []
    for outcome in device.run(launches):
        require_right(outcome)
        launch = outcome.launch
        results.append(
            LaunchResult(launch.case.label, launch.implementation, outcome.figures, outcome.verification)
        )
    return results


def case_launches(case: ProfileCase, order: Sequence[Sequence[Implementation]]) -> Iterator[AttentionLaunch]:
    """The launches of one case.

    Args:
        order: of the replays; each entry of what runs in turn.
    """
    for implementation in IMPLEMENTATIONS:
        yield AttentionLaunch(case, implementation, "check")
    for in_turn in order:
        yield from replays(case, in_turn)
    for implementation in RECORDING:
        yield AttentionLaunch(case, implementation, "spans")


def replay_order(request: ProfileRequest) -> Sequence[Sequence[Implementation]]:
    """The replays of a case: each implementation alone, and a block of each that is compared, every repeat.

    Former kinds of replays had only one of the two, in blocks all but the All-to-All.
    """
    order: list[Sequence[Implementation]] = []
    compared = COMPARED if request.replays == "blocks" else (*COMPARED, *RECORDING.values())
    if request.replays == "blocks":
        order += [["all-to-all"] for _ in range(request.repeats)]
    for repeat in range(request.repeats):
        if request.replays != "blocks":
            order += [[IMPLEMENTATIONS[index]] for index in balanced(len(IMPLEMENTATIONS), repeat)]
        if request.replays != "balanced":
            order += [block(compared[index]) for index in rotated(len(compared), repeat)]
    return order
