"""Configs from files and from plain keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xstage_tune.base.errors import UsageError
from xstage_tune.base.parsing import parse_json, read_text
from xstage_tune.base.profile_files import check_profile, read_profile
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.registry import families, family_of_config_kind


def load_config(path: Path) -> KernelConfig:
    """Read a config from a ``.toml`` or ``.json`` file: its keys, or those of its section ``config``.

    Raises:
        UsageError: the file cannot be read, or breaks the schema; names the file and the key.
    """
    readers = {".toml": read_profile, ".json": _read_json}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"config file {path} is neither .toml nor .json")
    data = reader(path)
    section = data.get("config")
    return config_from_keys(section if isinstance(section, dict) else data, str(path))


def config_from_keys(data: Mapping[str, Any], origin: str) -> KernelConfig:
    """Keys, as ``model_dump`` gives them, as a config.

    Args:
        origin: where they come from, as errors name it.

    Raises:
        UsageError: they break the schema.
    """
    family = family_of_config_kind(str(data.get("kind")))
    if family is None:
        kinds = ", ".join(family.config_kind for family in families())
        raise UsageError(f"{origin}: kind = {data.get('kind')!r}: should be one of {kinds}")
    config: KernelConfig = check_profile(family.config_model, data, origin)
    return config


def config_keys(config: KernelConfig) -> dict[str, Any]:
    """A config as plain keys, those that do not apply left out; :func:`config_from_keys` reads it back."""
    return config.model_dump(mode="json", exclude_none=True)


def _read_json(path: Path) -> dict[str, Any]:
    text = read_text(path)
    try:
        data = parse_json(text)
    except ValueError as error:
        raise UsageError(f"{path}: invalid JSON: {error}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path}: not a JSON object")
    return data
