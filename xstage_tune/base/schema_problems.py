"""What is wrong with a file that breaks its schema, in words: each problem with its key and value."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from xstage_tune.base.by_kind import ByKind
from xstage_tune.base.field_types import InconsistentError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

#: Characters of a value that an error repeats.
_MOST_SHOWN = 60
#: Of the problems of one file.
_MOST_TOLD = 100


def describe_problems(error: ValidationError, model: type[BaseModel]) -> tuple[list[str], str]:
    """Every problem in a line each, and a hint.

    An unknown key comes before the key that it was meant to be.
    """
    texts, hints = [], []
    found = error.errors(include_url=False)[:_MOST_TOLD]
    for problem in sorted(found, key=lambda problem: problem["type"] != "extra_forbidden"):
        if problem["type"] == "too_short" and any(_is_inside(problem, other) for other in found):
            continue  # pydantic counts the entries that are valid
        place = _find_place(model, problem["loc"])
        if problem["type"] == "extra_forbidden":
            text, hint = _unknown_key(place)
            texts.append(text)
            hints.append(hint)
        else:
            texts += _problems(problem, place)
    return texts, next(filter(None, hints), "")


def _is_inside(outer: ErrorDetails, inner: ErrorDetails) -> bool:
    return inner is not outer and inner["loc"][: len(outer["loc"])] == outer["loc"]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in a file a problem is: the dotted key, what the schema says of it, and the keys beside it."""

    key: str
    field: FieldInfo | None
    siblings: Sequence[str]


def _find_place(model: type[BaseModel], location: Sequence[str | int]) -> _Place:
    """Follow a location of pydantic's, which also names the kinds that it chose models by."""
    sections, siblings = [model], list(model.model_fields)
    field: FieldInfo | None = None
    path: list[str | int] = []
    for part in location:
        by_kind = _model_by_kind(field, part)
        if by_kind is not None:
            sections, field = [by_kind], None
            continue
        chosen = [section for section in sections if _is_of_kind(section, part)]
        if len(sections) > 1 and chosen:
            sections = chosen
            continue
        path.append(part)
        if isinstance(part, int):
            continue
        siblings = [key for section in sections for key in section.model_fields]
        field = next((s.model_fields[part] for s in sections if part in s.model_fields), None)
        sections = list(_models_in(field.annotation)) if field is not None else []
    return _Place(_dotted(path), field, siblings)


def _model_by_kind(field: FieldInfo | None, kind: str | int) -> type[BaseModel] | None:
    """The model that a field has for a kind; None where it does not choose one so."""
    choices = [one for one in field.metadata if isinstance(one, ByKind)] if field else []
    return choices[0].model_of(str(kind)) if choices else None


def _is_of_kind(section: type[BaseModel], kind: str | int) -> bool:
    field = section.model_fields.get("kind")
    return field is not None and kind in get_args(field.annotation)


def _unknown_key(place: _Place) -> tuple[str, str]:
    """What is wrong, with the key that it is most like; where it is like none, the hint lists them."""
    near = _near_key(place.key.rpartition(".")[2], place.siblings)
    problem = f"unknown key '{place.key}'"
    if near is not None:
        return f"{problem}; did you mean '{near}'?", ""
    return problem, f"one of: {', '.join(place.siblings)}" if place.siblings else ""


def _problems(problem: ErrorDetails, place: _Place) -> list[str]:
    """What is wrong with one key, or with several together."""
    key = place.key
    if problem["type"] == "missing":
        return [f"key '{key}' is missing{_explained(place.field)}"]
    reason = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if problem["type"] in ("model_type", "dict_type", "model_attributes_type"):
        return [f"key '{key}' is a section: give one of its keys, {key}.KEY"]
    if problem["type"] == "tuple_type":
        reason = "should be a list, as in [1, 2]"
    if problem["type"] == "string_pattern_mismatch":
        reason = f"does not have the form{_explained(place.field)}"
    if isinstance(problem["input"], Mapping | list | tuple):
        cause = problem.get("ctx", {}).get("error")
        reasons = cause.problems if isinstance(cause, InconsistentError) else [reason]
        return [f"{key}: {reason}" if key else reason for reason in reasons]
    return [f"{key} = {_shown(problem['input'])}: {reason}"]


def _explained(field: FieldInfo | None) -> str:
    """What a key means, and a value of it, as the schema says."""
    if field is None or not field.description:
        return ""
    example = f", for example {_shown(field.examples[0])}" if field.examples else ""
    return f" ({field.description}{example})"


def _shown(value: object) -> str:
    return cut(repr(value))


def cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


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


def section_model(annotation: Any) -> type[BaseModel] | None:
    """The model inside an annotation; None for a plain value."""
    return next(_models_in(annotation), None)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models inside an annotation such as ``tuple[Model, ...]`` or ``Model | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    else:
        for part in get_args(annotation):
            yield from _models_in(part)
