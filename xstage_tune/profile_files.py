"""Profiles as TOML files: finding them by name, reading them strictly, writing them atomically.

Shared by platform and workload profiles. Every error names the file, the key and the value.
"""

from __future__ import annotations

import difflib
import stat
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import tomli_w
from pydantic import BaseModel, ValidationError

from xstage_tune.errors import UsageError
from xstage_tune.files import write_text

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Model = TypeVar("Model", bound=BaseModel)
Parsed = TypeVar("Parsed")

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
        return parse_nested(tomllib.loads, text)
    except ValueError as error:
        raise UsageError(f"{path}: invalid TOML: {error}") from None


def read_text(path: Path) -> str:
    """A user's text file, without the byte order mark that some editors put first.

    Raises:
        UsageError: it is no regular file (a pipe would block), cannot be read, or is no UTF-8.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            what = "a folder" if stat.S_ISDIR(mode) else "a pipe or device"
            raise UsageError(f"cannot read {path}: it is {what}, not a file")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text at byte {error.start}") from None
    except ValueError as error:  # a NUL in the name
        raise UsageError(f"cannot read {str(path)!r}: {error}") from None


def parse_nested(parse: Callable[[str], Parsed], text: str) -> Parsed:
    """What a recursive parser (TOML, JSON) makes of a text.

    Raises:
        ValueError: the parser's own error, or the text is nested deeper than it can follow.
    """
    try:
        return parse(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


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
        UsageError: they break the schema; says the key, its value and why. The hint lists the keys that there
            are where an unknown one is like none of them.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problem, hint = _describe(error, model)
        raise UsageError(f"{origin}: {problem}", hint) from None


def write_profile(profile: BaseModel, path: Path, *, force: bool = False) -> None:
    """Write a profile so that it reads back equal; the file appears whole or not at all.

    Raises:
        UsageError: the file exists and ``force`` is not set, or cannot be written.
    """
    write_text(path, tomli_w.dumps(profile.model_dump(mode="json", exclude_none=True)), force=force)


def _existing_file(kind: str, name: str) -> Path:
    path = Path(name)
    try:
        path = path.expanduser()
        path.stat()
    except (FileNotFoundError, NotADirectoryError, RuntimeError):  # RuntimeError: the ~ of no such user
        raise UsageError(
            f"{kind} file {path} does not exist", f"names also work: xstage-tune {kind}s list"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {kind} file {path}: {error.strerror}") from None
    return path


def _toml_value(text: str, key: str) -> Any:
    try:
        return parse_nested(tomllib.loads, f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except ValueError as error:  # too deep, or a number of thousands of digits
        raise UsageError(f"--set {key}: {str(error).partition(';')[0]}") from None


def _describe(error: ValidationError, model: type[BaseModel]) -> tuple[str, str]:
    """The first problem in one line, and a hint.

    An unknown key comes before the key that it was meant to be.
    """
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    first = problems[0]
    if first["type"] == "extra_forbidden":
        problem, hint = _unknown_key(first["loc"], model)
        return problem + more, hint
    return _problem(first) + more, ""


def _unknown_key(location: Sequence[str | int], model: type[BaseModel]) -> tuple[str, str]:
    """What is wrong, with the key that it is most like; where it is like none, the hint lists them."""
    keys = _sibling_keys(model, location)
    near = _near_key(str(location[-1]), keys)
    problem = f"unknown key '{_dotted(location)}'"
    if near is not None:
        return f"{problem}; did you mean '{near}'?", ""
    return problem, f"one of: {', '.join(keys)}" if keys else ""


def _problem(problem: ErrorDetails) -> str:
    key = _dotted(problem["loc"])
    if problem["type"] == "missing":
        return f"key '{key}' is missing"
    reason = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if problem["type"] in ("model_type", "dict_type"):
        return f"key '{key}' is a section: give one of its keys, {key}.KEY"
    if problem["type"] == "tuple_type":
        reason = "should be a list, as in [1, 2]"
    if isinstance(problem["input"], Mapping | list | tuple):
        return f"{key}: {reason}" if key else reason
    return f"{key} = {problem['input']!r}: {reason}"


def _near_key(text: str, keys: Sequence[str]) -> str | None:
    """A key that begins with ``text``, else the one spelled most like it, else the longest that begins it."""
    begun = [key for key in keys if key.startswith(text)]
    alike = begun or difflib.get_close_matches(text, keys, n=1)
    if alike:
        return alike[0]
    return max((key for key in keys if text.startswith(key)), key=len, default=None)


def _dotted(location: Sequence[str | int]) -> str:
    """``("issue", 0, "ns")`` as ``issue[0].ns``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")


def _sibling_keys(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """The keys that the section holding ``location`` knows."""
    section: type[BaseModel] | None = model
    for part in location[:-1]:
        if isinstance(part, str) and section is not None:
            section = section_model(section.model_fields[part].annotation)
    return list(section.model_fields) if section is not None else []


def section_model(annotation: Any) -> type[BaseModel] | None:
    """The model inside an annotation such as ``tuple[Model, ...]`` or ``Model | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(section_model, get_args(annotation))), None)
