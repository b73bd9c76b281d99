"""Whole spaces on record: the kernels of a search as they are measured, and in their place later."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from xstage_tune.base.errors import DeviceLost, Fault, RunInterrupted, StoreError, UsageError, XStageError
from xstage_tune.base.json_output import json_sha256
from xstage_tune.families.kernel_launch import KERNELS, KernelLaunch, KernelRun
from xstage_tune.families.workload import Workload
from xstage_tune.launches.device import (
    Device,
    DeviceAround,
    DeviceDescription,
    LaunchInfo,
    LooksAhead,
    Outcome,
)
from xstage_tune.launches.recording import Recording, RecordingWriter


class RecordedFault(XStageError):  # noqa: N818 - it may be any fault
    """A launch that failed when it was recorded."""

    def __init__(self, fault: Fault, reason: str) -> None:
        super().__init__(reason)
        self.fault = fault  # type: ignore[misc]  # of this one, not of the class


class KernelRecorder(DeviceAround):
    """A device whose kernels are recorded, those that fail too.

    Args:
        device: closed with it.
    """

    def __init__(self, device: Device, recording: RecordingWriter) -> None:
        super().__init__(device)
        self._recording = recording

    def expect(self, launches: Sequence[Any]) -> None:
        """See :class:`~xstage_tune.launches.device.LooksAhead`."""
        if isinstance(self._device, LooksAhead):
            self._device.expect(launches)

    def run(self, launches: Iterable[Any]) -> Iterator[Outcome[Any, Any]]:
        """See :class:`~xstage_tune.launches.device.Device`."""
        for launch in launches:
            began_ns, started_at = time.perf_counter_ns(), datetime.now(UTC).isoformat()
            try:
                (outcome,) = self._device.run([launch])
            except (DeviceLost, RunInterrupted, StoreError):
                raise
            except XStageError as error:
                elapsed_ns = time.perf_counter_ns() - began_ns
                info = LaunchInfo(launch.config.label, "", 0, 0, 0, 0, elapsed_ns, started_at)
                failed = KernelRun((), fault=error.fault, reason=error.message)
                self._recording.keep(Outcome(launch, failed, info))
                raise
            self._recording.keep(replace(outcome, figures=_rounded(outcome.figures)))
            yield outcome


class ReplayedKernels:
    """A recorded space in the place of the GPU that it was measured on.

    Each config was timed in turn with the same one. What answers is its ratio to that one times that one's
    time over the whole recording, so that two configs compare as if they had been timed in turn.

    Raises:
        UsageError: the file cannot be replayed.
    """

    kinds = (KERNELS.name,)

    def __init__(self, file: Path) -> None:
        self._recording = Recording(file, "search")
        manifest = self._recording.manifest
        self.identity = f"{manifest.identity}, replayed"
        self._numbers = {json_sha256(one.keys): number for number, one in enumerate(manifest.launches)}
        figures = (launch.figures or {} for launch in manifest.launches)
        against_ns = [time_ns for one in figures for time_ns in one.get("against_ns") or ()]
        self._reference_ns = median(against_ns) if against_ns else None

    @property
    def configs(self) -> int:
        """How many were measured, or failed."""
        return len(self._numbers)

    def describe(self) -> DeviceDescription:
        """The recorded GPU, marked as replayed."""
        return replace(self._recording.manifest.device, kind="replay")

    def label_launches(self, run_id: str) -> None:
        """Nothing to label: no kernel is launched."""

    def require_workload(self, workload: Workload) -> None:
        """Refuse another workload than the recorded one.

        Raises:
            UsageError: says which is recorded.
        """
        recorded = self._recording.manifest.request["workload"]
        if recorded != workload.model_dump(mode="json", exclude_none=True):
            raise UsageError(
                f"recording {self._recording.file} is of another workload than '{workload.name}' as given: "
                f"of '{recorded.get('name')}' with {_shape(recorded)}",
                "give that one, or record this one: xstage-tune search --device cuda --record FILE",
            )

    def run(self, launches: Iterable[Any]) -> Iterator[Outcome[Any, Any]]:
        """See :class:`~xstage_tune.launches.device.Device`.

        Raises:
            RecordedFault: the launch failed when it was recorded, or was not.
        """
        for launch in launches:
            yield self._run(launch)

    def close(self) -> None:
        """Close the recording."""
        self._recording.close()

    def _run(self, launch: KernelLaunch) -> Outcome[KernelLaunch, KernelRun]:
        recorded = self._recorded(launch)
        if recorded is None:
            raise RecordedFault("unusable", "it was not measured when the space was recorded")
        own = recorded.figures
        if own.fault is not None:
            raise RecordedFault(own.fault, own.reason)
        latency_ns = self._times_ns(own)
        against_ns: tuple[float, ...] = ()
        if launch.against is not None:
            against = self._recorded(replace(launch, config=launch.against))
            assert against is not None  # what is the best so far was answered
            count = min(len(latency_ns), len(against.figures.latency_ns))
            latency_ns, against_ns = latency_ns[:count], self._times_ns(against.figures)[:count]
        return replace(
            recorded, figures=replace(own, latency_ns=latency_ns, against_ns=against_ns, busy_ns=0.0)
        )

    def _recorded(self, launch: KernelLaunch) -> Outcome[KernelLaunch, KernelRun] | None:
        number = self._numbers.get(json_sha256(KERNELS.keys(launch)))
        return None if number is None else self._recording.outcome(number, launch)

    def _times_ns(self, run: KernelRun) -> tuple[float, ...]:
        """Of a recorded run, at the clocks of all of the recording."""
        if self._reference_ns is None:
            return run.latency_ns
        if not run.against_ns:  # what the others were timed against, alone
            middle_ns = median(run.latency_ns)
            return tuple(self._reference_ns * time_ns / middle_ns for time_ns in run.latency_ns)
        pairs = zip(run.latency_ns, run.against_ns, strict=True)
        return tuple(self._reference_ns * own_ns / against_ns for own_ns, against_ns in pairs)


def _rounded(run: KernelRun) -> KernelRun:
    """Times to a tenth of a nanosecond, which is far below what they mean."""
    return replace(
        run,
        latency_ns=tuple(round(time_ns, 1) for time_ns in run.latency_ns),
        against_ns=tuple(round(time_ns, 1) for time_ns in run.against_ns),
        cold_ns=tuple(round(time_ns, 1) for time_ns in run.cold_ns),
    )


def _shape(recorded: Any) -> str:
    numbers = (f"{key} = {value}" for key, value in recorded.items() if isinstance(value, int))
    return ", ".join(part for part in numbers if not part.startswith("schema_version"))
