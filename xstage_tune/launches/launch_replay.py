"""The launches of a recording in turn, for the replay devices of emulations and of profile runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic

from xstage_tune.base.errors import UsageError
from xstage_tune.launches.archive import Archive, ArchiveKind
from xstage_tune.launches.device import DeviceDescription
from xstage_tune.launches.launch_recording import Launch, LaunchManifest


class ReplayedLaunches(Generic[Launch]):
    """A recorded device: the n-th launch that is asked for by a key is the n-th that was recorded under it.

    Args:
        key_of: the key of a recorded launch.

    Raises:
        UsageError: the file cannot be replayed.
    """

    def __init__(
        self, file: Path, kind: ArchiveKind[LaunchManifest[Launch]], key_of: Callable[[Launch], Hashable]
    ) -> None:
        self.recording = Archive(file, kind)
        self.identity = f"{self.recording.manifest.identity}, replayed"
        self._numbers: dict[Hashable, list[int]] = defaultdict(list)
        for number, launch in enumerate(self.recording.manifest.launches):
            self._numbers[key_of(launch)].append(number)
        self._replayed: Counter[Hashable] = Counter()

    @property
    def request(self) -> Mapping[str, Any]:
        """Keys of the request that was recorded: the one that replays."""
        return self.recording.manifest.request

    def describe(self) -> DeviceDescription:
        """The recorded GPU, marked as replayed."""
        return replace(self.recording.manifest.device, kind="replay")

    def label_launches(self, run_id: str) -> None:
        """Nothing to label: no kernel is launched."""

    def take(self, key: Hashable, shown: str) -> tuple[int, Launch]:
        """The next launch of a key, and its number in the recording.

        Args:
            shown: the key in words.

        Raises:
            UsageError: so many were not recorded.
        """
        numbers, turn = self._numbers[key], self._replayed[key]
        if turn >= len(numbers):
            raise self.refused(f"has {len(numbers)} launches of {shown}, not {turn + 1}")
        self._replayed[key] += 1
        return numbers[turn], self.recording.manifest.launches[numbers[turn]]

    def close(self) -> None:
        """Close the recording."""
        self.recording.close()

    def refused(self, what: str) -> UsageError:
        """What to raise of a recording that does not answer; ``what`` goes on from its name."""
        return UsageError(
            f"recording {self.recording.file} {what}",
            f"record anew with: xstage-tune {self.recording.kind.command} --device cuda --record FILE",
        )
