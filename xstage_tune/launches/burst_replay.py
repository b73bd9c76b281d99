"""The replay device: a recorded calibration behind the same protocol as a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StorePath
from xstage_tune.launches.archive import Archive
from xstage_tune.launches.burst_recording import CALIBRATION, RecordedRequest
from xstage_tune.launches.device import BurstPoint, BurstRun, CopyRate, DeviceDescription


class ReplayedBursts:
    """Answers each burst point with the run recorded for it."""

    def __init__(self, file: Path) -> None:
        self._recording = Archive(file, CALIBRATION)
        self._number_of = {run.point: number for number, run in enumerate(self._recording.manifest.runs)}

    @property
    def recording(self) -> str:
        """Name of the recording, as ``replay:NAME`` has it."""
        return self._recording.file.stem

    @property
    def request(self) -> RecordedRequest:
        """The request that was recorded: the one that replays."""
        return self._recording.manifest.request

    def describe(self) -> DeviceDescription:
        """The recorded GPU, marked as replayed."""
        return replace(self._recording.manifest.device, kind="replay")

    def label_launches(self, run_id: str) -> None:
        """Nothing to label: no kernel is launched."""

    def copy_rate(self, path: StorePath) -> CopyRate:
        """The copy engine's rate as recorded.

        Raises:
            UsageError: the recording has none for ``path``.
        """
        for rate in self._recording.manifest.copy_rates:
            if rate.path == path:
                return rate
        raise self._missing(f"copy rate on path '{path}'")

    def run_bursts(self, points: Sequence[BurstPoint]) -> Iterator[BurstRun]:
        """The recorded run of every point, in the order asked.

        Raises:
            UsageError: a point was not recorded, or its data are damaged.
        """
        for point in points:
            number = self._number_of.get(point)
            if number is None:
                raise self._missing(f"run of {point}")
            run = self._recording.manifest.runs[number]
            yield BurstRun(run.point, self._recording.table(number), run.verification, run.launch)

    def close(self) -> None:
        """Close the recording."""
        self._recording.close()

    def _missing(self, what: str) -> UsageError:
        request = self.request
        flavours = ", ".join(request.flavours)
        return UsageError(
            f"recording {self._recording.file} has no {what}; it was made with path {request.path}, "
            f"flavours {flavours}, budget {request.budget}, seed {request.seed}",
            "replay it with these settings, which are its defaults",
        )
