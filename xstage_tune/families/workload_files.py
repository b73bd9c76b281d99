"""Workload profiles by name or path, with overrides from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xstage_tune.base.assets import data_dir
from xstage_tune.base.errors import UsageError
from xstage_tune.base.profile_files import (
    apply_overrides,
    check_profile,
    find_profiles,
    read_profile,
    resolve_profile,
)
from xstage_tune.base.user_folders import data_folder
from xstage_tune.families.registry import families, family_of_workload_kind
from xstage_tune.families.workload import Workload


def user_workloads_dir() -> Path:
    """Where a user's own workload profiles are found by name; it may not exist."""
    return data_folder() / "workloads"


def list_workloads() -> dict[str, Path]:
    """Profiles that :func:`load_workload` finds by name, sorted; a user's own hides a shipped one."""
    return find_profiles(_folders())


def load_workload(name_or_path: str, overrides: Sequence[str] = ()) -> Workload:
    """Load a profile by name (``megamoe/deepseek-v4-flash``) or by a path ending in ``.toml``.

    ``routing.file`` names a CSV or JSON histogram, relative to the profile, or to the working folder
    when it comes from an override; it is read into ``routing.histogram``.

    Args:
        overrides: ``key=value`` texts, each of another key. ``tokens`` is the workload's own, of a MoE layer
            ``tokens_per_rank``.

    Raises:
        UsageError: no such profile, a bad override, or a profile that breaks the schema.
    """
    path = resolve_profile("workload", name_or_path, _folders())
    data = read_profile(path)
    if family := family_of_workload_kind(str(data.get("kind"))):
        family.anchor(data, path.parent)
    apply_overrides(data, _with_own_tokens(overrides, data.get("kind")))
    # What was typed here is likelier wrong than the file, whose whole path would push it out of sight.
    named = name_or_path if overrides else str(path)
    origin = " ".join([named, *(f"--set {override}" for override in overrides)])
    return workload_from_keys(data, origin)


def workload_from_keys(data: dict[str, Any], origin: str) -> Workload:
    """Keys of a workload of any family as one.

    Args:
        data: completed in place, where it names a file.
        origin: where they come from, as errors name it.

    Raises:
        UsageError: they break the schema.
    """
    if "kind" not in data:
        raise UsageError(f"{origin}: key 'kind' is missing: one of {_kinds()}")
    family = family_of_workload_kind(str(data["kind"]))
    if family is None:
        raise UsageError(f"{origin}: kind = {data['kind']!r}: should be one of {_kinds()}")
    family.prepare_workload(data, origin)
    workload: Workload = check_profile(family.workload_model, data, origin)
    return workload


def _kinds() -> str:
    return ", ".join(family.workload_kind for family in families())


def _with_own_tokens(overrides: Sequence[str], kind: object) -> list[str]:
    """``overrides`` with ``tokens`` as the key that a kind of workload has for them."""
    family = family_of_workload_kind(str(kind))
    own = family.workload_model.TOKENS_KEY if family else "tokens"
    if own == "tokens":
        return list(overrides)
    parts = (override.partition("=") for override in overrides)
    return [(own if key.strip() == "tokens" else key) + sign + text for key, sign, text in parts]


def _folders() -> tuple[Path, Path]:
    return user_workloads_dir(), data_dir("profiles") / "workloads"
