"""A run whose every launch is kept as soon as it is made: in the store, and in a recording if asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from xstage_tune.base.errors import RunInterrupted
from xstage_tune.base.fabric import StorePath
from xstage_tune.base.progress import Progress
from xstage_tune.launches.device import Device, DeviceDescription, LaunchT, Outcome
from xstage_tune.launches.recording import RecordingWriter, new_recording
from xstage_tune.store.facade import Store
from xstage_tune.store.runs import RunWriter

#: Of the parameters of a run of :func:`kept_launches`: what ran it. The rest are the request's keys.
DEVICE_KEY = "device"


class KeptRequest(Protocol):
    """What is kept of a request."""

    @property
    def seed(self) -> int: ...

    @property
    def path(self) -> StorePath: ...

    def keys(self) -> dict[str, Any]: ...


class KeptDevice:
    """A device of which every launch is kept before anyone sees its outcome.

    Args:
        device: labels its launches by the run, from the first one on.
        progress: advanced by each launch.
    """

    def __init__(
        self, device: Device, run: RunWriter, recording: RecordingWriter | None, progress: Progress
    ) -> None:
        self._device, self._run = device, run
        self._recording, self._progress = recording, progress
        self._labelled = False
        #: Launches beside which the GPU was slowed down.
        self.throttled = 0

    @property
    def run_id(self) -> str:
        """Of the run in the store."""
        return self._run.id

    @property
    def identity(self) -> str:
        """See :class:`~xstage_tune.launches.device.Device`."""
        return self._device.identity

    @property
    def kinds(self) -> tuple[str, ...]:
        """See :class:`~xstage_tune.launches.device.Device`."""
        return self._device.kinds

    def describe(self) -> DeviceDescription:
        """See :class:`~xstage_tune.launches.device.Device`."""
        return self._device.describe()

    def label_launches(self, run_id: str) -> None:
        """See :class:`~xstage_tune.launches.device.Device`."""
        self._device.label_launches(run_id)

    def run(self, launches: Iterable[LaunchT]) -> Iterator[Outcome[LaunchT, Any]]:
        """See :class:`~xstage_tune.launches.device.Device`.

        Raises:
            StoreError: the database failed.
            UsageError: the recording cannot be written.
        """
        if not self._labelled:
            self._device.label_launches(self._run.id)
            self._labelled = True
        for outcome in self._device.run(launches):
            self._keep(outcome)
            yield outcome

    def add_fit(self, kind: str, payload: dict[str, Any]) -> None:
        """Keep what was concluded from the run.

        Raises:
            StoreError: the payload is not JSON, or the database failed.
        """
        self._run.add_fit(kind, payload)

    def close(self) -> None:
        """Nothing is held: whoever opened the device closes it."""

    def _keep(self, outcome: Outcome[Any, Any]) -> None:
        kind = outcome.launch.kind
        if kind.modes:
            self._run.add_launch(self._run.launches, outcome)
        else:
            self._run.add_fit(kind.name, asdict(outcome.figures))
        if self._recording is not None:
            self._recording.keep(outcome)
        self.throttled += outcome.info.throttled
        self._progress.advance(kind.words(outcome.launch))


@contextmanager
def kept_launches(
    device: Device,
    request: KeptRequest,
    store: Store,
    command: str,
    *,
    argv: Sequence[str],
    progress: Progress,
    record: Path | None,
    force: bool,
) -> Iterator[KeptDevice]:
    """A block that makes a run of a command, with the device that keeps it.

    Args:
        record: file to record to.
        force: whether ``record`` may replace a file.

    Raises:
        RunInterrupted: the user stopped the block; what was measured is in the store.
        UsageError: the file exists and ``force`` is off, or cannot be written.
    """
    description, keys = device.describe(), request.keys()
    recording = (
        new_recording(record, command, description, device.identity, keys, force=force) if record else None
    )
    begun = store.begin_run(
        kind=command,
        argv=argv,
        device=description,
        seed=request.seed,
        parameters={**keys, DEVICE_KEY: device.identity},
        path=request.path,
    )
    run = None
    try:
        with recording or nullcontext() as recorded, begun as run:
            yield KeptDevice(device, run, recorded, progress)
    except KeyboardInterrupt:
        raise _interrupted(run, store, recording_asked=recording is not None) from None


def _interrupted(run: RunWriter | None, store: Store, *, recording_asked: bool) -> RunInterrupted:
    """What to say of a run that was stopped: what is kept, and how to see it."""
    # Ctrl-C may have come between a commit and the count of the writer.
    kept = len(store.launches(run.id)) if run is not None else 0
    if run is None or not kept:
        return RunInterrupted("interrupted before the first launch", "run the same command again")
    message = f"interrupted: {kept} launches are kept in run {run.id} of store {store.location}"
    if recording_asked:
        message += ", and no recording was written"
    return RunInterrupted(
        message,
        f"xstage-tune report --run {run.id} -o FILE.html shows what they tell; the same command begins anew",
    )
