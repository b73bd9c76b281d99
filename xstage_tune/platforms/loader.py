"""Platform profiles by name or path, and back to disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from xstage_tune.base.assets import data_dir
from xstage_tune.base.errors import UsageError
from xstage_tune.base.profile_files import (
    check_profile,
    file_error,
    find_profiles,
    read_profile,
    resolve_profile,
    write_profile,
)
from xstage_tune.base.user_folders import data_folder
from xstage_tune.platforms.gpus import known_compute
from xstage_tune.platforms.schema import PlatformProfile, surely_above

#: A rate of stores that is further above the copy engine's is wrong, whatever its interval says.
_MOST_OF_COPY_ENGINE = 1.1
#: An interval and what lies at its very end may have been rounded apart.
_ROUNDED = 1.001


def user_platforms_dir() -> Path:
    """Where a user's own platform profiles are found by name; it may not exist."""
    return data_folder() / "platforms"


def list_platforms() -> dict[str, Path]:
    """Profiles that :func:`load_platform` finds by name, sorted; a user's own hides a shipped one."""
    return find_profiles(_folders())


def list_own_platforms() -> dict[str, Path]:
    """The user's own profiles among them."""
    return find_profiles((user_platforms_dir(),))


def load_platform(name_or_path: str) -> PlatformProfile:
    """Load a shipped or the user's own profile by name, or any profile by a path ending in ``.toml``.

    One without a compute section gets that of its GPU, where it is known.

    Raises:
        UsageError: no such profile, or its file breaks the schema.
    """
    path = resolve_profile("platform", name_or_path, _folders())
    profile = check_profile(PlatformProfile, read_profile(path), str(path))
    if problems := list(_implausible(profile)):
        raise file_error(str(path), problems, "correct the file, or calibrate again: xstage-tune calibrate")
    if profile.compute is None:
        return profile.model_copy(update={"compute": known_compute(profile.gpu.identity)})
    return profile


def is_current(platform: PlatformProfile) -> bool:
    """Whether a profile that something was recorded with is the one that its name finds now, if any.

    A file of that name that does not load is another: what was recorded can be shown beside it.
    """
    path = list_platforms().get(platform.name)
    try:
        return path is None or load_platform(str(path)).figures() == platform.figures()
    except UsageError:
        return False


def _implausible(profile: PlatformProfile) -> Iterator[str]:
    """Numbers that no calibration writes: they were edited, or are of different machines."""
    drain, limit = profile.drain, profile.drain.copy_engine_bytes_per_s
    shown = f"drain.bytes_per_s = {drain.bytes_per_s:g}"
    if drain.ci95 is not None:
        low, high = drain.ci95
        if not low / _ROUNDED <= drain.bytes_per_s <= high * _ROUNDED:
            yield f"{shown} is outside its own drain.ci95 = [{low:g}, {high:g}]"
    intervals = {f"issue[{number}]": point.ci95 for number, point in enumerate(profile.issue)}
    intervals |= {f"capacity[{number}]": point.ci95 for number, point in enumerate(profile.capacity)}
    for name, ci95 in intervals.items():
        if ci95 is not None and ci95[0] > ci95[1]:
            yield f"{name}.ci95 = [{ci95[0]:g}, {ci95[1]:g}] begins behind its end"
    if limit is not None:
        most = f"drain.copy_engine_bytes_per_s = {limit:g}, the most that the path carries"
        if surely_above((drain.ci95 or (drain.bytes_per_s,))[0], limit):
            yield f"{shown} is above {most}"
        elif drain.bytes_per_s > limit * _MOST_OF_COPY_ENGINE:
            yield f"{shown} is far above {most}, however wide its ci95"
    for name, points in (("issue", profile.issue), ("capacity", profile.capacity)):
        producers = max((point.producers for point in points), default=0)
        if producers > profile.gpu.sm_count:
            yield (
                f"{name} has a point of {producers} producers, and gpu.sm_count is {profile.gpu.sm_count}: "
                "there is at most one producer an SM"
            )


def save_platform(profile: PlatformProfile, path: Path, *, force: bool = False) -> None:
    """Write a profile as TOML, atomically, in the order of the schema; it loads back equal.

    Raises:
        UsageError: the file exists and ``force`` is not set, or cannot be written.
    """
    write_profile(profile, path, force=force)


def _folders() -> tuple[Path, Path]:
    return user_platforms_dir(), data_dir("profiles") / "platforms"
