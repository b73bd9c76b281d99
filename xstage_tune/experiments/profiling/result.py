"""What the result of a profile has, of whatever family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from xstage_tune.base.json_output import json_sha256
from xstage_tune.experiments.profiling.request import TimingRequest
from xstage_tune.experiments.profiling.use import LaunchResult


class PointKeys(Protocol):
    """What was found at one value of a sweep."""

    def keys(self) -> dict[str, Any]:
        """As plain keys."""
        ...


class ProfiledResult(Protocol):
    """A result, for :func:`result_keys`."""

    @property
    def run_id(self) -> str: ...
    @property
    def request(self) -> TimingRequest: ...
    @property
    def device(self) -> str: ...
    @property
    def device_name(self) -> str: ...
    @property
    def points(self) -> Sequence[PointKeys]: ...
    @property
    def is_whole(self) -> bool: ...
    @property
    def throttled_launches(self) -> int: ...
    @property
    def launches(self) -> int: ...


def result_keys(result: ProfiledResult) -> dict[str, Any]:
    """What every profile's result has, as plain keys, stable and sorted by the writer."""
    request = result.request.keys()
    return {
        "run_id": result.run_id,
        "device": result.device,
        "device_name": result.device_name,
        **request,
        "workload": result.request.workload.name,
        "workload_keys": request["workload"],
        "platform": result.request.platform.name,
        "platform_sha256": json_sha256(result.request.platform.figures()),
        "points": [point.keys() for point in result.points],
        "is_whole": result.is_whole,
        "throttled_launches": result.throttled_launches,
        "launches": result.launches,
    }


def launches_by_value(
    request: TimingRequest, outcomes: Sequence[LaunchResult]
) -> Iterator[tuple[float | None, Any, list[LaunchResult]]]:
    """Values of the sweep of which something ran, each with its case and its launches.

    Raises:
        UsageError: a value does not fit the workload.
    """
    for value in request.values():
        case = request.case_at(value)
        own = [one for one in outcomes if one.label == case.label]
        if own:
            yield value, case, own
