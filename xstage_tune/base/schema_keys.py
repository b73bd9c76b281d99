"""What a schema says of its keys, in words: templates and references are made from it, so neither drifts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from xstage_tune.base.schema_problems import section_model

_KINDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
_BOUNDS = ("gt", "ge", "lt", "le")


@dataclass(frozen=True, slots=True)
class SchemaKey:
    """One key of a section.

    Attributes:
        name: as files write it.
        description: what it means, with its unit.
        allowed: what values it takes; empty for a section.
        required: whether a file must have it.
        default: its value where it is left out; None where that is none, or where it is required.
        examples: valid values; those of a repeated section are of one entry after the other.
        section: the schema of what is below it; None for a plain value.
        repeated: whether it is a list of sections, ``[[name]]``.
    """

    name: str
    description: str
    allowed: str
    required: bool
    default: Any
    examples: tuple[Any, ...]
    section: type[BaseModel] | None
    repeated: bool


def schema_keys(model: type[BaseModel]) -> tuple[SchemaKey, ...]:
    """The keys of a schema in its order."""
    return tuple(_key(name, field) for name, field in model.model_fields.items())


def _key(name: str, field: FieldInfo) -> SchemaKey:
    section = section_model(field.annotation)
    return SchemaKey(
        name=name,
        description=field.description or "",
        allowed="" if section else _allowed(field.annotation, field.metadata),
        required=field.is_required(),
        default=None if section or field.default is PydanticUndefined else field.default,
        examples=tuple(field.examples or ()),
        section=section,
        repeated=section is not None and get_origin(field.annotation) is tuple,
    )


def _allowed(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """What an annotation allows, in words."""
    if get_origin(annotation) is Annotated:
        inner, *own = get_args(annotation)
        return _allowed(inner, (*own, *metadata))
    parts = [part for part in get_args(annotation) if part is not NoneType]
    if get_origin(annotation) is Literal:
        *values, last = map(str, parts)
        return f"one of {', '.join(values)} or {last}" if values else last
    if get_origin(annotation) is tuple:
        each = _allowed(parts[0])
        return f"a list, each {each}" if Ellipsis in parts else f"a list of {len(parts)}, each {each}"
    if parts:  # a union with None
        return _allowed(parts[0], metadata)
    return _KINDS[annotation] + _range(_bounds(metadata), whole=annotation is int)


def _bounds(metadata: Iterable[Any]) -> dict[str, float]:
    """The bounds (``gt``, ``ge``, ``lt``, ``le``) among what an annotation carries."""
    found: dict[str, float] = {}
    for one in metadata:
        if isinstance(one, FieldInfo):
            found |= _bounds(one.metadata)
        else:
            found |= {name: bound for name in _BOUNDS if (bound := getattr(one, name, None)) is not None}
    return found


def _range(bounds: Mapping[str, float], *, whole: bool) -> str:
    least = bounds["gt"] + 1 if whole and "gt" in bounds else bounds.get("ge")
    words = (
        [f"from {least:,}"] if least is not None else [f"above {bounds['gt']:,}"] if "gt" in bounds else []
    )
    if "le" in bounds:
        words.append(f"to {bounds['le']:,}" if least is not None else f"up to {bounds['le']:,}")
    elif least is not None:
        words.append("up")
    return f" {' '.join(words)}" if words else ""
