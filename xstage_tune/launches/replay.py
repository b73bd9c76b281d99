"""The replay device: a recorded run behind the same protocol as a GPU."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from xstage_tune.base.errors import UsageError
from xstage_tune.base.json_output import json_sha256
from xstage_tune.launches.device import DeviceDescription, LaunchT, Outcome
from xstage_tune.launches.recording import Recording


class ReplayedDevice:
    """Answers each launch with what was recorded of it.

    Of a kind whose keys tell repetitions apart, that is the launch of the same keys; of another the n-th that
    is asked for is the n-th that was recorded.

    Args:
        command: whose recordings are wanted.

    Raises:
        UsageError: the file cannot be replayed.
    """

    def __init__(self, file: Path, command: str) -> None:
        self._recording = Recording(file, command)
        self.identity = f"{self._recording.manifest.identity}, replayed"
        self._numbers: dict[str, list[int]] = defaultdict(list)
        for number, launch in enumerate(self._recording.manifest.launches):
            self._numbers[_place(launch.kind, launch.keys)].append(number)
        self._replayed: Counter[str] = Counter()

    @property
    def recording(self) -> str:
        """Name of the recording, as ``replay:NAME`` has it."""
        return self._recording.file.stem

    @property
    def request(self) -> Mapping[str, Any]:
        """Keys of the request that was recorded: the one that replays."""
        return self._recording.manifest.request

    @property
    def kinds(self) -> tuple[str, ...]:
        """See :class:`~xstage_tune.launches.device.Device`."""
        return tuple(dict.fromkeys(launch.kind for launch in self._recording.manifest.launches))

    def describe(self) -> DeviceDescription:
        """The recorded GPU, marked as replayed."""
        return replace(self._recording.manifest.device, kind="replay")

    def label_launches(self, run_id: str) -> None:
        """Nothing to label: no kernel is launched."""

    def run(self, launches: Iterable[LaunchT]) -> Iterator[Outcome[LaunchT, Any]]:
        """The recorded outcome of every launch, in the order asked.

        Raises:
            UsageError: a launch was not recorded, was another one, or its data are damaged.
        """
        for launch in launches:
            number = self._take(launch)
            recorded = self._recording.manifest.launches[number]
            if recorded.sha256 != launch.kind.sha256(launch):
                words = launch.kind.words(launch)
                raise self._refused(f"was made of other work: this version asks for another '{words}'")
            yield self._recording.outcome(number, launch)

    def close(self) -> None:
        """Close the recording."""
        self._recording.close()

    def _take(self, launch: LaunchT) -> int:
        """Number of the launch that answers."""
        kind = launch.kind
        place = _place(kind.name, kind.keys(launch))
        numbers, turn = self._numbers[place], self._replayed[place]
        if kind.told_apart and numbers:
            return numbers[-1]
        if turn >= len(numbers):
            words = kind.words(launch)
            raise self._refused(f"has {len(numbers)} launches of '{words}', not {turn + 1}")
        self._replayed[place] += 1
        return numbers[turn]

    def _refused(self, what: str) -> UsageError:
        """What to raise of a recording that does not answer; ``what`` goes on from its name."""
        return UsageError(
            f"recording {self._recording.file} {what}",
            f"record anew with: xstage-tune {self._recording.command} --device cuda --record FILE",
        )


def _place(kind: str, keys: Mapping[str, Any]) -> str:
    return f"{kind} {json_sha256(keys)}"
