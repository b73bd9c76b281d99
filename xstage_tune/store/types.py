"""Column types that keep non-finite floats explicit."""

from __future__ import annotations

import math
from typing import Any

from sqlalchemy import JSON, Dialect, Float, TypeDecorator

from xstage_tune.store.dialects import SqliteFloat

#: A double that may be NaN or infinite.
ANY_FLOAT = Float(53).with_variant(SqliteFloat(53), "sqlite")

_FLOAT_KEY = "$float"


class ExplicitJson(TypeDecorator[Any]):
    """JSON in which a non-finite float is ``{"$float": "nan" | "inf" | "-inf"}``; None is NULL."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        return _to_json(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        return _from_json(value)


def _to_json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT_KEY: str(float(value))}
    if isinstance(value, dict):
        if _FLOAT_KEY in value:
            raise ValueError(f"the key '{_FLOAT_KEY}' is reserved for non-finite floats")
        return {key: _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
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
