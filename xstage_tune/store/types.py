"""Column types that keep non-finite floats explicit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import JSON, Dialect, Float, TypeDecorator

from xstage_tune.store.dialects import SqliteFloat

#: A double that may be NaN or infinite.
ANY_FLOAT = Float(53).with_variant(SqliteFloat(53), "sqlite")

_FLOAT_KEY = "$float"
_MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Undecodable:
    """What stands in a damaged column; no checksum fits it."""

    stored: str


class ExplicitJson(TypeDecorator[Any]):
    """JSON in which a non-finite float is ``{"$float": "nan" | "inf" | "-inf"}``; None is NULL.

    What is no JSON any more comes back as :class:`Undecodable`.
    """

    impl = JSON(none_as_null=True)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        return json_form(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """The base's, which raises what nobody can name a row by."""
        decode = self.impl_instance.result_processor(dialect, coltype)

        def decoded(stored: Any) -> Any:
            try:
                return _from_json(decode(stored) if decode else stored)
            except (ValueError, TypeError, RecursionError):
                return Undecodable(str(stored)[:_MOST_SHOWN])

        return decoded


def json_form(value: Any) -> Any:
    """A value as it is written.

    Raises:
        ValueError: JSON has nothing like it.
    """
    if isinstance(value, Undecodable):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT_KEY: str(float(value))}
    if isinstance(value, dict):
        if _FLOAT_KEY in value:
            raise ValueError(f"the key '{_FLOAT_KEY}' is reserved for non-finite floats")
        return {key: json_form(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_form(item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"a {type(value).__name__} cannot be stored as JSON")


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        if _FLOAT_KEY in value:
            return float(value[_FLOAT_KEY])
        return {key: _from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    return value


def is_decodable(value: Any) -> bool:
    """Whether a column's value is data: neither :class:`Undecodable`, nor text that is no UTF-8."""
    if isinstance(value, str):
        return not any("\udc80" <= character <= "\udcff" for character in value)
    return not isinstance(value, Undecodable)
