"""The launches of an emulation: every case as often, in an order that is rotated from repeat to repeat."""

from __future__ import annotations

from typing import Protocol

from xstage_tune.experiments.emulation.cases import cases_of, skeleton_of
from xstage_tune.experiments.emulation.request import EmulationRequest
from xstage_tune.experiments.launch_order import rotated
from xstage_tune.families.fused_skeleton import require_verified
from xstage_tune.launches.requirements import require_device
from xstage_tune.launches.skeleton_figures import LaunchFigures, figures_of
from xstage_tune.launches.skeletons import SkeletonDevice, SkeletonRun


class EmulationObserver(Protocol):
    """Told of everything as it happens, so that launches can be kept and progress shown."""

    def planned(self, total_launches: int) -> None:
        """How many launches there will be."""
        ...

    def measured(self, repeat: int, run: SkeletonRun, figures: LaunchFigures) -> None:
        """A launch was made. Called for every one before anything is concluded from it."""
        ...


def emulate(
    device: SkeletonDevice, request: EmulationRequest, observer: EmulationObserver
) -> dict[str, list[LaunchFigures]]:
    """Run all cases of a request; the figures of each case's launches, by its label.

    In repeat r the cases run in their order rotated by r, so that none has always the same one before it.
    On a GPU a round that nobody times comes first.

    Raises:
        UsageError: a case does not fit the device or the platform.
        DeviceError: the device lacks the path, or cannot run a case.
        FindingError: data did not arrive at their owner.
    """
    description = device.describe()
    require_device(description, request.platform, request.path, force=bool(request.other_gpu))
    cases = cases_of(request)
    skeletons = [skeleton_of(case, request) for case in cases]
    if description.kind == "cuda":
        for run in device.run_skeletons(skeletons):
            require_verified(run)
    rounds = [(r, index) for r in range(request.repeats) for index in rotated(len(cases), r)]
    observer.planned(len(rounds))
    launches: dict[str, list[LaunchFigures]] = {case.label: [] for case in cases}
    runs = device.run_skeletons([skeletons[index] for _, index in rounds])
    for (repeat, index), run in zip(rounds, runs, strict=True):
        figures = figures_of(run)
        observer.measured(repeat, run, figures)
        require_verified(run)
        launches[cases[index].label].append(figures)
    return launches
