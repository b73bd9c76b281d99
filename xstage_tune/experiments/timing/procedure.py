"""The launches of a profile run: all checked, then timed alone and in turn with another, then recorded.

E_res is a difference of two times, a few percent of either. On a GPU at its power limit times move by as much
with what ran in the tenths of a second before. So an implementation and the attention alone also run in turn,
over and over in blocks of some milliseconds, which gives both the same clocks. A recording variant is
compared likewise, with what it records.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Protocol

from xstage_tune.base.errors import FindingError
from xstage_tune.experiments.launch_order import balanced, rotated
from xstage_tune.experiments.timing.comparison import COMPARED, block
from xstage_tune.experiments.timing.request import ProfileRequest
from xstage_tune.families.attention_a2a.check import TOLERANCE
from xstage_tune.families.attention_a2a.timing import (
    IMPLEMENTATIONS,
    RECORDING,
    CheckFigures,
    Implementation,
    ProfileCase,
    ProfileDevice,
    ProfileLaunch,
)
from xstage_tune.launches.device import Verification
from xstage_tune.launches.requirements import require_device


class ProfileObserver(Protocol):
    """Told of everything as it happens, so that launches can be kept and progress shown."""

    def planned(self, total_launches: int) -> None:
        """How many there will be."""
        ...

    def done(self, launch: ProfileLaunch) -> None:
        """One was made. Called for every one before anything is concluded from it."""
        ...


def profile(device: ProfileDevice, request: ProfileRequest, observer: ProfileObserver) -> None:
    """Check, time and record all implementations of all cases of a request.

    Nothing is timed before every output was found right.

    Raises:
        UsageError: a case does not fit the kernel, the device or the platform.
        DeviceError: the device lacks the path or the memory, or a launch failed.
        FindingError: an output is wrong.
    """
    require_device(device.describe(), request.platform, request.path, force=bool(request.other_gpu))
    cases = [request.case_at(value) for value in request.values()]
    order = replay_order(request)
    each = len(IMPLEMENTATIONS) + sum(map(len, order)) + len(RECORDING)
    observer.planned(each * len(cases))
    for case in cases:
        with closing(profile_case(device, case, order)) as launches:
            for launch in launches:
                observer.done(launch)
                require_right(launch)


def profile_case(
    device: ProfileDevice, case: ProfileCase, order: Sequence[Sequence[Implementation]]
) -> Generator[ProfileLaunch, None, None]:
    """The launches of one case, each as soon as it was made.

    Args:
        order: of the replays; each entry of what runs in turn.

    Raises:
        UsageError, DeviceError: as :func:`profile`.
    """
    with closing(device.prepare(case)) as prepared:
        for implementation in IMPLEMENTATIONS:
            yield prepared.check(implementation)
        for in_turn in order:
            yield from prepared.replay(in_turn)
        for implementation in RECORDING:
            yield prepared.record(implementation)


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


def require_right(checked: ProfileLaunch) -> None:
    """Refuse a check that found a wrong output; other launches pass.

    Raises:
        FindingError: says which implementation's, and where.
    """
    figures, found = checked.figures, checked.verification
    if not isinstance(figures, CheckFigures):
        return
    wrong = complaint(figures, found)
    if not wrong:
        return
    case = checked.case
    of = f"{case.config.label}{f', {case.label}' if case.label else ''}"
    raise FindingError(
        f"the output of {checked.implementation} is wrong ({of}): {wrong}; "
        f"{found.mismatched_bytes:,} of {found.checked_bytes:,} bytes",
        "do not use this kernel; xstage-tune doctor tests each path",
    )


def complaint(figures: CheckFigures, found: Verification) -> str:
    """What is wrong with a checked output; empty where nothing is."""
    if figures.place:
        return figures.place
    if not found.checked_bytes:
        return "nothing was checked"
    if found.mismatched_bytes:
        return "bytes differ"
    error = figures.relative_error
    return "" if error is None or error <= TOLERANCE else f"relative error {error:.3g} against fp32"
