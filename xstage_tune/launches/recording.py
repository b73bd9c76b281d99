"""Recordings: the launches of a run in one file, for replay.

``recording.json`` in the archive names the device, the request and the launches in order, each with its exact
figures; spans, whole or a sample, and arrays lie beside it under the launch's number.
"""

from __future__ import annotations

import io
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError

from xstage_tune.base.assets import data_dir
from xstage_tune.base.errors import UsageError
from xstage_tune.base.json_output import json_sha256
from xstage_tune.base.parsing import MOST_VALUES, count_values, parse_json
from xstage_tune.base.version import __version__
from xstage_tune.launches.archive import Archive, ArchiveWriter, new_archive
from xstage_tune.launches.device import (
    NO_SPANS,
    DeviceDescription,
    LaunchInfo,
    LaunchKind,
    LaunchT,
    Outcome,
    Verification,
)

#: The shipped recording that replays unless another is named.
DEFAULT_RECORDING = "h200-host"
#: What each command's recordings end in.
SUFFIXES = {"calibrate": ".xsrec", "emulate": ".xsemu", "profile": ".xsprof", "search": ".xstune"}
#: The manifest in the archive.
MEMBER = "recording.json"


@dataclass(frozen=True)
class RecordedLaunch:
    """One launch.

    Args:
        kind: name of its kind.
        keys, sha256: what it was, as its kind says it.
        figures: of its kind, in JSON's types.
        spans: whether spans and lanes lie in the archive.
        arrays: names of those in the archive.
    """

    kind: str
    keys: dict[str, Any]
    info: LaunchInfo
    verification: Verification
    figures: dict[str, Any] | None = None
    sha256: str = ""
    spans: bool = True
    arrays: tuple[str, ...] = ()
    kept_fraction: Annotated[float, Field(ge=0, le=1)] = 1.0


@dataclass(frozen=True)
class Manifest:
    """The content of ``recording.json``.

    Args:
        command: that recorded it.
        identity: of the device, as results name it.
        request: keys of what was asked: only the same request replays.
    """

    version: Literal[3]
    tool_version: str
    created_at: str
    command: str
    device: DeviceDescription
    identity: str
    request: dict[str, Any]
    launches: list[RecordedLaunch] = field(default_factory=list)


_MANIFEST = TypeAdapter(Manifest)
_LAUNCH = TypeAdapter(RecordedLaunch)
Checked = TypeVar("Checked")

#: Of the manifest: 20,000 launches, ten times those of a full calibration.
_MOST_MANIFEST_BYTES = 16 << 20
_MOST_VALUES = 1_000_000
#: Of what says type and shape of an array, and of one whose launch is not known.
_MOST_ARRAY_HEAD_BYTES = 1 << 10
_MOST_ARRAY_BYTES = 16 << 20
#: What NumPy may raise of the head of an array, which it reads as Python.
_NO_ARRAY = (ValueError, SyntaxError, tokenize.TokenError, TypeError, EOFError, RecursionError, MemoryError)


class RecordingWriter:
    """A recording that is being written."""

    def __init__(self, archive: ArchiveWriter, manifest: Manifest) -> None:
        self._archive, self._manifest = archive, manifest
        self._before: Counter[str] = Counter()

    def keep(self, outcome: Outcome[Any, Any]) -> None:
        """Keep a launch.

        Raises:
            UsageError: the file cannot be written (a full disk, say).
        """
        launch, kind = outcome.launch, outcome.launch.kind
        number, keys = len(self._manifest.launches), kind.keys(launch)
        known = f"{kind.name} {json_sha256(keys)}"
        table = kind.recorded_spans(outcome, self._before[known])
        self._before[known] += 1
        spans = len(table.lanes) > 0
        if spans:
            self._archive.add_table(number, table)
        for name, array in outcome.arrays.items():
            self._archive.add_member(_array_member(number, name), _packed(array))
        part = len(table.spans) / len(outcome.table.spans) if len(outcome.table.spans) else 1.0
        self._manifest.launches.append(
            RecordedLaunch(
                kind=kind.name,
                keys=keys,
                sha256=kind.sha256(launch),
                figures=asdict(outcome.figures) if outcome.figures is not None else None,
                spans=spans,
                arrays=tuple(outcome.arrays),
                kept_fraction=part * outcome.kept_fraction,
                verification=outcome.verification,
                info=outcome.info,
            )
        )


@contextmanager
def new_recording(
    file: Path,
    command: str,
    device: DeviceDescription,
    identity: str,
    request: Mapping[str, Any],
    *,
    force: bool = False,
) -> Iterator[RecordingWriter]:
    """A block that records a run; the file takes its name at the end, when all of it is whole.

    Raises:
        UsageError: the file exists and ``force`` is off, or cannot be written.
    """
    created_at = datetime.now(UTC).isoformat(timespec="seconds")
    manifest = Manifest(3, __version__, created_at, command, device, identity, dict(request))
    with new_archive(file, force=force) as archive:
        yield RecordingWriter(archive, manifest)
        archive.finish()
        archive.add_member(MEMBER, _MANIFEST.dump_json(manifest, exclude_defaults=True))


class Recording:
    """A recording opened for replay.

    Args:
        command: whose recordings are wanted.

    Raises:
        UsageError: the file is missing, truncated, damaged, of another version, or of another command.
    """

    def __init__(self, file: Path, command: str) -> None:
        self.file, self.command = file, command
        self._archive = Archive(file, command)
        self.manifest = self._read_manifest()
        recorded = self.manifest.command
        if recorded != command:
            raise UsageError(
                f"{file} is a recording of {recorded}, not of {command}",
                f"xstage-tune {recorded} --device replay:{file}",
            )

    def outcome(self, number: int, launch: LaunchT) -> Outcome[LaunchT, Any]:
        """Launch ``number`` as the outcome of ``launch``.

        Raises:
            UsageError: its data are damaged.
        """
        recorded = self.manifest.launches[number]
        kind: LaunchKind[LaunchT, Any, Any] = launch.kind
        try:
            figures = kind.figures.validate_python(recorded.figures)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise self._archive.damaged(f"launch {number}: {where}: {first['msg']}") from None
        return Outcome(
            launch=launch,
            figures=figures,
            info=recorded.info,
            verification=recorded.verification,
            table=self._archive.table(number) if recorded.spans else NO_SPANS,
            arrays={
                name: self._array(number, name, dtype, kind.rows(launch))
                for name, dtype in kind.arrays.items()
            },
            kept_fraction=recorded.kept_fraction,
        )

    def check(self, number: int) -> None:
        """Read all that was kept of launch ``number`` beside its figures.

        Raises:
            UsageError: it is damaged.
        """
        recorded = self.manifest.launches[number]
        if recorded.spans:
            self._archive.table(number)
        for name in recorded.arrays:
            self._archive.member(_array_member(number, name), _MOST_ARRAY_BYTES)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._archive.close()

    def _array(self, number: int, name: str, dtype: np.dtype[Any], rows: int) -> NDArray[Any]:
        most_bytes = rows * dtype.itemsize
        packed = io.BytesIO(
            self._archive.member(_array_member(number, name), _MOST_ARRAY_HEAD_BYTES + most_bytes)
        )
        try:
            version = np.lib.format.read_magic(packed)
            if version != (1, 0):
                raise ValueError(f"version {version} of the format")
            shape, _, found = np.lib.format.read_array_header_1_0(packed)
        except _NO_ARRAY as error:
            raise self._archive.damaged(f"{name} of launch {number}: {error}") from None
        data = packed.read()
        if found != dtype:
            raise self._archive.damaged(f"{name} of launch {number} are of another version")
        if shape != (rows,) or len(data) != most_bytes:
            raise self._archive.damaged(f"{name} of launch {number} have shape {shape}, not ({rows},)")
        return np.frombuffer(data, dtype)

    def _read_manifest(self) -> Manifest:
        """Launches one by one: pydantic would tell of each that is wrong, and take 5 kB for each."""
        try:
            text = self._archive.member(MEMBER, _MOST_MANIFEST_BYTES).decode()
            keys = parse_json(text, _MOST_VALUES)
        except ValueError as error:
            raise self._archive.damaged(f"{MEMBER}: {error}") from None
        launches = keys.pop("launches", []) if isinstance(keys, dict) else []
        manifest = self._checked(_MANIFEST, keys, "")
        if not isinstance(launches, list):
            raise self._archive.damaged(f"{MEMBER}: launches: should be a list")
        for number, launch in enumerate(launches):
            checked = self._checked(_LAUNCH, launch, f"launches.{number}.")
            if checked.info.producers > manifest.device.sm_count:
                raise self._archive.damaged(
                    f"{MEMBER}: launches.{number}: {checked.info.producers} SMs of {manifest.device.sm_count}"
                )
            manifest.launches.append(checked)
        return manifest

    def _checked(self, schema: TypeAdapter[Checked], keys: Any, place: str) -> Checked:
        """Keys by a schema; the manifest's are in a text that is JSON's."""
        if count_values(keys) > MOST_VALUES:
            raise self._archive.damaged(
                f"{MEMBER}: {place or 'what is beside the launches'}: too many values"
            )
        try:
            return schema.validate_python(keys)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise self._archive.damaged(f"{MEMBER}: {place}{where}: {first['msg']}") from None


def recording_file(name: str, command: str) -> Path:
    """File of a command's shipped recording, :data:`DEFAULT_RECORDING` where none is named; or a path.

    Raises:
        UsageError: no shipped recording of the command has that name.
    """
    name, suffix = name or DEFAULT_RECORDING, SUFFIXES[command]
    if "/" in name or name.endswith(suffix):
        return Path(name)
    file = recordings_folder(command) / f"{name}{suffix}"
    if not file.is_file():
        known = ", ".join(path.stem for path in shipped_recordings(command))
        if not known:
            raise UsageError(
                f"no recording of this kind is shipped, and '{name}' is no file ending in {suffix}",
                f"record one on a GPU with --record FILE{suffix}, then --device replay:FILE{suffix}",
            )
        raise UsageError(
            f"no recording named '{name}' is shipped (there is: {known})",
            f"name one of them, or a file ending in {suffix}",
        )
    return file


def shipped_recordings(command: str) -> list[Path]:
    """The recordings of a command that come with the tool."""
    return sorted(recordings_folder(command).glob(f"*{SUFFIXES[command]}"))


def recordings_folder(command: str) -> Path:
    """Where recordings of a command are shipped: those of whole spaces, which have times alone, apart."""
    return data_dir("profiles") / ("spaces" if command == "search" else "recordings")


def _array_member(number: int, name: str) -> str:
    return f"{number:05d}.{name}"


def _packed(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
