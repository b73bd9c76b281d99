"""Platform profiles by name or path, and back to disk."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from xstage_tune.assets import data_dir
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.profile_files import (
    check_profile,
    find_profiles,
    read_profile,
    resolve_profile,
    write_profile,
)


def user_platforms_dir() -> Path:
    """Where a user's own platform profiles are found by name; it may not exist."""
    return platformdirs.user_data_path("xstage-tune") / "platforms"


def list_platforms() -> dict[str, Path]:
    """Profiles that :func:`load_platform` finds by name, sorted; a user's own hides a shipped one."""
    return find_profiles(_folders())


def load_platform(name_or_path: str) -> PlatformProfile:
    """Load a shipped or the user's own profile by name, or any profile by a path ending in ``.toml``.

    Raises:
        UsageError: no such profile, or its file breaks the schema.
    """
    path = resolve_profile("platform", name_or_path, _folders())
    return check_profile(PlatformProfile, read_profile(path), str(path))


def save_platform(profile: PlatformProfile, path: Path, *, force: bool = False) -> None:
    """Write a profile as TOML, atomically, in the order of the schema; it loads back equal.

    Raises:
        UsageError: the file exists and ``force`` is not set, or cannot be written.
    """
    write_profile(profile, path, force=force)


def _folders() -> tuple[Path, Path]:
    return user_platforms_dir(), data_dir("profiles") / "platforms"
