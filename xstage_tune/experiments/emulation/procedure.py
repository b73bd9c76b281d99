"""The launches of an emulation: every case as often, in an order that is rotated from repeat to repeat."""

from __future__ import annotations

from dataclasses import replace

from xstage_tune.base.progress import Progress
from xstage_tune.experiments.emulation.cases import cases_of, skeleton_of
from xstage_tune.experiments.emulation.request import EmulationRequest
from xstage_tune.experiments.launch_order import rotated
from xstage_tune.families.fused_skeleton import require_verified
from xstage_tune.launches.device import Device
from xstage_tune.launches.requirements import require_device
from xstage_tune.launches.skeleton_figures import LaunchFigures


def emulate(
    device: Device, request: EmulationRequest, progress: Progress, *, untimed: Device | None = None
) -> dict[str, list[LaunchFigures]]:
    """Run all cases of a request; the figures of each case's launches, by its label.

    In repeat r the cases run in their order rotated by r, so that none has always the same one before it.

    Args:
        progress: told how many launches there are.
        untimed: where all cases run once before; None for nowhere.

    Raises:
        UsageError: a case does not fit the device or the platform.
        DeviceError: the device lacks the path, or cannot run a case.
        FindingError: data did not arrive at their owner.
    """
    require_device(device.describe(), request.platform, request.path, force=bool(request.other_gpu))
    skeletons = [skeleton_of(case, request) for case in cases_of(request)]
    if untimed is not None:
        for run in untimed.run(skeletons):
            require_verified(run)
    count = len(skeletons)
    rounds = [
        replace(skeletons[index], repeat=repeat)
        for repeat in range(request.repeats)
        for index in rotated(count, repeat)
    ]
    progress.planned(len(rounds))
    launches: dict[str, list[LaunchFigures]] = {skeleton.label: [] for skeleton in skeletons}
    for run in device.run(rounds):
        require_verified(run)
        launches[run.launch.label].append(run.figures)
    return launches
