"""A run whose every launch is kept as soon as it is made: in the store, and in a recording if asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol, TypeVar

from xstage_tune.base.errors import RunInterrupted
from xstage_tune.base.fabric import StorePath
from xstage_tune.launches.archive import ArchiveKind, ArchiveWriter, new_archive
from xstage_tune.launches.device import DeviceDescription
from xstage_tune.launches.launch_recording import Launch, LaunchManifest, new_manifest
from xstage_tune.store.facade import Store
from xstage_tune.store.runs import RunWriter

Recording = TypeVar("Recording")

#: Of the parameters of a run of :func:`kept_launches`: what ran it. The rest are the request's keys.
DEVICE_KEY = "device"


class KeptDevice(Protocol):
    """What is kept of a device."""

    identity: str

    def describe(self) -> DeviceDescription: ...

    def label_launches(self, run_id: str) -> None: ...


class KeptRequest(Protocol):
    """What is kept of a request."""

    @property
    def seed(self) -> int: ...

    @property
    def path(self) -> StorePath: ...

    def keys(self) -> dict[str, Any]: ...


@contextmanager
def kept_run(
    store: Store,
    begun: AbstractContextManager[RunWriter],
    recording: AbstractContextManager[Recording] | None,
) -> Iterator[tuple[RunWriter, Recording | None]]:
    """A block that writes a run of the store, and a recording, if any.

    Args:
        begun: the run, of :meth:`Store.begin_run`.

    Raises:
        RunInterrupted: the user stopped the block; what was measured is in the store.
    """
    run = None
    try:
        with recording or nullcontext() as recorded, begun as run:
            yield run, recorded
    except KeyboardInterrupt:
        raise _interrupted(run, store, recording_asked=recording is not None) from None


@contextmanager
def kept_launches(
    device: KeptDevice,
    request: KeptRequest,
    store: Store,
    kind: ArchiveKind[LaunchManifest[Launch]],
    *,
    argv: Sequence[str],
    record: Path | None,
    force: bool,
) -> Iterator[tuple[RunWriter, ArchiveWriter[LaunchManifest[Launch]] | None]]:
    """A :func:`kept_run` of the command that ``kind`` names; the device labels its launches by it.

    Args:
        record: file to record to.
        force: whether ``record`` may replace a file.

    Raises:
        RunInterrupted: as :func:`kept_run`.
        UsageError: the file exists and ``force`` is off, or cannot be written.
    """
    description, keys = device.describe(), request.keys()
    manifest = new_manifest(description, device.identity, keys)
    recording = new_archive(record, kind, manifest, force=force) if record is not None else None
    begun = store.begin_run(
        kind=kind.command,
        argv=argv,
        device=description,
        seed=request.seed,
        parameters={**keys, DEVICE_KEY: device.identity},
        path=request.path,
    )
    with kept_run(store, begun, recording) as (run, recorded):
        device.label_launches(run.id)
        yield run, recorded


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
