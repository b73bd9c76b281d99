"""The manifest of a recorded emulation or profile run: of what it is, and its launches in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

from xstage_tune.base.version import __version__
from xstage_tune.launches.device import DeviceDescription

Launch = TypeVar("Launch")


@dataclass(frozen=True)
class LaunchManifest(Generic[Launch]):
    """The manifest in the archive.

    Args:
        identity: of the device, as results name it.
        request: keys of what was asked: only the same request replays.
        launches: each with its exact figures; what else was kept lies in the archive under its number.
    """

    version: Literal[2]
    tool_version: str
    created_at: str
    device: DeviceDescription
    identity: str
    request: dict[str, Any]
    launches: list[Launch] = field(default_factory=list)


def new_manifest(device: DeviceDescription, identity: str, request: Mapping[str, Any]) -> LaunchManifest[Any]:
    """Of a recording that begins now."""
    created_at = datetime.now(UTC).isoformat(timespec="seconds")
    return LaunchManifest(2, __version__, created_at, device, identity, dict(request))
