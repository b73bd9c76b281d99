"""A recorded profile run: what a real GPU made of an attention and its All-to-All, in one file, for replay.

``profile.json`` in the archive names the device, the request and the launches with their exact figures. Spans
are a sample, of whole CTAs.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields

from pydantic import TypeAdapter

from xstage_tune.families.attention_a2a.timing import Figures, Implementation, ProfileCase, ProfileLaunch
from xstage_tune.families.config_files import config_keys
from xstage_tune.launches.archive import ArchiveKind, ArchiveWriter
from xstage_tune.launches.device import LaunchInfo, Verification
from xstage_tune.launches.launch_recording import LaunchManifest


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


PROFILE = ArchiveKind(".xsprof", "profile.json", "profile", TypeAdapter(LaunchManifest[RecordedLaunch]))


def record_launch(recording: ArchiveWriter[LaunchManifest[RecordedLaunch]], done: ProfileLaunch) -> None:
    """Keep a launch.

    Raises:
        UsageError: the file cannot be written (a full disk, say).
    """
    launches = recording.manifest.launches
    if len(done.table.lanes):
        recording.add_table(len(launches), done.table)
    launches.append(
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


def case_sha256(case: ProfileCase) -> str:
    """Hash of a case: what a recorded launch is of."""
    keys = {field.name: getattr(case, field.name) for field in fields(case)}
    # Runs of before tiles were split are of none: the same case without the key.
    split = case.config.kv_splits > 1
    keys["config"] = {
        key: value for key, value in config_keys(case.config).items() if split or key != "kv_splits"
    }
    return hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()
