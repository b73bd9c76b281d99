"""The launches of a profile run, on a device."""

from __future__ import annotations

from typing import Any

from xstage_tune.base.progress import Progress
from xstage_tune.experiments.profiling.request import TimingRequest
from xstage_tune.experiments.profiling.use import LaunchResult, profile_use
from xstage_tune.launches.device import Device
from xstage_tune.launches.requirements import require_device


def profile(device: Device, request: TimingRequest, progress: Progress) -> list[LaunchResult]:
    """Check, time and record all implementations of all cases of a request.

    Nothing of a case is timed before all its outputs were found right.

    Args:
        progress: told how many launches there are.

    Raises:
        UsageError: a case does not fit the kernel, the device or the platform.
        DeviceError: the device lacks the path or the memory, or a launch failed.
        FindingError: an output is wrong.
    """
    use = profile_use(request.workload.kind)
    require_device(device.describe(), request.platform, request.path, force=bool(request.other_gpu))
    launches: list[Any] = list(use.launches(request))
    progress.planned(len(launches))
    results = []
    for outcome in device.run(launches):
        use.require_right(outcome)
        launch = outcome.launch
        results.append(
            LaunchResult(launch.case.label, launch.implementation, outcome.figures, outcome.verification)
        )
    return results
