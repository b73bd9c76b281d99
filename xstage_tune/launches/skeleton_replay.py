"""The replay device: a recorded emulation behind the same protocol as a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from xstage_tune.launches.launch_replay import ReplayedLaunches
from xstage_tune.launches.skeleton_figures import ReplayedRun
from xstage_tune.launches.skeleton_recording import EMULATION, RecordedLaunch, recorded_totals, tiles_sha256
from xstage_tune.launches.skeletons import Skeleton, SkeletonRun


class ReplayedSkeletons(ReplayedLaunches[RecordedLaunch]):
    """Answers the n-th launch of each skeleton with the n-th that was recorded under its label."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, EMULATION, lambda launch: launch.label)

    def run_skeletons(self, skeletons: Sequence[Skeleton]) -> Iterator[SkeletonRun]:
        """The recorded launch of every skeleton, in the order asked.

        Raises:
            UsageError: a launch was not recorded, was of other tiles, or its data are damaged.
        """
        for skeleton in skeletons:
            number, launch = self.take(skeleton.label, f"'{skeleton.label}'")
            if launch.tiles_sha256 != tiles_sha256(skeleton):
                raise self.refused(f"is of other tiles: this version gives '{skeleton.label}' other ones")
            yield ReplayedRun(
                skeleton=skeleton,
                table=self.recording.table(number),
                totals=recorded_totals(self.recording, number),
                kept_fraction=launch.kept_fraction,
                makespan_ns=launch.makespan_ns,
                verification=launch.verification,
                launch=launch.launch,
                figures=launch.figures,
            )
