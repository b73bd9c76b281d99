"""Profiles as TOML files: finding them by name, reading them strictly, writing them atomically.

Shared by platform and workload profiles. Every error names the file, the key and the value.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tomli_w
from pydantic import BaseModel, ValidationError

from xstage_tune.base.errors import UsageError
from xstage_tune.base.files import write_text
from xstage_tune.base.parsing import MOST_NESTING, parse_toml, read_text
from xstage_tune.base.schema_problems import cut, describe_problems
from xstage_tune.base.user_folders import expanded

Model = TypeVar("Model", bound=BaseModel)

_SUFFIX = ".toml"


def find_profiles(folders: Sequence[Path]) -> dict[str, Path]:
    """Profiles under ``folders`` by name: the path below the folder without suffix.

    Underscores in the names of subfolders read as hyphens (``fa_a2a/x.toml`` is ``fa-a2a/x``). A name
    in two folders is the first folder's. Folders that do not exist are skipped.
    """
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob(f"*{_SUFFIX}")):
            *parents, name = path.relative_to(folder).with_suffix("").parts
            found.setdefault("/".join([*(parent.replace("_", "-") for parent in parents), name]), path)
    return dict(sorted(found.items()))


def resolve_profile(kind: str, name_or_path: str, folders: Sequence[Path]) -> Path:
    """The file of a profile: ``name_or_path`` itself if it ends in ``.toml``, else the one so named.

    Args:
        kind: what is looked for, as the user calls it ("platform", "workload").

    Raises:
        UsageError: no such file or name; the hint gives the nearest names.
    """
    if name_or_path.endswith(_SUFFIX):
        return _existing_file(kind, name_or_path)
    names = find_profiles(folders)
    if name_or_path not in names:
        near = difflib.get_close_matches(name_or_path, names, n=3, cutoff=0.5)
        near = near or [name for name in names if name_or_path in name][:3]
        nearest = f"{' or '.join(near)}, or " if near else ""
        raise UsageError(
            f"unknown {kind} '{name_or_path}'",
            f"{nearest}one of: xstage-tune {kind}s list; a .toml path works too",
        )
    return names[name_or_path]


def read_profile(path: Path) -> dict[str, Any]:
    """The keys of one file, not checked yet.

    Raises:
        UsageError: the file cannot be read or is no TOML.
    """
    text = read_text(path)
    try:
        return parse_toml(text)
    except ValueError as error:
        raise UsageError(f"{path}: invalid TOML: {error}{_line_named_in(str(error), text)}") from None


def apply_overrides(data: dict[str, Any], overrides: Iterable[str]) -> None:
    """Set keys in place, each as ``key=value`` or ``section.key=value``.

    The value is TOML; text that is no TOML value stands for itself, so that strings need no quotes.

    Raises:
        UsageError: an override has no ``=``, goes through a key that holds a value, or sets one again.
    """
    values: dict[tuple[str, ...], str] = {}
    for override in overrides:
        key, separator, text = override.partition("=")
        *sections, last = (part.strip() for part in key.split("."))
        if not separator or not all((*sections, last)):
            raise UsageError(
                f"--set {override}: not of the form key=value", "for example --set tokens_per_rank=4096"
            )
        place = (*sections, last)
        if len(place) > MOST_NESTING:
            raise UsageError(f"--set {key[:20]}...: more than {MOST_NESTING} sections in each other")
        if place in values:
            raise UsageError(
                f"--set {override}: '{key.strip()}' is set twice, to {values[place]} before", "set it once"
            )
        values[place] = text.strip()
        table = data
        for section in sections:
            table = table.setdefault(section, {})
            if not isinstance(table, dict):
                raise UsageError(f"--set {override}: '{section}' holds a value, not keys")
        table[last] = _toml_value(text.strip(), key.strip())


def check_profile(model: type[Model], data: Mapping[str, Any], origin: str) -> Model:
    """Keys as a profile.

    Args:
        origin: where they come from, as errors name it.

    Raises:
        UsageError: they break the schema; says of every problem the key, its value and what is allowed. The
            hint lists the keys that there are where an unknown one is like none of them.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems, hint = describe_problems(error, model)
        raise file_error(origin, problems, hint) from None


def file_error(origin: str, problems: Sequence[str], hint: str = "") -> UsageError:
    """All problems of one file as one error: the first is its message, which counts the others."""
    first, *others = problems
    more = f" (and {len(others)} more)" if others else ""
    return UsageError(f"{origin}: {first}{more}", hint, [f"{origin}: {problem}" for problem in others])


def write_profile(profile: BaseModel, path: Path, *, force: bool = False) -> None:
    """Write a profile so that it reads back equal; the file appears whole or not at all.

    Raises:
        UsageError: the file exists and ``force`` is not set, or cannot be written.
    """
    write_text(path, tomli_w.dumps(profile.model_dump(mode="json", exclude_none=True)), force=force)


def _line_named_in(complaint: str, text: str) -> str:
    """The line of ``text`` that a parser complains about; empty where it names none, as at the text's end."""
    named = re.search(r"at line (\d+)", complaint)
    return f": {cut(text.splitlines()[int(named[1]) - 1].strip())}" if named else ""


def _existing_file(kind: str, name: str) -> Path:
    path = expanded(Path(name))
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"{kind} file {path} does not exist", f"names also work: xstage-tune {kind}s list"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {kind} file {path}: {error.strerror}") from None
    return path


def _toml_value(text: str, key: str) -> Any:
    try:
        return parse_toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except ValueError as error:  # too deep, or a number of thousands of digits
        raise UsageError(f"--set {key}: {str(error).partition(';')[0]}") from None
