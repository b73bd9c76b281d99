"""The replay device: a recorded emulation behind the same protocol as a GPU."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from xstage_tune.devices.base import DeviceDescription
from xstage_tune.devices.skeleton_figures import ReplayedRun
from xstage_tune.devices.skeleton_recording import SkeletonRecording, tiles_sha256
from xstage_tune.devices.skeletons import Skeleton, SkeletonRun
from xstage_tune.errors import UsageError

DEFAULT_RECORDING = "h200-host"


class ReplayedSkeletons:
    """Answers the n-th launch of each skeleton with the n-th that was recorded under its label."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._recording = SkeletonRecording(file)
        self._numbers: dict[str, list[int]] = defaultdict(list)
        for number, launch in enumerate(self._recording.manifest.launches):
            self._numbers[launch.label].append(number)
        self._replayed: Counter[str] = Counter()
        self.identity = f"{self._recording.manifest.identity}, replayed"

    @property
    def request(self) -> Mapping[str, Any]:
        """Keys of the request that was recorded: the one that replays."""
        return self._recording.manifest.request

    def describe(self) -> DeviceDescription:
        """The recorded GPU, marked as replayed."""
        return replace(self._recording.manifest.device, kind="replay")

    def label_launches(self, run_id: str) -> None:
        """Nothing to label: no kernel is launched."""

    def run_skeletons(self, skeletons: Sequence[Skeleton]) -> Iterator[SkeletonRun]:
        """The recorded launch of every skeleton, in the order asked.

        Raises:
            UsageError: a launch was not recorded, was of other tiles, or its data are damaged.
        """
        for skeleton in skeletons:
            numbers, turn = self._numbers[skeleton.label], self._replayed[skeleton.label]
            if turn >= len(numbers):
                raise self._refused(f"has {len(numbers)} launches of '{skeleton.label}', not {turn + 1}")
            number = numbers[turn]
            self._replayed[skeleton.label] += 1
            launch = self._recording.manifest.launches[number]
            if launch.tiles_sha256 != tiles_sha256(skeleton):
                raise self._refused(f"is of other tiles: this version gives '{skeleton.label}' other ones")
            yield ReplayedRun(
                skeleton=skeleton,
                table=self._recording.table(number),
                totals=self._recording.totals(number),
                kept_fraction=launch.kept_fraction,
                makespan_ns=launch.makespan_ns,
                verification=launch.verification,
                launch=launch.launch,
                figures=launch.figures,
            )

    def close(self) -> None:
        """Close the recording."""
        self._recording.close()

    def _refused(self, what: str) -> UsageError:
        return UsageError(
            f"recording {self._file} {what}",
            "record anew with: xstage-tune emulate --device cuda --record FILE",
        )
