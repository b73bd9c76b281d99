"""Workload profiles by name or path, with overrides from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xstage_tune.assets import data_dir
from xstage_tune.errors import UsageError
from xstage_tune.profile_files import (
    apply_overrides,
    check_profile,
    find_profiles,
    read_profile,
    resolve_profile,
)
from xstage_tune.user_folders import data_folder
from xstage_tune.workloads.histogram import read_histogram
from xstage_tune.workloads.schema import AttentionWorkload, MoeWorkload, Workload

WORKLOAD_MODELS: dict[str, type[MoeWorkload] | type[AttentionWorkload]] = {
    "moe": MoeWorkload,
    "attention": AttentionWorkload,
}


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
    _anchor_histogram(data, path.parent)
    apply_overrides(data, _with_own_tokens(overrides, data.get("kind")))
    # What was typed here is likelier wrong than the file, whose whole path would push it out of sight.
    named = name_or_path if overrides else str(path)
    origin = " ".join([named, *(f"--set {override}" for override in overrides)])
    _read_histogram(data, origin)
    if "kind" not in data:
        raise UsageError(f"{origin}: key 'kind' is missing: one of {', '.join(WORKLOAD_MODELS)}")
    model = WORKLOAD_MODELS.get(str(data["kind"]))
    if model is None:
        raise UsageError(f"{origin}: kind = {data['kind']!r}: should be one of {', '.join(WORKLOAD_MODELS)}")
    return check_profile(model, data, origin)


def _with_own_tokens(overrides: Sequence[str], kind: object) -> list[str]:
    """``overrides`` with ``tokens`` as the key that a kind of workload has for them."""
    if kind != "moe":
        return list(overrides)
    parts = (override.partition("=") for override in overrides)
    return [
        ("tokens_per_rank" if key.strip() == "tokens" else key) + sign + text for key, sign, text in parts
    ]


def _anchor_histogram(data: dict[str, Any], folder: Path) -> None:
    """Make a relative ``routing.file`` one below ``folder``."""
    routing = data.get("routing")
    if isinstance(routing, dict) and isinstance(routing.get("file"), str):
        routing["file"] = str(folder / routing["file"])


def _read_histogram(data: dict[str, Any], origin: str) -> None:
    """Replace ``routing.file`` by what it holds."""
    routing = data.get("routing")
    if not isinstance(routing, dict) or "file" not in routing:
        return
    if "histogram" in routing or not isinstance(routing["file"], str):
        raise UsageError(f"{origin}: routing takes either a histogram or the path of one as 'file'")
    routing["histogram"] = read_histogram(Path(routing.pop("file")))


def _folders() -> tuple[Path, Path]:
    return user_workloads_dir(), data_dir("profiles") / "workloads"
