"""The replay device of profiling: a recorded run behind the same protocol as a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xstage_tune.families.attention_a2a.recording import PROFILE, RecordedLaunch, case_sha256
from xstage_tune.families.attention_a2a.timing import NO_SPANS, Implementation, ProfileCase, ProfileLaunch
from xstage_tune.launches.launch_replay import ReplayedLaunches


class ReplayedProfiles(ReplayedLaunches[RecordedLaunch]):
    """Answers the n-th of each kind of launch of an implementation with the n-th that was recorded."""

    def __init__(self, file: Path) -> None:
        super().__init__(
            file, PROFILE, lambda launch: (launch.label, launch.implementation, launch.figures.what)
        )

    def prepare(self, case: ProfileCase) -> ReplayedProfile:
        """See :class:`~xstage_tune.families.attention_a2a.timing.ProfileDevice`."""
        return ReplayedProfile(self, case)

    def next_launch(self, case: ProfileCase, implementation: Implementation, what: str) -> ProfileLaunch:
        """The next recorded launch of its kind.

        Raises:
            UsageError: it was not recorded, was of another case, or its data are damaged.
        """
        shown = f"{implementation}{f' of {case.label}' if case.label else ''} ({what})"
        number, launch = self.take((case.label, implementation, what), shown)
        if launch.case_sha256 != case_sha256(case):
            raise self.refused(f"is of another case: this version makes another one of '{case.label}'")
        return ProfileLaunch(
            case=case,
            implementation=implementation,
            producers=launch.producers,
            figures=launch.figures,
            table=self.recording.table(number) if what == "spans" else NO_SPANS,
            verification=launch.verification,
            launch=launch.launch,
        )


class ReplayedProfile:
    """A recorded case; see :class:`~xstage_tune.families.attention_a2a.timing.PreparedProfile`."""

    def __init__(self, device: ReplayedProfiles, case: ProfileCase) -> None:
        self._device, self._case = device, case

    def check(self, implementation: Implementation) -> ProfileLaunch:
        """The recorded outcome of the check."""
        return self._device.next_launch(self._case, implementation, "check")

    def replay(self, in_turn: Sequence[Implementation]) -> Sequence[ProfileLaunch]:
        """The next recorded sample of each."""
        return [self._device.next_launch(self._case, one, "replay") for one in in_turn]

    def record(self, implementation: Implementation) -> ProfileLaunch:
        """The recorded figures, with a sample of the spans."""
        return self._device.next_launch(self._case, implementation, "spans")

    def close(self) -> None:
        """Nothing is held."""
