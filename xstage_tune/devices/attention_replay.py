"""The replay device of profiling: a recorded run behind the same protocol as a GPU."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from xstage_tune.devices.attention_profiles import NO_SPANS, Implementation, ProfileCase, ProfileLaunch
from xstage_tune.devices.attention_recording import ProfileRecording, case_sha256
from xstage_tune.devices.base import DeviceDescription
from xstage_tune.errors import UsageError

DEFAULT_RECORDING = "h200-host"


class ReplayedProfiles:
    """Answers the n-th of each kind of launch of an implementation with the n-th that was recorded."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._recording = ProfileRecording(file)
        self._numbers: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        for number, launch in enumerate(self._recording.manifest.launches):
            self._numbers[launch.label, launch.implementation, launch.figures.what].append(number)
        self._replayed: Counter[tuple[str, str, str]] = Counter()
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

    def prepare(self, case: ProfileCase) -> ReplayedProfile:
        """See :class:`~xstage_tune.devices.attention_profiles.ProfileDevice`."""
        return ReplayedProfile(self, case)

    def next_launch(self, case: ProfileCase, implementation: Implementation, what: str) -> ProfileLaunch:
        """The next recorded launch of its kind.

        Raises:
            UsageError: it was not recorded, was of another case, or its data are damaged.
        """
        key = case.label, implementation, what
        numbers, turn = self._numbers[key], self._replayed[key]
        if turn >= len(numbers):
            kind = f"{implementation}{f' of {case.label}' if case.label else ''} ({what})"
            raise self._refused(f"has {len(numbers)} launches of {kind}, not {turn + 1}")
        self._replayed[key] += 1
        number = numbers[turn]
        launch = self._recording.manifest.launches[number]
        if launch.case_sha256 != case_sha256(case):
            raise self._refused(f"is of another case: this version makes another one of '{case.label}'")
        return ProfileLaunch(
            case=case,
            implementation=implementation,
            producers=launch.producers,
            figures=launch.figures,
            table=self._recording.table(number) if what == "spans" else NO_SPANS,
            verification=launch.verification,
            launch=launch.launch,
        )

    def close(self) -> None:
        """Close the recording."""
        self._recording.close()

    def _refused(self, what: str) -> UsageError:
        return UsageError(
            f"recording {self._file} {what}",
            "record anew with: xstage-tune profile --device cuda --record FILE",
        )


class ReplayedProfile:
    """A recorded case; see :class:`~xstage_tune.devices.attention_profiles.PreparedProfile`."""

    def __init__(self, device: ReplayedProfiles, case: ProfileCase) -> None:
        self._device, self._case = device, case

    def check(self, implementation: Implementation) -> ProfileLaunch:
        """The recorded outcome of the check."""
        return self._device.next_launch(self._case, implementation, "check")

    def replay(self, implementation: Implementation) -> ProfileLaunch:
        """The next recorded sample."""
        return self._device.next_launch(self._case, implementation, "replay")

    def record(self, implementation: Implementation) -> ProfileLaunch:
        """The recorded figures, with a sample of the spans."""
        return self._device.next_launch(self._case, implementation, "spans")

    def close(self) -> None:
        """Nothing is held."""
