"""A recorded profile run: what a real GPU made of an attention and its All-to-All, in one file, for replay.

``profile.json`` in the archive names the device, the request and the launches with their exact figures. Spans
are a sample, of whole CTAs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from pydantic import TypeAdapter

from xstage_tune import __version__
from xstage_tune.configs.loader import config_keys
from xstage_tune.devices.archive import Archive, ArchiveWriter
from xstage_tune.devices.attention_profiles import Figures, Implementation, ProfileCase, ProfileLaunch
from xstage_tune.devices.base import DeviceDescription, LaunchInfo, Verification
from xstage_tune.spans import SpanTable

MANIFEST = "profile.json"
SUFFIX = ".xsprof"


@dataclass(frozen=True)
class RecordedLaunch:
    """One launch; its spans, if it recorded some, lie in the archive under its number."""

    label: str
    case_sha256: str
    implementation: Implementation
    producers: int
    figures: Figures
    verification: Verification
    launch: LaunchInfo


@dataclass(frozen=True)
class Manifest:
    """The content of ``profile.json``.

    Args:
        identity: of the device, as results name it.
        request: keys of what was asked: only the same request replays.
    """

    version: Literal[1]
    tool_version: str
    created_at: str
    device: DeviceDescription
    identity: str
    request: dict[str, Any]
    launches: tuple[RecordedLaunch, ...] = ()


_MANIFEST = TypeAdapter(Manifest)


class ProfileRecordingWriter:
    """Writes a recording, which takes its name when all of it is whole.

    Raises:
        UsageError: the file exists and ``force`` is off, or cannot be written.
    """

    def __init__(
        self,
        file: Path,
        device: DeviceDescription,
        identity: str,
        request: Mapping[str, Any],
        *,
        force: bool = False,
    ) -> None:
        created_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._manifest = Manifest(1, __version__, created_at, device, identity, dict(request))
        self._launches: list[RecordedLaunch] = []
        self._archive = ArchiveWriter(file, (MANIFEST, self._text), force=force)

    def add(self, done: ProfileLaunch) -> None:
        """Keep a launch.

        Raises:
            UsageError: the file cannot be written (a full disk, say).
        """
        if len(done.table.lanes):
            self._archive.add_table(len(self._launches), done.table)
        self._launches.append(
            RecordedLaunch(
                label=done.case.label,
                case_sha256=case_sha256(done.case),
                implementation=done.implementation,
                producers=done.producers,
                figures=done.figures,
                verification=done.verification,
                launch=done.launch,
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._archive.__exit__(kind, error, trace)

    def _text(self) -> bytes:
        return _MANIFEST.dump_json(replace(self._manifest, launches=tuple(self._launches)))


class ProfileRecording:
    """A recording opened for replay.

    Raises:
        UsageError: the file is missing, truncated, damaged, of another version, or no recorded profile run.
    """

    def __init__(self, file: Path) -> None:
        self._archive = Archive(file, "profile")
        self.manifest = self._archive.manifest(MANIFEST, _MANIFEST)

    def table(self, number: int) -> SpanTable:
        """The spans of launch ``number``, which recorded some.

        Raises:
            UsageError: its members are damaged.
        """
        return self._archive.table(number)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._archive.close()


def case_sha256(case: ProfileCase) -> str:
    """Hash of a case: what a recorded launch is of."""
    keys = {field.name: getattr(case, field.name) for field in fields(case)}
    keys["config"] = config_keys(case.config)
    return hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()
