"""Results as byte-stable JSON, its hash, and the one place that writes it to stdout."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from os import PathLike
from typing import Any

_STEERING = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def to_json(value: Any) -> str:
    """A result as JSON text: sorted keys, two spaces of indent, one newline at the end.

    Takes dataclasses, pydantic models, NumPy arrays and scalars, enums and paths beside JSON's own
    types. A number that is not finite becomes ``null``: JSON has no NaN.

    Raises:
        TypeError: a value of any other type.
    """
    return json.dumps(_plain(value), sort_keys=True, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def json_sha256(value: Any) -> str:
    """Hash of :func:`to_json`, which tells two profiles of one name apart."""
    return hashlib.sha256(to_json(value).encode()).hexdigest()


def emit_json(value: Any) -> None:
    """Write a result to stdout as :func:`to_json` gives it; nothing else may go there.

    What steers a terminal and JSON leaves as it is (C1, writing direction) is escaped, which says the same.
    """
    sys.stdout.write(_STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", to_json(value)))


def _plain(value: Any) -> Any:
    """``value`` in the types that :mod:`json` writes."""
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, PathLike):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "model_dump"):
        return _plain(value.model_dump())
    if hasattr(value, "tolist"):  # NumPy arrays and scalars
        return _plain(value.tolist())
    raise TypeError(f"no JSON form for {type(value).__name__}")
