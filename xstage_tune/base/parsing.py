"""A user's text files: read whole, and parsed as TOML or JSON within limits.

The parsers themselves know no limits: a key of 30,000 parts takes gigabytes, and what is nested a thousand
deep ends whoever walks through it next.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from xstage_tune.base.errors import UsageError
from xstage_tune.base.files import require_regular

#: Of one file; the largest that a calibration writes takes 40 kB.
MOST_BYTES = 1 << 20
#: Of sections, lists and the parts of a dotted key in each other; a profile has 4.
MOST_NESTING = 32
#: Of one file, sections and lists included; a calibration writes 2,000.
MOST_VALUES = 20_000
#: Of a whole number; Python refuses to print much longer ones.
_MOST_BITS = 8192

_TOML_ASIDE = re.compile(
    r'''"""(?:[^"\\]|\\.|"(?!""))*+(?:"{3,5}|\Z)|\'\'\'(?:[^']|'(?!''))*+(?:'{3,5}|\Z)'''
    r"""|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?|\#[^\n]*+""",
    re.DOTALL,
)
_JSON_ASIDE = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
_LONG_KEY = re.compile(r"(?<![\w-])[\w-]++(?:[ \t]*+\.[ \t]*+[\w-]++)" f"{{{MOST_NESTING}}}")


def read_text(path: Path) -> str:
    """A user's text file, without the byte order mark that some editors put first.

    Raises:
        UsageError: it is no regular file (a pipe would block), is larger than :data:`MOST_BYTES`, cannot be
            read, or is no UTF-8.
    """
    try:
        require_regular(path)
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > MOST_BYTES:
        raise UsageError(f"{path}: larger than {MOST_BYTES >> 20} MiB, which no file of this kind is")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text at byte {error.start}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """The keys of a TOML text.

    Raises:
        ValueError: it is no TOML (then ``tomllib.TOMLDecodeError``), or beyond the limits of this module.
    """
    bare = _TOML_ASIDE.sub(lambda found: "" if found[0].startswith("#") else "_", text)
    if _LONG_KEY.search(bare):
        raise ValueError(f"nested too deeply: a key has more than {MOST_NESTING} parts")
    keys: dict[str, Any] = _within_limits(tomllib.loads, text, bare, MOST_VALUES)
    return keys


def parse_json(text: str, most_values: int = MOST_VALUES) -> Any:
    """What a JSON text holds.

    Raises:
        ValueError: it is no JSON, or beyond the limits of this module.
    """
    return _within_limits(json.loads, text, _JSON_ASIDE.sub("_", text), most_values)


def count_values(data: Any) -> int:
    """How many values, sections and lists there are in what was parsed, itself included."""
    return sum(1 for _ in _values(data))


def _values(data: Any) -> Iterator[Any]:
    rest = [data]
    while rest:
        value = rest.pop()
        yield value
        if isinstance(value, dict):
            rest += value.values()
        elif isinstance(value, list):
            rest += value


def _within_limits(parse: Callable[[str], Any], text: str, bare: str, most_values: int) -> Any:
    """What ``parse`` makes of a text; ``bare`` is the text without strings and comments."""
    depth = 0
    for bracket in _BRACKET.finditer(bare):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > MOST_NESTING:
            raise ValueError(f"nested too deeply: more than {MOST_NESTING} levels")
    values = 1 + sum(map(bare.count, ",=[{"))
    if values > most_values:
        raise ValueError(f"{values:,} values, more than the {most_values:,} that there can be")
    data = parse(text)
    for value in _values(data):
        if isinstance(value, int) and value.bit_length() > _MOST_BITS:
            raise ValueError(f"a whole number of {value.bit_length():,} bits")
        for part in value if isinstance(value, dict) else (value,):
            if isinstance(part, str) and not part.isascii():
                part.encode()  # an escape may be half a character
    return data


_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*(B|[kK]B|MB|GB|KiB|MiB|GiB)?")
_SIZE_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_byte_count(text: str) -> int:
    """``32768``, ``32KiB``, ``1.5 MiB``, ``32 kB``: whole bytes.

    Raises:
        ValueError: it is no size, or not of whole bytes.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{text}' is no size in bytes")
    size = float(match[1]) * _SIZE_UNITS[(match[2] or "").upper()]
    if not size.is_integer():
        raise ValueError(f"'{text}' is no whole number of bytes")
    return int(size)
